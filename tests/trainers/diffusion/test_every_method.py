"""What holds for every method: resuming, batches, steps that are not finite, adapters in plain diffusers."""

import math

import pytest
import torch

from rewards.runs.metrics import read_metrics
from rewards.runs.summary import gains
from rewards.trainers.diffusion.randomness import Noise
from tests.trainers.diffusion.tiny_runs import (
    METHODS,
    PROMPTS,
    new_trainer,
    pipeline_for,
    poison,
    same_metrics,
    weights,
)

LAYERS = ["to_q", "to_k", "to_v", "to_out.0", "proj_in", "proj_out", "conv1", "conv2"]


@pytest.mark.parametrize("method", METHODS)
def test_resumed_run_equals_the_uninterrupted_one(tmp_path, method):
    options = {"num_epochs": 4, "save_freq": 2}
    whole = new_trainer(tmp_path / "whole", method, **options)
    whole.train()
    new_trainer(tmp_path / "cut", method, **(options | {"num_epochs": 2})).train()
    resumed = new_trainer(tmp_path / "cut", method, resume=True, **options)
    assert resumed.step == 2
    resumed.train()
    rows = [[r for r in read_metrics(tmp_path / n / "run") if "train/loss" in r] for n in ("whole", "cut")]
    same_metrics(*rows, tolerance=1e-6)
    torch.testing.assert_close(weights(whole), weights(resumed), atol=1e-7, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_batches_change_nothing_but_rounding(tmp_path, method):
    few = {"sample_batch_size": 4, "sample_num_batches_per_epoch": 2, "train_batch_size": 2}
    rows = []
    for name, changes in (("a", {}), ("b", few | {"train_gradient_accumulation_steps": 2})):
        new_trainer(tmp_path / name, method, **changes).train()
        rows.append(read_metrics(tmp_path / name / "run"))
    same_metrics(*rows, tolerance=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_step_that_is_not_finite_is_skipped_and_counted(tmp_path, method):
    trainer = new_trainer(tmp_path, method, train_batch_size=4)
    poison(trainer, calls={1})
    trainer.train()
    first, second = [row for row in read_metrics(tmp_path / "run") if "train/skipped_steps" in row]
    assert (first["train/skipped_steps"], second["train/skipped_steps"]) == (1, 0)
    assert second["train/optimizer_steps"] == first["train/optimizer_steps"] + 1 == 2
    assert math.isfinite(second["train/loss"]) and bool(weights(trainer).isfinite().all())


@pytest.mark.parametrize("method", METHODS)
def test_adapter_loads_in_plain_diffusers_and_draws_as_the_policy(tmp_path, method):
    trainer = new_trainer(tmp_path, method, train_learning_rate=1e-2, lora_rank=4, lora_alpha=8)
    trainer.train()
    fresh = pipeline_for(method)
    options = {"latents": Noise(0, "x", range(2), trainer.policy.latent_shape).draw(), "output_type": "pt"}
    options |= {"num_inference_steps": 3, "guidance_scale": 1.0, "height": 8, "width": 8}
    base = fresh(PROMPTS[:2], **options).images
    fresh.load_lora_weights(tmp_path / "run" / "adapter")
    loaded, trained = (pipe(PROMPTS[:2], **options).images for pipe in (fresh, trainer.policy.pipeline))
    torch.testing.assert_close(loaded, trained, atol=1e-5, rtol=0)
    assert (loaded - base).abs().max() > 1e-4


@pytest.mark.parametrize("method", ["nft", "awm"])  # the others: test_trainer.py, test_reward_gradient.py
def test_nft_and_awm_learn_redness(tmp_path, method):
    trainer = new_trainer(
        tmp_path,
        method,
        eval_prompts=["a blue square", "a circle"],
        num_epochs=6,
        sample_batch_size=32,
        sample_num_images_per_prompt=8,
        train_batch_size=16,
        eval_num_images_per_prompt=16,
        lora_target_modules=LAYERS,
        **({"nft_old_decay": 0.001} if method == "nft" else {}),
    )
    trainer.train()
    gain = gains(*trainer.evaluation_log.ends())["overall"]
    assert gain.gain > 0.001 and gain.low > 0, gain
