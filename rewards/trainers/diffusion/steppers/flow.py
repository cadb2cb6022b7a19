"""Samplers of flow matching (rectified flow): x_s = (1 - s) x_0 + s epsilon, v = epsilon - x_0, s from 1 down to 0.

The deterministic step is Euler's, as in `FlowMatchEulerDiscreteScheduler`. Three ways to make a step Gaussian: Flow-SDE
(Flow-GRPO, Liu et al. 2025, arXiv 2505.05470, eq. 9) and Dance-SDE (DanceGRPO, Xue et al. 2025, arXiv 2505.07818) keep
the flow's marginals as steps shrink; CPS (coefficients-preserving sampling, Wang and Yu 2025, arXiv 2509.05952) keeps
the shares of picture and noise at every step. The last step is always deterministic: noise that is added there stays in
the picture (with 10 equal steps Flow-SDE would leave 0.2), and a judge would see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rewards.errors import InputError
from rewards.trainers.diffusion.steppers.base import Gaussian, Stepper, coefficients

Dynamics = Literal["sde", "dance", "cps"]


class Flow(Stepper):
    """Steps of flow matching, Gaussian at the chosen ones and Euler's elsewhere.

    Args:
        timesteps: What the network is called with, (T,).
        sigmas: s before each step and after the last, (T + 1,), falling from 1 to 0.
        noise: How random the Gaussian steps are: `a` of Flow-SDE and CPS, `eta` of Dance; 0 makes all deterministic.
        dynamics: "sde", "dance" or "cps".
        window: Indices of the Gaussian steps; None takes all but the last.

    Raises:
        InputError: An unknown kind, a negative noise, or a window outside the steps or on the last one.
    """

    def __init__(
        self,
        timesteps: Tensor,
        sigmas: Tensor,
        noise: float = 0.0,
        dynamics: Dynamics = "sde",
        window: Sequence[int] | None = None,
    ) -> None:
        if dynamics not in ("sde", "dance", "cps"):
            raise InputError(f"dynamics must be sde, dance or cps, got {dynamics!r}")
        if not noise >= 0 or (dynamics == "cps" and noise > 1):
            raise InputError(f"the noise of {dynamics} steps must be at least 0 (at most 1 for cps), got {noise}")
        last = len(timesteps) - 1
        chosen = range(last) if window is None else window
        if any(not 0 <= step < last for step in chosen):
            raise InputError(f"stochastic steps must lie in [0, {last - 1}] (the last one is deterministic): {window}")
        self.timesteps = timesteps.cpu()
        self.sigmas = sigmas.to("cpu", torch.float32)
        self.noise = noise
        self.dynamics = dynamics
        self.stochastic = torch.zeros(len(timesteps), dtype=torch.bool)
        if noise > 0:
            self.stochastic[list(chosen)] = True
        self._noisy = self.stochastic.clone()
        self._second_sigma = float(self.sigmas[1])

    def step(self, prediction: Tensor, latents: Tensor, steps: Tensor) -> Gaussian:
        """The Gaussian of the dynamics at stochastic steps, Euler's step with deviation 0 elsewhere."""
        velocity, latents = prediction.float(), latents.float()
        s, following = coefficients(self.sigmas, steps, latents), coefficients(self.sigmas, steps + 1, latents)
        euler = latents + (following - s) * velocity
        if self.noise == 0:
            return Gaussian(euler, torch.zeros_like(s))
        noisy = self._gaussian(velocity, latents, s, following)
        random = coefficients(self._noisy, steps, latents)
        return Gaussian(torch.where(random, noisy.mean, euler), torch.where(random, noisy.std, torch.zeros_like(s)))

    def _gaussian(self, velocity: Tensor, latents: Tensor, s: Tensor, following: Tensor) -> Gaussian:
        if self.dynamics == "sde":
            return flow_sde(velocity, latents, s, following, self.noise, self._second_sigma)
        return (dance_sde if self.dynamics == "dance" else cps)(velocity, latents, s, following, self.noise)

    def clean(self, prediction: Tensor, latents: Tensor, steps: Tensor) -> Tensor:
        """x_0 = x_s - s v."""
        return latents.float() - coefficients(self.sigmas, steps, latents) * prediction.float()

    def noised(self, clean: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """x_s = (1 - s) x_0 + s epsilon."""
        s = coefficients(self.sigmas, steps, clean)
        return (1 - s) * clean.float() + s * noise.float()

    def target(self, clean: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """v = epsilon - x_0."""
        return noise.float() - clean.float()

    def level(self, steps: Tensor) -> Tensor:
        """s."""
        return self.sigmas[steps.to(self.sigmas.device)]

    def clean_of(self, following: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """x_0 = (x_s' - s' epsilon) / (1 - s')."""
        s = coefficients(self.sigmas, steps + 1, following)
        return (following.float() - s * noise.float()) / (1 - s)

    def lengths(self, steps: Tensor) -> Tensor:
        """s - s' of these steps, (N,) float32 where the schedule is."""
        at = steps.to(self.sigmas.device)
        return self.sigmas[at] - self.sigmas[at + 1]


def flow_sde(
    velocity: Tensor, latents: Tensor, s: Tensor, following: Tensor, noise: float, first_following: float
) -> Gaussian:
    """Flow-GRPO eq. 9: `sd = a sqrt(s / (1 - s))`, mean `x (1 + sd^2 dt / 2s) + v (1 + sd^2 (1 - s) / 2s) dt`.

    Args:
        velocity, latents: (N, C, H, W).
        s, following: Before and after the step, (N, 1, 1, 1).
        noise: a.
        first_following: The second s of the schedule, which stands for s = 1 in sd (as in the reference
            implementation): 1 / (1 - s) is infinite there.
    """
    dt = following - s
    finite = torch.where(s >= 1, torch.full_like(s, first_following), s)
    sd = noise * (s / (1 - finite)).sqrt()
    mean = latents * (1 + sd**2 / (2 * s) * dt) + velocity * (1 + sd**2 * (1 - s) / (2 * s)) * dt
    return Gaussian(mean, sd * (-dt).sqrt())


def dance_sde(velocity: Tensor, latents: Tensor, s: Tensor, following: Tensor, noise: float) -> Gaussian:
    """DanceGRPO's step with constant deviation eta: mean `x + (v + eta^2 / 2 (x - (1 - s) x_0) / s^2) dt`."""
    dt = following - s
    original = latents - s * velocity
    drift = velocity + noise**2 / 2 * (latents - (1 - s) * original) / s**2
    return Gaussian(latents + drift * dt, noise * (-dt).sqrt())


def cps(velocity: Tensor, latents: Tensor, s: Tensor, following: Tensor, noise: float) -> Gaussian:
    """Coefficients-preserving sampling: `sd = s' sin(a pi / 2)`, mean `(1 - s') x_0 + sqrt(s'^2 - sd^2) epsilon`."""
    sd = following * math.sin(noise * math.pi / 2)
    original, epsilon = latents - s * velocity, latents + (1 - s) * velocity
    return Gaussian((1 - following) * original + (following**2 - sd**2).clamp(min=0).sqrt() * epsilon, sd)
