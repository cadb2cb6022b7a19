"""The update that DDPO and its kin share: losses of importance ratios over the denoising steps that have a density."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rewards.errors import InputError
from rewards.trainers.diffusion.methods.base import Batch, C, Method, Tools
from rewards.trainers.diffusion.optimization import Totals, plan_pairs
from rewards.trainers.diffusion.steppers.base import Gaussian, kl_divergence, log_probability

MEANS = ("train/loss", "policy/ratio", "policy/ratio_before_update", "policy/clip_fraction", "policy/approx_kl")
PEAKS = ("policy/sampling_mismatch", "policy/ratio_farthest")


class Taken(NamedTuple):
    """P steps of a rollout as they were taken.

    Attributes:
        steps: Their indices, (P,) int64 on the policy's device.
        following: The states after them, (P, C, H, W).
        mean: Their means under the policy that took them, (P, C, H, W); None unless the method keeps means. Before the
            first update these are the present ones.
    """

    steps: Tensor
    following: Tensor
    mean: Tensor | None


class PolicyGradient(Method[C]):
    """Policy gradient on rollouts that keep their steps.

    Attributes:
        clip_range: The importance ratio is clipped to 1 +- this; a subclass sets it.
        timestep_fraction: Share of each sample's steps to train on, drawn at random.
    """

    keep_steps: ClassVar[bool] = True
    clip_range: float
    timestep_fraction: float = 1.0

    def start(self, tools: Tools) -> None:
        """See :meth:`Method.start`.

        Raises:
            InputError: No step of the sampler has a density.
        """
        super().start(tools)
        if not bool(self.sampler.stepper.stochastic.any()):
            raise InputError(f"no step of {self.args.sample_num_steps} is stochastic: take more sample_num_steps")

    def steps(self, epoch: int) -> Sequence[int]:
        """The denoising steps of this epoch's rollout that are trained on."""
        return torch.nonzero(self.sampler.stepper.stochastic).flatten().tolist()

    def ratio(self, log_ratio: Tensor, new: Gaussian, taken: Taken) -> Tensor:
        """The importance ratio of each pair, (P,), from log(p_new / p_old), the step as it is now and as it was."""
        return log_ratio.exp()

    def surrogate(self, ratio: Tensor, advantages: Tensor, taken: Taken) -> Tensor:
        """Loss of each pair, (P,), from :meth:`ratio` and advantages."""
        return clipped_loss(ratio, advantages, self.clip_range)

    def distance(self, new: Gaussian, base: Gaussian, prediction: Tensor, base_prediction: Tensor) -> Tensor:
        """Distance of a step to the base model's, (P,), from both Gaussians and both predictions of the network."""
        return kl_divergence(new, base)

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`Method.update`."""
        args, accelerator = self.args, self.tools.accelerator
        weights = np.clip(batch.advantages, -args.train_adv_clip_max, args.train_adv_clip_max)
        with_kl = self.base_is_measured(batch.epoch)
        totals = Totals((*MEANS, "policy/kl") if with_kl else MEANS, PEAKS)
        pairs_trained, first = 0, True
        for inner in range(args.train_num_inner_epochs):
            stream = f"{batch.epoch}/{inner}"
            steps = self.steps(batch.epoch)
            every = bool(args.train_kl_coefficient)
            plans = plan_pairs(weights, steps, args, accelerator.num_processes, stream, self.timestep_fraction, every)
            for number, pairs in enumerate(plans, start=1):
                last = inner + 1 == args.train_num_inner_epochs and number == len(plans)
                measured = self.base_is_measured(batch.epoch, last)
                loss = partial(self._losses, batch, weights, first, measured, totals)
                self.tools.optimization.step(pairs, batch.local, loss)
                first, pairs_trained = False, pairs_trained + len(pairs)
        return {"train/pairs": pairs_trained} | totals.metrics(accelerator)

    def _losses(
        self,
        batch: Batch,
        weights: np.ndarray,
        on_policy: bool,
        measured: bool,
        totals: Totals,
        rows: Tensor,
        steps: Tensor,
    ) -> Tensor:
        """Loss of each pair, (P,); `measured`: with the distance to the base model."""
        policy, rollout = self.tools.policy, batch.rollout
        assert rollout.latents is not None and rollout.log_probs is not None  # keep_steps
        advantages = torch.as_tensor(weights[rows.numpy() + batch.local.start], device=policy.device)
        rows, at = rows.to(policy.device), steps.to(policy.device)
        latents, following = rollout.latents[rows, at], rollout.latents[rows, at + 1]
        conditioning = rollout.conditioning.rows(rows)
        stepper, prediction = self.sampler.stepper, self.sampler.predict(policy, latents, at, conditioning)
        step = stepper.step(prediction, latents, at)
        new, old = log_probability(following, step), rollout.log_probs[rows, at]
        mean = None if rollout.means is None else rollout.means[rows, at]
        if on_policy:
            # No update has happened since these samples were drawn, so the ratio is 1 by definition. The recorded
            # value differs by rounding where the batch is composed otherwise (in bf16 by more than the clip range).
            totals.peak("policy/sampling_mismatch", (new.detach() - old).abs())
            old, mean = new.detach(), None if mean is None else step.mean.detach()
        taken = Taken(at, following, mean)
        ratio = self.ratio(new - old, step, taken)
        losses = self.surrogate(ratio, advantages, taken)
        self._record(totals, (new - old).detach(), ratio, losses, on_policy)
        if measured:
            with torch.no_grad(), policy.base_model():
                base = self.sampler.predict(policy, latents, at, conditioning)
            distance = self.distance(step, stepper.step(base, latents, at), prediction, base)
            totals.add("policy/kl", distance)
            losses = losses + (self.args.train_kl_coefficient or 0.0) * distance
        return losses

    def _record(self, totals: Totals, log_ratio: Tensor, ratio: Tensor, losses: Tensor, on_policy: bool) -> None:
        totals.add("train/loss", losses)
        totals.add("policy/ratio", ratio)
        totals.add("policy/approx_kl", 0.5 * log_ratio**2)
        totals.add("policy/clip_fraction", ((ratio - 1).abs() > self.clip_range).float())
        totals.peak("policy/ratio_farthest", (ratio - 1).abs())
        if on_policy:
            totals.add("policy/ratio_before_update", ratio)


def clipped_loss(ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """The clipped importance-sampling objective, to be minimised (DDPO section 4.3, after PPO eq. 7).

    Args:
        ratio: p_new / p_old for each pair, (N,).
        advantages: (N,).
        clip_range: The ratio is clipped to [1 - clip_range, 1 + clip_range].

    Returns:
        (N,): `-min(A r, A clip(r))`, so that no gradient pushes a ratio further out of the range.

    Example:
        >>> clipped_loss(torch.tensor([1.5, 0.5]), torch.tensor([1.0, 1.0]), 0.1).tolist()
        [-1.100000023841858, -0.5]
    """
    return -torch.minimum(advantages * ratio, advantages * ratio.clamp(1 - clip_range, 1 + clip_range))
