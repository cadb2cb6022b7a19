"""DDPO's equations against diffusers, scipy, Monte Carlo and hand-computed values."""

import math

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler
from scipy.stats import norm

from rewards.errors import InputError
from rewards.trainers.diffusion.methods.policy_gradient import clipped_loss
from rewards.trainers.diffusion.steppers.base import Gaussian, kl_divergence, log_probability
from rewards.trainers.diffusion.steppers.ddim import ddim_schedule, ddim_step


def random_step(sigma=0.3, seed=0):
    torch.manual_seed(seed)
    mean = torch.randn(3, 2, 4, 4)
    return Gaussian(mean, torch.full((3, 1, 1, 1), sigma)), mean + sigma * torch.randn(3, 2, 4, 4)


@pytest.mark.parametrize("spacing", ["leading", "trailing", "linspace"])
@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("options", [{}, {"set_alpha_to_one": False, "steps_offset": 1}, {"clip_sample": True}])
@pytest.mark.parametrize("eta", [0.0, 0.7, 1.0])
def test_step_is_that_of_diffusers(spacing, prediction_type, options, eta):
    scheduler = DDIMScheduler(
        beta_schedule="scaled_linear",
        prediction_type=prediction_type,
        timestep_spacing=spacing,
        **({"clip_sample": False} | options),
    )
    check_against_diffusers(scheduler, eta)


@pytest.mark.parametrize("prediction_type", ["v_prediction", "sample"])
def test_step_is_that_of_diffusers_at_zero_terminal_snr(prediction_type):
    scheduler = DDIMScheduler(
        prediction_type=prediction_type,
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
    )
    schedule = check_against_diffusers(scheduler, eta=1.0)
    assert schedule.alpha[0] == 0


def check_against_diffusers(scheduler, eta):
    schedule = ddim_schedule(scheduler, 7, eta)
    scheduler.set_timesteps(7)
    assert schedule.timesteps.tolist() == scheduler.timesteps.tolist()
    torch.manual_seed(1)
    latents, prediction, noise = (torch.randn(2, 4, 3, 3) for _ in range(3))
    for k, timestep in enumerate(scheduler.timesteps):
        expected = scheduler.step(prediction, timestep, latents, eta=eta, variance_noise=noise).prev_sample
        a, b, s = (c[k].expand(2) for c in schedule[1:])
        clip = scheduler.config.clip_sample_range if scheduler.config.clip_sample else None
        step = ddim_step(prediction, latents, a, b, s, scheduler.config.prediction_type, clip)
        torch.testing.assert_close(step.mean + step.std * noise, expected, atol=2e-5, rtol=2e-5)
    return schedule


def test_schedule_leaves_the_scheduler_alone_and_refuses_what_cannot_work():
    scheduler = DDIMScheduler()
    scheduler.set_timesteps(3)
    ddim_schedule(scheduler, 10, 1.0)
    assert len(scheduler.timesteps) == 3
    with pytest.raises(InputError, match="eta"):
        ddim_schedule(scheduler, 10, 1.5)
    with pytest.raises(InputError, match="sampling steps"):
        ddim_schedule(scheduler, 1001, 1.0)
    with pytest.raises(InputError, match="zero terminal SNR"):
        ddim_schedule(DDIMScheduler(rescale_betas_zero_snr=True, timestep_spacing="trailing"), 5, 1.0)
    x = torch.zeros(1, 1, 1, 1)
    with pytest.raises(InputError, match="prediction_type"):
        ddim_step(x, x, *torch.ones(3, 1) * 0.5, prediction_type="noise")


def test_half_precision_input_is_computed_in_float32():
    x = torch.randn(2, 4, 3, 3, dtype=torch.bfloat16)
    assert ddim_step(x, x, *torch.full((3, 2), 0.5)).mean.dtype == torch.float32


def test_log_probability_is_the_gaussian_density():
    step, value = random_step()
    expected = norm.logpdf(value.double().numpy(), step.mean.double().numpy(), 0.3).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(log_probability(value, step).numpy(), expected, rtol=1e-5)
    total = log_probability(value, step) * value[0].numel()
    np.testing.assert_allclose(total.numpy(), expected * 32, rtol=1e-5)


def test_deterministic_step_has_ratio_one_and_no_gradient():
    mean = torch.zeros(2, 1, 2, 2, requires_grad=True)
    step = Gaussian(mean, torch.tensor([0.0, 1.0]).view(2, 1, 1, 1))
    value = log_probability(torch.ones(2, 1, 2, 2), step)
    assert value[0] == 0 and math.isclose(value[1].item(), norm.logpdf(1.0), rel_tol=1e-6)
    value.sum().backward()
    assert torch.isfinite(mean.grad).all() and (mean.grad[0] == 0).all() and (mean.grad[1] != 0).all()
    assert kl_divergence(step, Gaussian(mean + 1, step.std)).tolist() == [0.0, 0.5]


def test_clipped_loss_by_hand():
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5, 1.0], requires_grad=True)
    advantages = torch.tensor([2.0, 2.0, -2.0, -2.0, 3.0])
    loss = clipped_loss(ratio, advantages, 0.2)
    # -min(A r, A clip(r, 0.8, 1.2)): the better of the two never counts.
    torch.testing.assert_close(loss.detach(), torch.tensor([-2.4, -1.0, 3.0, 1.6, -3.0]))
    loss.sum().backward()
    assert ratio.grad.tolist() == [0.0, -2.0, 2.0, 0.0, -3.0]


def test_kl_closed_form_equals_monte_carlo():
    torch.manual_seed(0)
    policy = Gaussian(torch.randn(1, 2, 3, 3), torch.full((1, 1, 1, 1), 0.5))
    reference = Gaussian(policy.mean + 0.4 * torch.randn(1, 2, 3, 3), policy.std)
    draws = 200_000
    samples = policy.mean + policy.std * torch.randn(draws, 2, 3, 3)
    difference = log_probability(samples, policy) - log_probability(samples, reference)
    error = difference.std() / math.sqrt(draws)
    assert abs(difference.mean() - kl_divergence(policy, reference)[0]) < 4 * error
    assert error < 0.001
