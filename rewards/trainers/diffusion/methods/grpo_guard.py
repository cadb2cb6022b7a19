"""GRPO-Guard (Wang et al. 2025, arXiv 2510.22319): Flow-GRPO with ratios that a clip range fits at every step.

The mean log-ratio of a Gaussian step is below 0, by `b = |mean_new - mean_old|^2 / (2 std^2)`, and its spread differs
between steps, so that one clip range cuts bad pictures' steps and lets good ones' run on. RatioNorm adds b and
multiplies by the step's deviation; what is left, `std (log r + b) = z (mean_new - mean_old)` for the noise z that was
drawn, has mean 0. The loss of each step is then divided by its length, which brings the gradients of all noise
levels to one scale. Both are taken, with the clip range 2e-6, as verl-omni takes them
(verl_omni/trainer/diffusion/diffusion_algos.py, `GRPOGuardLoss`); Flow-Factory leaves out the division.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO, FlowGRPOConfig
from rewards.trainers.diffusion.methods.policy_gradient import Taken
from rewards.trainers.diffusion.steppers.base import Gaussian
from rewards.trainers.diffusion.steppers.flow import Flow


@dataclass
class GRPOGuardConfig(FlowGRPOConfig):
    """Settings of Flow-GRPO, with the clip range of normalised ratios.

    Example:
        >>> GRPOGuardConfig().train_clip_range
        2e-06
    """

    train_clip_range: float = 2e-6


class GRPOGuard(FlowGRPO):
    """Flow-GRPO with normalised ratios and reweighted gradients."""

    name = "grpo_guard"
    config_class = GRPOGuardConfig
    keep_means: ClassVar[bool] = True

    def ratio(self, log_ratio: Tensor, new: Gaussian, taken: Taken) -> Tensor:
        """RatioNorm; see :func:`normalised_ratio`."""
        assert taken.mean is not None  # keep_means
        return normalised_ratio(new, taken.following, taken.mean)

    def surrogate(self, ratio: Tensor, advantages: Tensor, taken: Taken) -> Tensor:
        """The clipped loss over the length of the step."""
        stepper = self.sampler.stepper
        assert isinstance(stepper, Flow)  # new_stepper
        return super().surrogate(ratio, advantages, taken) / stepper.lengths(taken.steps)


def normalised_ratio(new: Gaussian, following: Tensor, old_mean: Tensor) -> Tensor:
    """RatioNorm, `exp(std (log r + b))`, as `exp(mean((following - old_mean) (new_mean - old_mean)) / std)`.

    The two are equal; in the second the large terms of short steps have cancelled before anything is rounded.

    Args:
        new: The step as it is now; its deviation, above 0, is the old one's too.
        following: The state that was drawn, (P, C, H, W).
        old_mean: Of the policy that drew it, (P, C, H, W).

    Returns:
        (P,).

    Example:
        >>> import torch
        >>> new = Gaussian(torch.full((1, 1, 1, 1), 2.0), torch.full((1, 1, 1, 1), 0.5))
        >>> normalised_ratio(new, torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)).item()  # log r = -8, b = 8
        1.0
    """
    return (((following - old_mean) * (new.mean - old_mean)).mean(dim=(1, 2, 3)) / new.std.flatten()).exp()
