"""Advantage weighted matching: its weight by hand, targets that recover x_0, and whole runs."""

import pytest
import torch
from accelerate.state import AcceleratorState
from diffusers import DDIMScheduler

from rewards.runs.metrics import read_metrics
from rewards.runs.summary import gains
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods.awm import AWM, AWMConfig, matching_log_probability
from rewards.trainers.diffusion.steppers.ddim import DDIM
from rewards.trainers.diffusion.steppers.flow import Flow
from tests.trainers.diffusion.test_trainer import PIPELINES, PROMPTS, same_metrics, weights
from tests.trainers.diffusion.tiny_diffusion import redness


@pytest.fixture(autouse=True)
def fresh_accelerate_state():
    AcceleratorState._reset_state(reset_partial_state=True)


def new_trainer(folder, pipeline="zero_snr", **changes):
    values = {
        "output_dir": str(folder / "run"),
        "num_epochs": 2,
        "sample_num_steps": 3,
        "sample_batch_size": 8,
        "sample_num_batches_per_epoch": 1,
        "sample_num_images_per_prompt": 4,
        "train_batch_size": 4,
        "train_learning_rate": 5e-3,
        "train_timestep_fraction": 1.0,
        "save_freq": 0,
        "eval_freq": 0,
    }
    method = AWM(AWMConfig(**(values | changes)))
    return DiffusionTrainer(PIPELINES[pipeline](), redness, PROMPTS, method, eval_prompts=["a blue square", "a circle"])


def test_log_probability_is_the_weight_in_float64():
    torch.manual_seed(0)
    prediction, target = torch.randn(2, 3, 2, 4, 4)
    level = torch.tensor([0.9, 0.5, 0.1])
    error = (prediction.double() - target.double()).square().mean(dim=(1, 2, 3))
    expected = -level.double() / 0.25 * ((error + 1e-10) ** 0.25 - 1e-10**0.25)
    found = matching_log_probability(prediction, target, level, 0.25)
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-6)
    assert matching_log_probability(target, target, level, 0.25).abs().max() < 1e-8


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample", "flow"])
def test_perfect_prediction_recovers_the_picture(kind):
    if kind == "flow":
        sigmas = torch.linspace(1, 0, 5)
        stepper = Flow(1000 * sigmas[:-1], sigmas)
    else:
        stepper = DDIM(DDIMScheduler(prediction_type=kind, clip_sample=False), 4, 0.0)
    clean, noise = torch.randn(2, 4, 2, 3, 3)
    steps = torch.arange(4)
    noisy = stepper.noised(clean, noise, steps)
    again = stepper.clean(stepper.target(clean, noise, steps), noisy, steps)
    torch.testing.assert_close(again, clean, atol=1e-3, rtol=1e-3)
    assert (stepper.level(steps).diff() < 0).all()


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_ratio_is_one_before_the_first_update(tmp_path, pipeline):
    trainer = new_trainer(tmp_path, pipeline, num_epochs=1, train_batch_size=8)
    before = weights(trainer)
    metrics = trainer.train()
    assert metrics["policy/ratio_before_update"] == 1.0 and metrics["train/optimizer_steps"] == 1
    assert metrics["policy/distance_to_average"] == 0.0 and metrics["policy/kl"] < 1e-10
    assert not torch.equal(before, weights(trainer))


def test_a_simple_reward_is_learnt(tmp_path):
    trainer = new_trainer(
        tmp_path,
        num_epochs=6,
        sample_batch_size=32,
        sample_num_images_per_prompt=8,
        train_batch_size=16,
        eval_num_images_per_prompt=16,
        lora_target_modules=["to_q", "to_k", "to_v", "to_out.0", "proj_in", "proj_out", "conv1", "conv2"],
    )
    trainer.train()
    gain = gains(*trainer.evaluation_log.ends())["overall"]
    assert gain.gain > 0.001 and gain.low > 0, gain


def test_resumed_run_equals_the_uninterrupted_one(tmp_path):
    options = {"num_epochs": 4, "save_freq": 2}
    whole = new_trainer(tmp_path / "whole", **options)
    whole.train()
    new_trainer(tmp_path / "cut", **(options | {"num_epochs": 2})).train()
    resumed = new_trainer(tmp_path / "cut", resume=True, **options)
    resumed.train()
    rows = [[r for r in read_metrics(tmp_path / n / "run") if "train/loss" in r] for n in ("whole", "cut")]
    same_metrics(*rows, tolerance=1e-6)
    torch.testing.assert_close(weights(whole), weights(resumed), atol=1e-7, rtol=0)
