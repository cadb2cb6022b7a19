"""DDIM (Song et al. 2021, "Denoising Diffusion Implicit Models"): eq. 12 (the step) and eq. 16 (its variance).

With eta above 0 the steps are Gaussian, and denoising is the Markov decision process of DDPO (Black et al. 2023,
section 4.2). Shapes: N pairs of a sample and a step, C latent channels, H x W latent pixels, T sampling steps.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rewards.errors import InputError
from rewards.trainers.diffusion.steppers.base import Gaussian, Stepper, coefficients


class DDIM(Stepper):
    """DDIM steps with the coefficients of a diffusers scheduler.

    Args:
        scheduler: A `DDIMScheduler`: any timestep spacing, betas and prediction type; it is only read.
        num_steps: T.
        eta: 0 (deterministic) to 1 (as stochastic as DDPM).

    Raises:
        InputError: As :func:`ddim_schedule`.
    """

    def __init__(self, scheduler: Any, num_steps: int, eta: float) -> None:
        self.schedule = ddim_schedule(scheduler, num_steps, eta)
        self.timesteps = self.schedule.timesteps
        self.stochastic = self.schedule.sigma > 0
        self.initial_scale = float(scheduler.init_noise_sigma)
        config = scheduler.config
        self.prediction_type: str = config.prediction_type
        self.clip_range: float | None = config.clip_sample_range if config.clip_sample else None

    def step(self, prediction: Tensor, latents: Tensor, steps: Tensor) -> Gaussian:
        """DDIM eq. 12; see :func:`ddim_step`."""
        at = steps.to(self.timesteps.device)
        alpha, previous, sigma = (values[at] for values in self.schedule[1:])
        return ddim_step(prediction, latents, alpha, previous, sigma, self.prediction_type, self.clip_range)

    def clean(self, prediction: Tensor, latents: Tensor, steps: Tensor) -> Tensor:
        """The x_0 in DDIM eq. 12."""
        alpha = coefficients(self.schedule.alpha, steps, latents)
        original, _ = clean_and_noise(prediction.float(), latents.float(), alpha, self.prediction_type)
        return original if self.clip_range is None else original.clamp(-self.clip_range, self.clip_range)

    def noised(self, clean: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """x_t = sqrt(alpha_t) x_0 + sqrt(1 - alpha_t) epsilon (DDIM eq. 4)."""
        alpha = coefficients(self.schedule.alpha, steps, clean)
        return alpha.sqrt() * clean.float() + (1 - alpha).sqrt() * noise.float()

    def target(self, clean: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """epsilon, x_0, or v = sqrt(alpha) epsilon - sqrt(1 - alpha) x_0."""
        if self.prediction_type == "epsilon":
            return noise.float()
        if self.prediction_type == "sample":
            return clean.float()
        alpha = coefficients(self.schedule.alpha, steps, clean)
        return alpha.sqrt() * noise.float() - (1 - alpha).sqrt() * clean.float()

    def level(self, steps: Tensor) -> Tensor:
        """sqrt(1 - alpha)."""
        return (1 - self.schedule.alpha[steps.to(self.timesteps.device)]).sqrt()

    def clean_of(self, following: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """x_0 = (x_t' - sqrt(1 - alpha_t') epsilon) / sqrt(alpha_t')."""
        alpha = coefficients(self.schedule.alpha_previous, steps, following)
        return (following.float() - (1 - alpha).sqrt() * noise.float()) / alpha.sqrt()


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


def ddim_schedule(scheduler: Any, num_steps: int, eta: float) -> DDIMSchedule:
    """The coefficients of `num_steps` DDIM steps, exactly as `DDIMScheduler.step` of diffusers takes them.

    Args:
        scheduler: A `diffusers.DDIMScheduler`: any timestep spacing, any betas, with or without zero terminal SNR. It
            is only read: its own `timesteps` are left as they were.
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
        prediction_type: What the network predicts: `epsilon`, `v_prediction` or `sample` (x_0).
        clip_sample_range: Clamp the predicted x_0 to +- this value (schedulers with `clip_sample`).

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
    original, epsilon = clean_and_noise(prediction, latents, alpha, prediction_type)
    if clip_sample_range is not None:
        original = original.clamp(-clip_sample_range, clip_sample_range)
    direction = (1 - alpha_previous - sigma**2).clamp(min=0).sqrt()
    return Gaussian(alpha_previous.sqrt() * original + direction * epsilon, sigma)


def clean_and_noise(prediction: Tensor, latents: Tensor, alpha: Tensor, prediction_type: str) -> tuple[Tensor, Tensor]:
    """The x_0 and epsilon that a network's output stands for, given x_t = sqrt(alpha) x_0 + sqrt(1 - alpha) epsilon.

    Args:
        prediction: Output of the network.
        latents: x_t.
        alpha: Cumulative alpha, of a shape that broadcasts with them.
        prediction_type: `epsilon`, `v_prediction` or `sample`.

    Raises:
        InputError: An unknown prediction type.
    """
    signal, noise = alpha.sqrt(), (1 - alpha).sqrt()
    if prediction_type == "epsilon":
        return (latents - noise * prediction) / signal, prediction
    if prediction_type == "sample":
        return prediction, (latents - signal * prediction) / noise.clamp(min=1e-10)
    if prediction_type == "v_prediction":
        return signal * latents - noise * prediction, signal * prediction + noise * latents
    raise InputError(f"prediction_type must be epsilon, v_prediction or sample, got {prediction_type!r}")
