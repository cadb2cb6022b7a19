"""The equations of DDPO on a DDIM sampler, as pure functions on tensors.

Sources: DDPO = Black et al. 2023, "Training Diffusion Models with Reinforcement Learning" (denoising as a Markov
decision process, section 4.2; DDPO_IS with clipping, section 4.3); DDIM = Song et al. 2021, "Denoising Diffusion
Implicit Models", eq. 12 (the step) and eq. 16 (its variance).

Shapes: N pairs of a sample and a step, C latent channels, H x W latent pixels, T sampling steps.
"""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rewards.errors import InputError


class DDIMSchedule(NamedTuple):
    """What every step of a DDIM trajectory needs; float32 and int64 tensors on the CPU, shape (T,), noisiest first.

    Attributes:
        timesteps: The training timestep that the network is called with.
        alpha: Cumulative product of alphas at that timestep (the paper's alpha_t; 0 for zero terminal SNR).
        alpha_previous: The same at the next, less noisy, timestep.
        sigma: Standard deviation of the step, eta times DDIM eq. 16. 0 makes the step deterministic.
    """

    timesteps: Tensor
    alpha: Tensor
    alpha_previous: Tensor
    sigma: Tensor


class Gaussian(NamedTuple):
    """The distribution of one denoising step: mean (N, C, H, W) and standard deviation (N, 1, 1, 1)."""

    mean: Tensor
    std: Tensor


def ddim_schedule(scheduler: Any, num_steps: int, eta: float) -> DDIMSchedule:
    """The coefficients of ``num_steps`` DDIM steps, exactly as ``DDIMScheduler.step`` of diffusers takes them.

    Args:
        scheduler: A ``diffusers.DDIMScheduler``: any timestep spacing, any betas, with or without zero terminal SNR.
            It is
            only read: its own ``timesteps`` are left as they were.
        num_steps: Number of denoising steps T, at least 1.
        eta: 0 (deterministic DDIM) to 1 (as stochastic as DDPM).

    Returns:
        The schedule.

    Raises:
        InputError: eta outside [0, 1], too many steps, or an epsilon prediction at zero terminal SNR, where x_0 cannot
            be recovered from the predicted noise (the division by sqrt(alpha) = 0).

    Example:
        >>> from diffusers import DDIMScheduler
        >>> schedule = ddim_schedule(DDIMScheduler(set_alpha_to_one=True), num_steps=4, eta=1.0)
        >>> schedule.timesteps.tolist(), round(schedule.sigma[-1].item(), 3)
        ([750, 500, 250, 0], 0.0)
    """
    if not 0 <= eta <= 1:
        raise InputError(f"eta must lie in [0, 1], got {eta}")
    train_steps = scheduler.config.num_train_timesteps
    if not 1 <= num_steps <= train_steps:
        raise InputError(f"the number of sampling steps must lie in [1, {train_steps}], got {num_steps}")
    own = copy.copy(scheduler)  # from_config() would undo the steps_offset that pipelines correct in old configurations
    own.set_timesteps(num_steps)
    timesteps = own.timesteps.to("cpu", torch.int64)
    previous = timesteps - train_steps // num_steps
    cumulative = own.alphas_cumprod.to("cpu", torch.float32)
    alpha = cumulative[timesteps]
    final = torch.as_tensor(own.final_alpha_cumprod, dtype=torch.float32)
    alpha_previous = torch.where(previous >= 0, cumulative[previous.clamp(min=0)], final)
    if scheduler.config.prediction_type == "epsilon" and bool((alpha <= 0).any()):
        raise InputError(
            "prediction_type 'epsilon' cannot be sampled from zero terminal SNR; use 'v_prediction' or 'sample', "
            "or a scheduler with rescale_betas_zero_snr=False"
        )
    # At timestep 0 a schedule may have 1 - alpha = 0 (0 / 0) or rounding below zero: both mean a step without noise.
    variance = (1 - alpha_previous) / (1 - alpha).clamp(min=1e-20) * (1 - alpha / alpha_previous)
    return DDIMSchedule(timesteps, alpha, alpha_previous, eta * variance.clamp(min=0).sqrt())


def ddim_step(
    prediction: Tensor,
    latents: Tensor,
    alpha: Tensor,
    alpha_previous: Tensor,
    sigma: Tensor,
    prediction_type: str = "epsilon",
    clip_sample_range: float | None = None,
) -> Gaussian:
    """p(x_{t-1} | x_t): the Gaussian of one denoising step (DDIM eq. 12; the policy of DDPO, section 4.2).

    Args:
        prediction: Output of the network, (N, C, H, W).
        latents: x_t, (N, C, H, W).
        alpha: Cumulative alpha at t, (N,).
        alpha_previous: Cumulative alpha at the next timestep, (N,).
        sigma: Standard deviation of the step, (N,).
        prediction_type: What the network predicts: ``epsilon``, ``v_prediction`` or ``sample`` (x_0).
        clip_sample_range: Clamp the predicted x_0 to +- this value (schedulers with ``clip_sample``).

    Returns:
        Mean and standard deviation in float32. The standard deviation may be 0: the step is then deterministic.

    Raises:
        InputError: An unknown prediction type.

    Example:
        >>> x, e = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)
        >>> a, b, s = torch.tensor([0.25]), torch.tensor([0.64]), torch.tensor([0.0])
        >>> round(ddim_step(e, x, a, b, s).mean.item(), 4)  # sqrt(0.64) * (1 / sqrt(0.25))
        1.6
    """
    prediction, latents = prediction.float(), latents.float()
    alpha, alpha_previous, sigma = (c.to(latents.device).view(-1, 1, 1, 1) for c in (alpha, alpha_previous, sigma))
    signal, noise = alpha.sqrt(), (1 - alpha).sqrt()
    if prediction_type == "epsilon":
        original, epsilon = (latents - noise * prediction) / signal, prediction
    elif prediction_type == "sample":
        original, epsilon = prediction, (latents - signal * prediction) / noise.clamp(min=1e-10)
    elif prediction_type == "v_prediction":
        original, epsilon = signal * latents - noise * prediction, signal * prediction + noise * latents
    else:
        raise InputError(f"prediction_type must be epsilon, v_prediction or sample, got {prediction_type!r}")
    if clip_sample_range is not None:
        original = original.clamp(-clip_sample_range, clip_sample_range)
    direction = (1 - alpha_previous - sigma**2).clamp(min=0).sqrt()
    return Gaussian(alpha_previous.sqrt() * original + direction * epsilon, sigma)


def log_probability(value: Tensor, step: Gaussian) -> Tensor:
    """log N(value; mean, std^2), averaged over the latent dimensions, as the published DDPO code takes it.

    The average (and not the sum) keeps the importance ratio near 1 for any latent size, so that one clip range serves
    pictures of any size; the sum is the average times C * H * W.

    Args:
        value: x_{t-1}, (N, C, H, W).
        step: The distribution of the step.

    Returns:
        (N,) float32. A deterministic step (std = 0) has no density and gives 0: ratio 1 and no gradient, where the
        formula would give NaN (DDIM's last step).
    """
    deterministic = step.std <= 0
    std = torch.where(deterministic, torch.ones_like(step.std), step.std)
    density = -((value.float() - step.mean) ** 2) / (2 * std**2) - std.log() - 0.5 * math.log(2 * math.pi)
    return torch.where(deterministic, torch.zeros_like(density), density).mean(dim=(1, 2, 3))


def clipped_loss(ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """The clipped importance-sampling objective, to be minimised (DDPO section 4.3, after PPO eq. 7).

    Args:
        ratio: p_new / p_old for each pair, (N,).
        advantages: (N,).
        clip_range: The ratio is clipped to [1 - clip_range, 1 + clip_range].

    Returns:
        (N,): ``-min(A r, A clip(r))``, so that no gradient pushes a ratio further out of the range.

    Example:
        >>> clipped_loss(torch.tensor([1.5, 0.5]), torch.tensor([1.0, 1.0]), 0.1).tolist()
        [-1.100000023841858, -0.5]
    """
    return -torch.minimum(advantages * ratio, advantages * ratio.clamp(1 - clip_range, 1 + clip_range))


def kl_divergence(policy: Gaussian, reference: Gaussian) -> Tensor:
    """KL(policy || reference) of two steps with the same deviation, in closed form, averaged over latent dimensions.

    For equal variances ``KL = (mean_1 - mean_2)^2 / (2 std^2)``. The average over dimensions matches
    :func:`log_probability`.

    Args:
        policy: The step of the trained model.
        reference: The step of the base model, with the same deviation.

    Returns:
        (N,) float32, 0 for deterministic steps.
    """
    deterministic = policy.std <= 0
    std = torch.where(deterministic, torch.ones_like(policy.std), policy.std)
    divergence = (policy.mean - reference.mean) ** 2 / (2 * std**2)
    return torch.where(deterministic, torch.zeros_like(divergence), divergence).mean(dim=(1, 2, 3))
