"""Flow-Factory is on no package index: its two classes are stood in for, by the signature in its repository."""

import sys
import types
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from rewards.errors import InputError
from rewards.shapes.prompts import question_store


@dataclass
class Output:
    rewards: torch.Tensor
    extra_info: dict = field(default_factory=dict)


class Pointwise:
    def __init__(self, config, accelerator):
        self.config = config


def test_pictures_by_prompt(world, tmp_path, monkeypatch):
    paths, captions, _ = world
    stand_in = types.ModuleType("flow_factory.rewards")
    stand_in.PointwiseRewardModel, stand_in.RewardModelOutput = Pointwise, Output
    monkeypatch.setitem(sys.modules, "flow_factory", types.ModuleType("flow_factory"))
    monkeypatch.setitem(sys.modules, "flow_factory.rewards", stand_in)
    from rewards.hosts.flow_factory import PictureReward

    store = question_store(tmp_path / "questions.sqlite", captions)
    config = tmp_path / "tifa.yaml"
    config.write_text(f"kind: tifa\njudge: shapes-vqa\nanswer: choices\nquestions: {store.path}\n")
    model = PictureReward(SimpleNamespace(extra_kwargs={"config": str(config)}), None)
    black = Image.new("RGB", (32, 32))
    output = model(prompt=[*captions, captions[0]], image=[*map(Image.open, paths), black], video=None)
    assert output.rewards.shape == (4,) and output.rewards[3] == output.rewards[0] and output.rewards[:3].min() > 0.5
    assert output.extra_info["rewards/TIFA/abstained"] == 1
    with pytest.raises(InputError, match="gave none"):
        model(prompt=captions, image=None)
