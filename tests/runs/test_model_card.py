"""Cards name base models in a way that works elsewhere, and the commands of the run."""

import sys
from pathlib import Path

import pytest

from rewards.runs.card import base_model, commands
from rewards.trainers.diffusion.run import PACKAGED


@pytest.mark.parametrize(("model", "part"), [("shapes", "stable_diffusion"), ("shapes-flow", "stable_diffusion_3")])
def test_a_packaged_checkpoint_is_found_wherever_the_package_is(model, part):
    path = PACKAGED[model]
    name, setup, expression = base_model(str(path))
    assert name == f"rewards/shapes/weights/{part}"
    scope: dict = {}
    exec("\n".join([*setup, f"path = {expression}"]), scope)
    assert Path(scope["path"]) == path
    assert str(path) not in "".join([name, *setup, expression])
    assert base_model("/somewhere/else") == ("/somewhere/else", [], '"/somewhere/else"')


def test_commands_can_be_pasted(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["examples/ddpo_sd.py", "--config", "my config.yaml", "seed=1"])
    assert "python examples/ddpo_sd.py --config 'my config.yaml' seed=1\nrewards curves 'a b'" in commands("a b", 1)
    assert "accelerate launch --num_processes 8 examples/ddpo_sd.py" in commands("a b", 8)
