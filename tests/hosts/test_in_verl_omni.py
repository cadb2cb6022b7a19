"""verl-omni is on no package index: verl loads the page's lines, and they are called as its manager calls."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rewards.shapes.prompts import question_store
from tests.hosts.pages import arguments

pytestmark = pytest.mark.hosts


def test_the_lines_of_the_page_are_loaded_and_called(world, tmp_path, monkeypatch):
    from omegaconf import OmegaConf
    from verl.utils.import_utils import load_extern_object

    paths, captions, config = world
    store = question_store(tmp_path / "questions.sqlite", captions)
    Path(config).write_text(f"kind: tifa\njudge: shapes-vqa\nanswer: choices\nquestions: {store.path}\n")
    monkeypatch.chdir(Path(config).parent)
    added = OmegaConf.from_dotlist([one.removeprefix("+") for one in arguments("verl_omni")[1]])
    entry = OmegaConf.to_container(added.reward.reward_functions.tifa)
    function = load_extern_object(entry.pop("path"), entry.pop("name"))
    router = {"reward_router_address": "127.0.0.1:1", "reward_model_tokenizer": None, "model_name": "m"}
    assert any(one.kind is one.VAR_KEYWORD for one in inspect.signature(function).parameters.values())

    def judged(picture):
        given = {"data_source": "s", "solution_image": picture, "ground_truth": captions[0], "extra_info": {}}
        return function(**given, **router, **entry)

    picture = torch.from_numpy(np.array(Image.open(paths[0]))).permute(2, 0, 1)
    good, broken = judged(picture), judged(torch.zeros_like(picture))
    assert good["score"] > 0.5 and good["abstained"] == 0
    assert broken["score"] == good["score"] and broken["abstained"] == 1 and set(broken) == set(good)
