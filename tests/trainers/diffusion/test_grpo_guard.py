"""GRPO-Guard: its ratio and loss in float64, what the ratio's mean is, and memory that only it pays for."""

import numpy as np
import pytest
import torch

from rewards.trainers.diffusion.methods.base import Batch
from rewards.trainers.diffusion.methods.grpo_guard import normalised_ratio
from rewards.trainers.diffusion.methods.policy_gradient import MEANS, PEAKS
from rewards.trainers.diffusion.optimization import Totals
from rewards.trainers.diffusion.steppers.base import Gaussian, log_probability
from tests.trainers.diffusion.tiny_runs import PROMPTS, new_trainer


def drawn_steps(count, shift):
    """Steps of an old policy with its noise, and a new policy whose mean is `shift` away."""
    generator = torch.Generator().manual_seed(0)
    old, noise, way = torch.randn(3, count, 2, 4, 4, generator=generator)
    std = torch.rand(count, 1, 1, 1, generator=generator) + 0.1
    new, following = Gaussian(old + shift * way, std), old + std * noise
    log_ratio = log_probability(following, new) - log_probability(following, Gaussian(old, std))
    return old, noise, new, following, log_ratio


def test_ratio_is_the_noise_along_the_means_way():
    """Without a log-probability: exp(mean(z (mean_new - mean_old)))."""
    old, noise, new, following, _ = drawn_steps(50, 0.1)
    expected = (noise.double() * (new.mean.double() - old.double())).mean(dim=(1, 2, 3)).exp()
    torch.testing.assert_close(normalised_ratio(new, following, old).double(), expected, atol=1e-5, rtol=1e-5)


def test_mean_log_ratio_is_zero_where_the_plain_one_is_below():
    old, _, new, following, log_ratio = drawn_steps(20_000, 0.1)
    normalised = normalised_ratio(new, following, old).log()
    error = normalised.std() / 20_000**0.5
    assert abs(normalised.mean()) < 3 * error and log_ratio.mean() < -20 * log_ratio.std() / 20_000**0.5


@pytest.mark.parametrize("dynamics", ["sde", "cps"])
def test_loss_of_a_moved_policy_is_the_formula_in_float64(tmp_path, dynamics):
    settings = {"sample_num_steps": 4, "sample_window_size": None, "train_clip_range": 0.05}
    trainer = new_trainer(tmp_path, "grpo_guard", sample_dynamics=dynamics, train_kl_coefficient=None, **settings)
    method, policy = trainer.method, trainer.policy
    method.begin_epoch(0)
    rollout = trainer.collector.epoch(method, policy, 0).rollout
    assert rollout.means.shape == (8, 4, *policy.latent_shape)
    with torch.no_grad():
        for parameter in policy.parameters:
            parameter += 0.5 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    advantages = np.linspace(-2, 2, 8, dtype=np.float32)
    batch = Batch(0, rollout, [PROMPTS[0]] * 8, [{}] * 8, range(8), advantages, advantages)
    rows, steps = torch.arange(8), torch.arange(8) % 3
    found = method._losses(batch, advantages, False, False, Totals(MEANS, PEAKS), rows, steps)

    stepper = method.sampler.stepper
    states, means = rollout.latents.double(), rollout.means.double()
    with torch.no_grad():
        prediction = method.sampler.predict(policy, rollout.latents[rows, steps], steps, rollout.conditioning)
    new = stepper.step(prediction, rollout.latents[rows, steps], steps)
    mean, std = new.mean.double(), new.std.double()
    following, old = states[rows, steps + 1], means[rows, steps]
    log_ratio = (((following - old) ** 2 - (following - mean) ** 2) / (2 * std**2)).mean(dim=(1, 2, 3))
    bias = ((mean - old) ** 2 / (2 * std**2)).mean(dim=(1, 2, 3))
    ratio = ((log_ratio + bias) * std.flatten()).exp()
    weights = torch.from_numpy(advantages).double()
    clipped = torch.maximum(-weights * ratio, -weights * ratio.clamp(0.95, 1.05))
    lengths = stepper.sigmas.double()[:-1] - stepper.sigmas.double()[1:]
    assert (log_ratio.abs() > 1).any() and (ratio - 1).abs().max() > 0.05 > (ratio - 1).abs().min()
    torch.testing.assert_close(found.detach().double(), clipped / lengths[steps], atol=1e-4, rtol=1e-5)


def test_ratio_is_one_before_the_first_update_and_only_guard_keeps_means(tmp_path):
    metrics = new_trainer(tmp_path, "grpo_guard", num_epochs=1, train_batch_size=8).train()
    assert metrics["policy/ratio_before_update"] == 1.0 and metrics["train/optimizer_steps"] == 1
    plain = new_trainer(tmp_path / "plain", "flow_grpo")
    assert plain.collector.epoch(plain.method, plain.policy, 0).rollout.means is None
