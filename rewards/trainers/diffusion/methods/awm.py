"""AWM, advantage weighted matching (Xue et al. 2025, arXiv 2509.25050): policy gradient on the pre-training loss.

The negative matching loss of a picture stands for its log-likelihood, so no sampler needs a density. The update is that
of the reference implementation (scripts/train_sd3_awm.py, config/dgx_awm.py), whose defaults are taken: 14 steps, no
guidance, generalised Huber weights with p = 0.25, advantages clipped to 1, a clip range of 1 (off), and a pull of
weight 1 towards a moving average of the policy, without which it collapses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from rewards.runs.config import check_number
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.base import Batch, Method, Tools
from rewards.trainers.diffusion.methods.forward import noise_again
from rewards.trainers.diffusion.methods.policy_gradient import clipped_loss
from rewards.trainers.diffusion.optimization import Totals, plan_pairs

MEANS = (
    "train/loss",
    "policy/ratio",
    "policy/ratio_before_update",
    "policy/clip_fraction",
    "policy/distance_to_average",
)


@dataclass
class AWMConfig(DiffusionConfig):
    """Settings of AWM beside those of :class:`DiffusionConfig`.

    Attributes:
        sample_num_steps, sample_guidance_scale, train_adv_clip_max, train_kl_coefficient: As there.
        train_timestep_fraction: Share of the sampler's timesteps at which each picture is noised, drawn at random.
        train_clip_range: Clip range of the ratio.
        awm_huber: p of the weight; 1 is the plain squared error times t.
        awm_average_coefficient: Weight of the mean squared distance to the moving average's prediction.
        awm_average_decay: After an epoch the average is `d * average + (1 - d) * new`.

    Example:
        >>> AWMConfig().awm_huber
        0.25
    """

    sample_num_steps: int = 14
    sample_guidance_scale: float = 1.0
    train_adv_clip_max: float = 1.0
    train_kl_coefficient: float | None = 0.001
    train_timestep_fraction: float = 0.43
    train_clip_range: float = 1.0
    awm_huber: float = 0.25
    awm_average_coefficient: float = 1.0
    awm_average_decay: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("train_clip_range", self.train_clip_range, above=0)
        check_number("train_timestep_fraction", self.train_timestep_fraction, above=0, at_most=1)
        check_number("awm_huber", self.awm_huber, above=0, at_most=1)
        check_number("awm_average_coefficient", self.awm_average_coefficient, at_least=0)
        check_number("awm_average_decay", self.awm_average_decay, at_least=0, at_most=1)


class AWM(Method[AWMConfig]):
    """Advantage weighted matching on any parametrisation."""

    name = "awm"
    config_class = AWMConfig

    def start(self, tools: Tools) -> None:
        """The moving average begins as the trained policy."""
        super().start(tools)
        self.average = [parameter.detach().clone() for parameter in tools.policy.parameters]

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`Method.update`."""
        args, accelerator, policy = self.args, self.tools.accelerator, self.tools.policy
        weights = np.clip(batch.advantages, -args.train_adv_clip_max, args.train_adv_clip_max)
        old = [parameter.detach().clone() for parameter in policy.parameters]
        totals = Totals((*MEANS, "policy/kl") if self.base_is_measured(batch.epoch) else MEANS)
        steps, trained, first = range(len(self.sampler.stepper)), 0, True
        for inner in range(args.train_num_inner_epochs):
            stream, fraction = f"{batch.epoch}/{inner}", args.train_timestep_fraction
            plans = plan_pairs(weights, steps, args, accelerator.num_processes, stream, fraction)
            for number, pairs in enumerate(plans, start=1):
                last = inner + 1 == args.train_num_inner_epochs and number == len(plans)
                measured = self.base_is_measured(batch.epoch, last)
                loss = partial(self._losses, batch, weights, stream, None if first else old, measured, totals)
                self.tools.optimization.step(pairs, batch.local, loss)
                trained, first = trained + len(pairs), False
        now = [parameter.detach() for parameter in policy.parameters]
        torch._foreach_lerp_(self.average, now, 1 - args.awm_average_decay)
        return {"train/pairs": trained} | totals.metrics(accelerator)

    def _losses(
        self,
        batch: Batch,
        weights: np.ndarray,
        stream: str,
        old: Sequence[Tensor] | None,
        measured: bool,
        totals: Totals,
        rows: Tensor,
        steps: Tensor,
    ) -> Tensor:
        """Loss of each pair of a picture and a timestep, (P,); `old` is None before the first update; `measured`: with
        the distance to the base model."""
        policy, sampler, args = self.tools.policy, self.sampler, self.args
        pair = noise_again(self, batch, stream, rows, steps)
        steps = steps.to(policy.device)
        target = sampler.stepper.target(pair.clean, pair.noise, steps)
        level = sampler.stepper.level(steps)

        def predict() -> Tensor:
            return sampler.predict(policy, pair.noisy, steps, pair.conditioning).float()

        with torch.no_grad():  # before the pass with a gradient: these change the weights for a moment
            with policy.holding(self.average):
                average = predict()
            before = None
            if old is not None:
                with policy.holding(old):
                    before = matching_log_probability(predict(), target, level, args.awm_huber)
        prediction = predict()
        new = matching_log_probability(prediction, target, level, args.awm_huber)
        ratio = (new - (new.detach() if before is None else before)).exp()
        advantages = torch.as_tensor(weights[rows.numpy() + batch.local.start], device=policy.device)
        losses = clipped_loss(ratio, advantages, args.train_clip_range)
        totals.add("train/loss", losses)
        totals.add("policy/ratio", ratio)
        totals.add("policy/clip_fraction", ((ratio - 1).abs() > args.train_clip_range).float())
        if before is None:
            totals.add("policy/ratio_before_update", ratio)
        distance = (prediction - average).square().mean(dim=(1, 2, 3))
        totals.add("policy/distance_to_average", distance)
        losses = losses + args.awm_average_coefficient * distance
        if measured:
            with torch.no_grad(), policy.base_model():
                base = predict()
            distance = (prediction - base).square().mean(dim=(1, 2, 3))
            totals.add("policy/kl", distance)
            losses = losses + (args.train_kl_coefficient or 0.0) * distance
        return losses

    def state(self) -> dict[str, list[Tensor]]:
        """The moving average."""
        return {"average": self.average}

    def load_state(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        """Take over what :meth:`state` gave."""
        torch._foreach_copy_(self.average, [value.to(self.tools.policy.device) for value in state["average"]])


def matching_log_probability(prediction: Tensor, target: Tensor, level: Tensor, power: float) -> Tensor:
    """What stands for the log-likelihood of a picture: minus its matching loss under a generalised Huber weight.

    Args:
        prediction: Of the network, (P, C, H, W).
        target: What it should have been.
        level: Noise level t in [0, 1] of each pair, (P,).
        power: p.

    Returns:
        (P,): `-t / p ((l + 1e-10)^p - 1e-10^p)` with l the mean squared error.

    Example:
        >>> one = torch.ones(1, 1, 1, 1)
        >>> matching_log_probability(2 * one, one, torch.tensor([0.5]), 1.0).tolist()
        [-0.5]
    """
    error = (prediction - target).square().mean(dim=(1, 2, 3))
    return -level / power * ((error + 1e-10) ** power - 1e-10**power)
