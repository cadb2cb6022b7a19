"""Estimates against published numbers and against what a real step takes; every shipped config is checked."""

import re
import time

import pytest
import torch
from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE, ChunkedLogProbFunction
from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE
from typer.testing import CliRunner

from rewards.cli.app import app
from rewards.cli.configs import find_config, sections, shipped
from rewards.errors import InputError
from rewards.preflight import checking
from rewards.preflight.drawing import _measured, host_reads
from rewards.preflight.layers import by_layers, shortened
from rewards.preflight.measuring import Measure
from rewards.preflight.models import CPU, build_model, build_pipeline, described, published
from rewards.preflight.pretend import pretended
from rewards.preflight.report import Estimate, Knob, Report, read_memory
from rewards.preflight.writing import PROMPT_TOKENS, TILE, _LogProbs, _prompt_tokens
from rewards.runs.config import load_config
from rewards.trainers.diffusion.methods.ddpo import DDPO, DDPOConfig
from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO, FlowGRPOConfig
from rewards.trainers.language.settings import LanguageRunConfig

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
    "HuggingFaceTB/SmolVLM2-2.2B-Instruct": 2.25, "Salesforce/blip-vqa-base": 0.361,
}  # fmt: skip
"""As their pages say; BLIP without the second copy of tied words that its page counts (0.385)."""


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
    with pretended(CPU):
        if name in PARAMETERS:
            pipeline = build_pipeline(described(name), torch.bfloat16)
            found = {part: count(getattr(pipeline, part)) for part in PARAMETERS[name]}
            assert found == PARAMETERS[name]
        else:
            assert count(build_model(described(name), torch.bfloat16)) / 1e9 == pytest.approx(BILLIONS[name], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BILLIONS))
def test_large_models_have_their_size(name):
    with pretended(CPU):
        assert count(build_model(described(name), torch.bfloat16)) / 1e9 == pytest.approx(BILLIONS[name], rel=0.01)


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
    assert report.judges == (5 + 2, 4) and report.peak == 30 + 7
    report.beside = 28  # and the judge's batch
    assert report.peak == 28 + 4 + 7
    assert report.seconds("a100") == pytest.approx(8e14 / (312e12 * 0.4))


def test_what_to_change_is_named_with_its_value():
    rows = Knob("trainer.train_batch_size", 8, 10, "trainer.train_gradient_accumulation_steps", 2)
    report = Report("run", beside=10, smaller=["a smaller model"])
    report.parts = {
        "policy": [
            Estimate("weights", 10),
            Estimate("update", 90, knob=rows),
            Estimate("update, recomputed", 50, used=False, knob=rows),
        ],
        "reward": [Estimate("weights", 5), Estimate("a batch", 9)],
    }
    assert report.changes(95) == ([], 95)
    assert report.changes(60) == (["trainer.gradient_checkpointing=true"], 55)
    # 5 bytes a row: 4 rows of 8 (3 do not divide 8) beside the 10 that stay and the judge's 5.
    smaller = "trainer.train_batch_size=4 trainer.train_gradient_accumulation_steps=4"
    assert report.changes(36) == (["trainer.gradient_checkpointing=true", smaller], 35)
    told = report.text(36, "a100")
    assert f"with trainer.gradient_checkpointing=true {smaller} it takes about" in told and "a smaller" not in told
    assert report.changes(15)[1] > 15 and "a smaller model; or a GPU of" in report.text(15, "a100")


@pytest.mark.parametrize(
    "name, depths",
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", [(2, 5), (3, 5), (2, 6)]),
        ("Qwen/Qwen3-VL-8B-Instruct", [(5, 4), (6, 4), (5, 5)]),
        ("llava-hf/llava-1.5-7b-hf", [(2, 3), (3, 3), (2, 4)]),
    ],
)
def test_layers_are_counted_from_few(name, depths):
    """Every layer of a kind adds the same."""
    seen = []

    def measured(known):
        text, vision = known["config"]["text_config"], known["config"]["vision_config"]
        seen.append((text["num_hidden_layers"], vision.get("depth") or vision["num_hidden_layers"]))
        return {"bytes": 7 + 100 * seen[-1][0] + 3 * seen[-1][1]}

    known = described(name)
    text, vision = known["config"]["text_config"], known["config"]["vision_config"]
    whole = 7 + 100 * text["num_hidden_layers"] + 3 * (vision.get("depth") or vision["num_hidden_layers"])
    assert by_layers(known, measured) == {"bytes": whole} and seen == depths
    assert described(name) == known  # the table stays as it is


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stabilityai/stable-diffusion-3.5-medium", "black-forest-labs/FLUX.1-dev"])
def test_a_pass_through_all_layers_is_what_few_of_them_say(name):
    args = FlowGRPOConfig(sample_num_steps=3, sample_batch_size=2, train_batch_size=2, sample_num_images_per_prompt=2,
                          mixed_precision="bf16", resolution=512)  # fmt: skip
    known, method = described(name), FlowGRPO(args)
    whole = _measured(known, method)
    told = by_layers(known, lambda part: _measured(part, method))
    assert {key: told[key] / whole[key] for key in whole} == pytest.approx(dict.fromkeys(whole, 1), rel=0.01)


@pytest.mark.slow
def test_a_config_that_does_not_fit_says_what_to_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "ddpo_shapes", "--memory", "150MiB"])
    assert result.exit_code == 1
    advice = re.search(r"does not fit into 0.1 GiB; with (.*) it takes", result.output)
    assert advice is not None and "trainer.gradient_checkpointing=true trainer.train_batch_size=" in advice[1]
    followed = CliRunner().invoke(app, ["check", "ddpo_shapes", *advice[1].split(), "--memory", "150MiB"])
    assert followed.exit_code == 0 and "fits into 0.1 GiB" in followed.output


def test_the_loss_of_models_that_write_holds_what_trls_does():
    assert TILE == (TOKEN_CHUNK_SIZE, _CHUNKED_LOGPROB_CHUNK_SIZE)
    sizes = []
    for loss in (
        lambda *inputs: ChunkedLogProbFunction.apply(*inputs, None, torch.ones(300).long(), 1.0, TILE[1])[0],
        _LogProbs.apply,
    ):
        inputs = torch.ones(300, 16, requires_grad=True), torch.ones(117, 16, requires_grad=True)
        with Measure(real=True) as measure, measure.phase() as phase:
            loss(*inputs).mean().backward()
        sizes.append((phase.peak, [one.grad.shape for one in inputs]))
    (theirs, shapes), ours = sizes
    assert theirs == pytest.approx(300 * TILE[1] * 4, rel=0.03)  # and what kernels do in place on a GPU
    assert ours == (pytest.approx(theirs, rel=0.03), shapes)
    assert phase.flops == 4 * (2 * 300 * 16 * 117)  # logits twice, and two gradients


def test_tied_weights_are_counted_once():
    known = described("Qwen/Qwen2.5-VL-3B-Instruct")
    with pretended(CPU):
        model = build_model(shortened(known), torch.bfloat16)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_tokens_of_a_prompt_are_counted_where_it_is_here():
    config = load_config(LanguageRunConfig, find_config("grpo_shapes"), ["data.held_out.n=1"])
    assert _prompt_tokens(config) == 5  # begin, three words, and the turn's end
    config.data.source = "data/captions"
    assert _prompt_tokens(config) == PROMPT_TOKENS


def test_where_the_host_waits_is_listed():
    args = DDPOConfig(sample_num_steps=3, sample_batch_size=4, train_batch_size=4, sample_num_images_per_prompt=2)
    reads = host_reads(described("shapes"), DDPO(args))
    assert not reads["drawing a batch"] and not reads["decoding it"]
    (step,) = (found for name, found in reads.items() if "optimiser step" in name)
    assert {caller.rpartition(" ")[2]: count for caller, count in step.items()} == {"_apply": 1, "metrics": 1}


def test_what_fails_is_told_in_a_line(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no such kernel\nand where")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checking, "estimate_drawing", broken)
    monkeypatch.setattr(checking, "host_reads", broken)
    result = CliRunner().invoke(app, ["check", "ddpo_shapes"])
    assert result.exit_code == 1
    assert "could not be checked: ddpo: RuntimeError: no such kernel\n" in result.output
    assert "reward: weights" in result.output and "Traceback" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in shipped() if {"policy", "model"} & sections(p)], ids=lambda p: p.stem)
def test_every_shipped_config_is_checked_within_a_minute(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = time.process_time()
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 0, result.exception
    assert "GiB, from shapes alone" in result.output and "policy: update" in result.output
    assert "times that the host waits for a GPU" in result.output
    assert time.process_time() - begun < 60
    peak = re.search(r"peak of a process: about ([\d.]+) GiB", result.output)
    said = re.search(r"^# ([\d.]+) GiB at the peak of a process", path.read_text("utf-8"), re.MULTILINE)
    assert (said is not None) == ("forwards of the network a picture" in path.read_text("utf-8"))
    assert said is None or float(said[1]) == pytest.approx(float(peak[1]), abs=0.06)
    assert ("missing: prompts" in result.output) == ("questions.sqlite" in path.read_text("utf-8"))
