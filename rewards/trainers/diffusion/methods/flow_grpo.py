"""Flow-GRPO (Liu et al. 2025, arXiv 2505.05470): clipped policy gradient on a flow made stochastic.

With a window of Gaussian steps that slides or is drawn at random it is MixGRPO (Li et al. 2025, arXiv 2507.21802).
Defaults are those of the reference implementation for Stable Diffusion 3.5 medium (yifan123/flow_grpo, config/grpo.py):
10 steps, guidance 4.5, a = 0.7, clip range 1e-4, advantages clipped to 5, KL 0.04. Three things differ: the KL is the
closed form, with the step's whole variance (the reference leaves out `|dt|`); the gradient passes both halves of a
guided prediction (the reference detaches the unconditional one); and advantages are divided by each prompt's own
deviation unless `advantage_deviation` is "epoch". Everything else is equal to the reference's own code
(`benchmarks/methods_upstream.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from rewards.errors import InputError
from rewards.runs.config import check_number
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.policy_gradient import PolicyGradient
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.policy.transformer import TransformerPolicy
from rewards.trainers.diffusion.randomness import derived_seed
from rewards.trainers.diffusion.rollout import Sampler
from rewards.trainers.diffusion.steppers.base import Gaussian
from rewards.trainers.diffusion.steppers.flow import Dynamics, Flow


@dataclass
class FlowGRPOConfig(DiffusionConfig):
    """Settings of Flow-GRPO beside those of :class:`DiffusionConfig`.

    Attributes:
        sample_num_steps, sample_guidance_scale, train_kl_coefficient: As there.
        sample_noise_level: `a` of Flow-SDE and CPS, `eta` of Dance.
        sample_dynamics: "sde", "dance" or "cps" (see :mod:`rewards.trainers.diffusion.steppers.flow`).
        sample_window_size: How many steps are Gaussian, and trained on; None takes all but the last.
        sample_window: Where the window lies: "fixed" at the start, "sliding" by one step every
            `sample_window_epochs`, or "random" in every epoch.
        sample_window_epochs: See there.
        train_timestep_fraction: Share of the Gaussian steps that each sample is trained on.
        train_clip_range: Clip range of the importance ratio.
        train_kl_kind: "exact": the KL of the two Gaussians; "means": the mean squared distance of their means;
            "velocity": of the two predictions.

    Example:
        >>> FlowGRPOConfig().sample_noise_level
        0.7
    """

    sample_num_steps: int = 10
    sample_guidance_scale: float = 4.5
    sample_noise_level: float = 0.7
    sample_dynamics: Dynamics = "sde"
    sample_window_size: int | None = None
    sample_window: Literal["fixed", "sliding", "random"] = "fixed"
    sample_window_epochs: int = 1
    train_timestep_fraction: float = 1.0
    train_clip_range: float = 1e-4
    train_kl_coefficient: float | None = 0.04
    train_kl_kind: Literal["exact", "means", "velocity"] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("sample_noise_level", self.sample_noise_level, above=0)
        check_number("sample_window_size", self.sample_window_size, at_least=1, at_most=self.sample_num_steps - 1)
        check_number("sample_window_epochs", self.sample_window_epochs, at_least=1)
        check_number("train_clip_range", self.train_clip_range, above=0)
        check_number("train_timestep_fraction", self.train_timestep_fraction, above=0, at_most=1)


class FlowGRPO(PolicyGradient[FlowGRPOConfig]):
    """Flow-GRPO on pipelines of flow matching."""

    name = "flow_grpo"
    config_class = FlowGRPOConfig

    def __init__(self, args: FlowGRPOConfig) -> None:
        super().__init__(args)
        self.clip_range = args.train_clip_range
        self.timestep_fraction = args.train_timestep_fraction

    def new_stepper(self, policy: Policy) -> Flow:
        """The first epoch's.

        Raises:
            InputError: The pipeline is none of flow matching.
        """
        return self._stepper_of(policy, 0)

    def begin_epoch(self, epoch: int) -> None:
        """Move the window."""
        policy = self.tools.policy
        self.sampler = Sampler(self._stepper_of(policy, epoch).to(policy.device), self.args.sample_guidance_scale)

    def _stepper_of(self, policy: Policy, epoch: int) -> Flow:
        if not isinstance(policy, TransformerPolicy):
            raise InputError(
                "flow_grpo needs a pipeline of flow matching (Stable Diffusion 3, FLUX); take ddpo for a UNet"
            )
        args = self.args
        schedule = policy.schedule(args.sample_num_steps)
        return Flow(*schedule, args.sample_noise_level, args.sample_dynamics, self.window(epoch))

    def window(self, epoch: int) -> Sequence[int]:
        """The Gaussian steps of an epoch.

        Example:
            >>> settings = FlowGRPOConfig(sample_num_steps=5, sample_window_size=2, sample_window="sliding")
            >>> [list(FlowGRPO(settings).window(epoch)) for epoch in range(4)]
            [[0, 1], [1, 2], [2, 3], [0, 1]]
        """
        args = self.args
        places = args.sample_num_steps - 1  # not the last step
        size = args.sample_window_size or places
        starts = places - size + 1
        start = 0
        if args.sample_window == "sliding":
            start = epoch // args.sample_window_epochs % starts
        elif args.sample_window == "random":
            rng = np.random.default_rng(derived_seed(args.seed, "window", epoch // args.sample_window_epochs))
            start = int(rng.integers(starts))
        return range(start, start + size)

    def distance(self, new: Gaussian, base: Gaussian, prediction: Tensor, base_prediction: Tensor) -> Tensor:
        """As `train_kl_kind` says."""
        if self.args.train_kl_kind == "exact":
            return super().distance(new, base, prediction, base_prediction)
        pair = (new.mean, base.mean) if self.args.train_kl_kind == "means" else (prediction, base_prediction)
        return (pair[0].float() - pair[1].float()).square().mean(dim=(1, 2, 3))
