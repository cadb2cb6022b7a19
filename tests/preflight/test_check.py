"""Estimates against published numbers and against what a real step takes; every shipped config is checked."""

import time

import pytest
import torch
from typer.testing import CliRunner

from rewards.cli.app import app
from rewards.cli.configs import sections, shipped
from rewards.errors import InputError
from rewards.preflight.measuring import Measure
from rewards.preflight.models import CPU, build_model, build_pipeline, described, published
from rewards.preflight.pretend import pretended, shapes_only
from rewards.preflight.report import Estimate, Report, read_memory

PARAMETERS = {
    "stable-diffusion-v1-5/stable-diffusion-v1-5": {
        "unet": 859_520_964,
        "vae": 83_653_863,
        "text_encoder": 123_060_480,
    },
    "stabilityai/stable-diffusion-xl-base-1.0": {"unet": 2_567_463_684, "text_encoder_2": 694_659_840},
}
"""As counted in the published weights."""

BILLIONS = {
    "Qwen/Qwen2.5-VL-3B-Instruct": 3.75, "Qwen/Qwen2.5-VL-7B-Instruct": 8.29, "Qwen/Qwen3-VL-8B-Instruct": 8.77,
    "llava-hf/llava-1.5-7b-hf": 7.06, "HuggingFaceTB/SmolVLM-500M-Instruct": 0.507,
    "HuggingFaceTB/SmolVLM2-2.2B-Instruct": 2.25, "Salesforce/blip-vqa-base": 0.385,
}  # fmt: skip
"""As their pages say."""


def test_a_layer_is_measured():
    with Measure(real=True) as measure, measure.phase() as phase:
        weight = torch.zeros(256, 512, requires_grad=True)
        states = torch.zeros(128, 512)
        (states @ weight.T).relu().sum().backward()
    assert phase.flops == 2 * (2 * 128 * 256 * 512)  # forward, and the weight's gradient
    kept = 4 * (2 * 256 * 512 + 128 * 512)
    assert kept <= phase.peak <= kept + 4 * 4 * 128 * 256
    del weight, states
    assert measure.live < 1000


@pytest.mark.parametrize("name", [*PARAMETERS, *(name for name in BILLIONS if "500M" in name or "blip" in name)])
def test_the_published_models_have_their_size(name):
    assert published()[name]["source"].startswith("https://")
    with pretended(CPU), shapes_only():
        if name in PARAMETERS:
            pipeline = build_pipeline(name, torch.bfloat16)
            found = {part: count(getattr(pipeline, part)) for part in PARAMETERS[name]}
            assert found == PARAMETERS[name]
        else:
            assert count(build_model(name, torch.bfloat16)) / 1e9 == pytest.approx(BILLIONS[name], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BILLIONS))
def test_large_models_have_their_size(name):
    with pretended(CPU), shapes_only():
        assert count(build_model(name, torch.bfloat16)) / 1e9 == pytest.approx(BILLIONS[name], rel=0.01)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_what_is_not_known_is_named():
    with pytest.raises(InputError, match="'org/unheard-of' is no folder here"):
        described("org/unheard-of")


def test_sizes_and_sums():
    assert read_memory("24GiB") == 24 * 2**30 and read_memory("80 GB") == 80 * 10**9
    with pytest.raises(InputError, match="24GiB"):
        read_memory("much")
    report = Report("run")
    report.parts = {
        "policy": [Estimate("weights", 10), Estimate("update", 70, used=False), Estimate("recomputed", 30, flops=8e14)],
        "reward": [Estimate("weights", 5), Estimate("a batch", 9)],
        "audit": [Estimate("weights", 2), Estimate("a batch", 3)],
    }
    assert report.peak == 30 + 5 + 2 + 4
    assert report.seconds("a100") == pytest.approx(8e14 / (312e12 * 0.4))


@pytest.mark.slow
def test_a_config_that_does_not_fit_says_what_to_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "ddpo_shapes", "--memory", "100MiB"])
    assert result.exit_code == 1
    assert "does not fit" in result.output and "trainer.gradient_checkpointing=true" in result.output
    assert "5 x" not in result.output and "forwards of the network a picture" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in shipped() if {"policy", "model"} & sections(p)], ids=lambda p: p.stem)
def test_every_shipped_config_is_checked_within_a_minute(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = time.process_time()
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 0, result.exception
    assert "GiB, from shapes alone" in result.output
    assert time.process_time() - begun < 60
    assert ("missing: prompts" in result.output) == ("questions.sqlite" in path.read_text("utf-8"))
