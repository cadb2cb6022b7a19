"""What every sampler gives: its timesteps, the Gaussian of a step, the x_0 that is predicted, the forward process."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


class Gaussian(NamedTuple):
    """The distribution of one denoising step: mean (N, C, H, W) and standard deviation (N, 1, 1, 1), float32."""

    mean: Tensor
    std: Tensor


class Stepper(ABC):
    """T denoising steps of one sampler, noisiest first. All arithmetic is in float32, whatever the network's precision.

    Attributes:
        timesteps: What the network is called with, (T,).
        stochastic: Which steps have a density, (T,) bool on the CPU.
        initial_scale: Standard deviation of the noise that sampling starts from.
    """

    timesteps: Tensor
    stochastic: Tensor
    initial_scale: float = 1.0

    def __len__(self) -> int:
        return len(self.timesteps)

    def to(self, device: torch.device) -> Self:
        """The same steps with their schedule on a device, where a step then needs nothing of the host."""
        moved = copy.copy(self)
        for name, value in vars(self).items():
            if name != "stochastic":
                setattr(moved, name, tree_map_only(Tensor, lambda tensor: tensor.to(device), value))
        return moved

    @abstractmethod
    def step(self, prediction: Tensor, latents: Tensor, steps: Tensor) -> Gaussian:
        """p(next state | latents) for N pairs of a state and a step.

        Args:
            prediction: Output of the network, (N, C, H, W).
            latents: The states, (N, C, H, W).
            steps: Index of each pair's step, (N,) int64 where the schedule is.
        """

    @abstractmethod
    def clean(self, prediction: Tensor, latents: Tensor, steps: Tensor) -> Tensor:
        """The clean latents x_0 that the network predicts, (N, C, H, W) float32; arguments as :meth:`step`."""

    @abstractmethod
    def noised(self, clean: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """The forward process: clean latents brought to the noise of these steps, (N, C, H, W) float32."""

    @abstractmethod
    def target(self, clean: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """What the network should predict for :meth:`noised` latents, in its own parametrisation, (N, C, H, W)."""

    @abstractmethod
    def level(self, steps: Tensor) -> Tensor:
        """Deviation of the noise at these steps, in [0, 1], (N,) float32 where the schedule is."""

    @abstractmethod
    def clean_of(self, following: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
        """The clean latents of states that these steps led to, given the noise in them, (N, C, H, W) float32."""


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


def kl_divergence(policy: Gaussian, reference: Gaussian) -> Tensor:
    """KL(policy || reference) of two steps with the same deviation, in closed form, averaged over latent dimensions.

    For equal variances `KL = (mean_1 - mean_2)^2 / (2 std^2)`. The average over dimensions matches
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


def coefficients(values: Tensor, steps: Tensor, like: Tensor) -> Tensor:
    """A schedule's values at some steps, (N, 1, 1, 1) on the device of `like`."""
    return values[steps.to(values.device)].to(like.device).view(-1, 1, 1, 1)
