import subprocess
import sys

import pytest
import torch

from rewards.errors import InputError
from rewards.judges.base import UnsupportedAbility
from rewards.judges.loading import load_judge
from rewards.judges.presets import PRESETS, resolve
from tests import tiny_models


def test_same_arguments_same_resident_object(tiny_judge, tmp_path):
    assert tiny_judge("llava") is tiny_judge("llava")
    assert tiny_judge("llava", dtype="bfloat16") is not tiny_judge("llava")
    assert tiny_judge("llava", dtype="bfloat16").model.dtype == torch.bfloat16


def test_judges_are_frozen_and_in_eval_mode(tiny_judge):
    judge = tiny_judge("llava")
    assert not judge.model.training
    assert not any(parameter.requires_grad for parameter in judge.model.parameters())
    assert judge.identity()["dtype"] == "float32"
    assert judge.identity()["preprocessing"] == "CLIPImageProcessor"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no/such-judge", {}, "unknown judge"),
        ("mplug-large", {}, "modelscope"),
        ("no/such-judge", {"dtype": "float31"}, "unknown"),
    ],
)
def test_unknown_judges_are_one_clear_line(name, options, message):
    with pytest.raises(InputError, match=message):
        load_judge(name, **options)


def test_bad_options_are_input_errors(tmp_path):
    path = tiny_models.save("vilt", tmp_path / "vilt")
    for options, message in [
        ({"dtype": "float31"}, "unknown dtype"),
        ({"device": "toaster"}, "unknown device"),
        ({"devize": "cpu"}, "devize"),
    ]:
        with pytest.raises(InputError, match=message):
            load_judge(path, **options)


def test_tifa_names_are_presets():
    assert resolve("blip-large") == "Salesforce/blip-vqa-capfilt-large"
    assert {"git-base", "git-large", "vilt", "blip2-flant5xl", "shapes-vqa", "shapes-rater"} <= set(PRESETS)


def test_an_answerer_cannot_rate(tiny_judge):
    with pytest.raises(UnsupportedAbility, match="cannot rate"):
        tiny_judge("vilt").rate([tiny_models.picture()], ["hello"])


def test_lengths_and_types_are_checked(tiny_judge):
    judge, picture = tiny_judge("llava"), tiny_models.picture()
    with pytest.raises(InputError, match="2 images but 1 prompts"):
        judge.rate([picture, picture], ["a"])
    with pytest.raises(InputError, match="one string"):
        judge.rate([picture], "a")
    with pytest.raises(InputError, match="prompt 0 is a int"):
        judge.rate([picture], [3])


def test_import_loads_no_torch():
    code = "import rewards, sys; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
