"""Advantage weighted matching: its weight by hand, targets that recover x_0, and whole runs."""

import pytest
import torch

from rewards.trainers.diffusion.methods.awm import matching_log_probability
from tests.trainers.diffusion.tiny_diffusion import four_steps
from tests.trainers.diffusion.tiny_runs import PIPELINES, new_trainer, weights


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
    stepper = four_steps(kind)
    clean, noise = torch.randn(2, 4, 2, 3, 3)
    steps = torch.arange(4)
    noisy = stepper.noised(clean, noise, steps)
    again = stepper.clean(stepper.target(clean, noise, steps), noisy, steps)
    torch.testing.assert_close(again, clean, atol=1e-3, rtol=1e-3)
    assert (stepper.level(steps).diff() < 0).all()


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_ratio_is_one_before_the_first_update(tmp_path, pipeline):
    trainer = new_trainer(tmp_path, "awm", pipeline, num_epochs=1, train_batch_size=8)
    before = weights(trainer)
    metrics = trainer.train()
    assert metrics["policy/ratio_before_update"] == 1.0 and metrics["train/optimizer_steps"] == 1
    assert metrics["policy/distance_to_average"] == 0.0 and metrics["policy/kl"] < 1e-10
    assert not torch.equal(before, weights(trainer))
