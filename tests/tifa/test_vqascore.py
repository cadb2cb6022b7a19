import numpy as np
import pytest
import torch
from PIL import Image

from rewards.build import RewardSettings, build_reward
from rewards.errors import InputError
from rewards.judges.base import UnsupportedAbility
from rewards.judges.loading import load_judge
from rewards.tifa.vqascore import VQAScore
from tests import tiny_models
from tests.judges.decoders.test_mass import summed, whole_vocabulary


@pytest.mark.parametrize(
    ("wording", "question", "forms"),
    [
        ("vqascore", 'Does this figure show "a red circle"? Please answer yes or no.', ["Yes"]),
        (
            "geneval2",
            'Does this image show "a red circle"? Answer the question with Yes or No.',
            ["Yes", "yes", " yes", " Yes"],
        ),
    ],
)
def test_both_released_wordings(wording: str, question: str, forms: list[str], tmp_path) -> None:
    folder = tiny_models.save("qwen2_5_vl", tmp_path / "m")
    reward = build_reward(RewardSettings(kind="vqascore", judge=folder, wording=wording))
    image = tiny_models.picture(4, (60, 44))
    judge = load_judge(folder)
    expected = summed(judge, whole_vocabulary(judge, image, question), forms)
    scores = reward.score([image, Image.new("RGB", (8, 8)), image], ["a red circle", "a red circle", None])
    assert scores.overall[0].item() == pytest.approx(expected, abs=1e-6)
    assert scores.overall[1:].isnan().all()
    assert scores.reasons == [None, "image 1 is black throughout", "image 2 has no prompt"]
    assert reward.score([image] * 2, [" ", 7]).reasons == [
        "image 0 has the prompt ' ', which is no text", "image 1 has the prompt 7, which is no text",
    ]  # fmt: skip
    assert reward.identity()["question"] == question.replace("a red circle", "{text}")
    values, info = reward(torch.rand(2, 3, 16, 16), ["{text}", "a blue square"])
    assert values.dtype == np.float32 and info["rewards/VQAScore/overall/count"] == 2


def test_mistakes_are_named(recorded) -> None:
    with pytest.raises(UnsupportedAbility):
        VQAScore(recorded({}))
    with pytest.raises(InputError, match="wording is 'loud'"):
        VQAScore(recorded({}), wording="loud")
