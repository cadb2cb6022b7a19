"""The optimiser steps of one epoch: clipped policy gradient over shuffled pairs of a sample and a denoising step.

Pairs are planned over all processes from the seed alone, every process computes the pairs whose samples it drew, and
gradients are summed. Any number of processes therefore takes the same optimiser steps, and a process without pairs in a
step (its judge abstained) still takes part in the sum instead of leaving the others waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from rewards.trainers.diffusion.config import DDPOConfig
from rewards.trainers.diffusion.ddpo_math import clipped_loss, kl_divergence, log_probability
from rewards.trainers.diffusion.policy import DiffusionPolicy, Sampler, derived_seed
from rewards.trainers.diffusion.sampling import Trajectories

REDUCE_BUCKET = 2**25
"""Gradient elements summed over processes in one call."""


def plan_steps(
    advantages: np.ndarray, stochastic_steps: Sequence[int], args: DDPOConfig, num_processes: int, stream: str
) -> list[np.ndarray]:
    """Divide an epoch's pairs into optimiser steps.

    Args:
        advantages: (N,) of all processes; 0 for samples without one.
        stochastic_steps: Indices of the denoising steps that have a density.
        args: Batch sizes, timestep fraction, the smallest advantage worth a gradient.
        num_processes: Their number.
        stream: Names the shuffle (epoch and inner epoch).

    Returns:
        For each optimiser step its (P, 2) int64 pairs of a global sample index and a denoising step; an empty list when
        no sample has an advantage.
    """
    rng = np.random.default_rng(derived_seed(args.seed, "shuffle", stream))
    # A sample without advantage has no gradient but for the KL penalty, which needs every sample.
    floor = -1.0 if args.train_kl_coefficient else args.train_adv_min
    samples = np.flatnonzero(np.abs(advantages) > floor)
    kept = max(1, round(len(stochastic_steps) * args.train_timestep_fraction))
    pairs = [(i, k) for i in samples for k in np.sort(rng.permutation(np.asarray(stochastic_steps))[:kept])]
    if not pairs:
        return []
    shuffled = rng.permutation(np.array(pairs, dtype=np.int64))
    samples_a_step = args.train_batch_size * args.train_gradient_accumulation_steps * num_processes
    count = max(1, round(len(advantages) / samples_a_step))
    return np.array_split(shuffled, min(count, len(shuffled)))


class PolicyUpdate:
    """Takes optimiser steps on a batch of trajectories.

    Args:
        policy: The model.
        optimizer: Over ``policy.parameters``, prepared by the accelerator.
        accelerator: Sums over processes and scales losses in half precision.
        args: The settings.
        sampler: The sampler that drew the trajectories.
    """

    def __init__(
        self,
        policy: DiffusionPolicy,
        optimizer: torch.optim.Optimizer,
        accelerator: Accelerator,
        args: DDPOConfig,
        sampler: Sampler,
    ) -> None:
        self.policy = policy
        self.optimizer = optimizer
        self.accelerator = accelerator
        self.args = args
        self.sampler = sampler
        self.parameters = policy.parameters

    def run(self, trajectories: Trajectories, advantages: np.ndarray, epoch: int) -> dict[str, float]:
        """One epoch's updates.

        Args:
            trajectories: Of this process, in the order of its global indices.
            advantages: (N,) of all processes.
            epoch: Names the shuffle.

        Returns:
            Metrics under ``train/``, the same on every process.
        """
        stochastic = torch.nonzero(self.sampler.schedule.sigma > 0).flatten().tolist()
        clamped = np.clip(advantages, -self.args.train_adv_clip_max, self.args.train_adv_clip_max)
        totals = _Totals()
        on_policy = True
        for inner in range(self.args.train_num_inner_epochs):
            plans = plan_steps(
                clamped, stochastic, self.args, self.accelerator.num_processes, stream=f"{epoch}/{inner}"
            )
            for pairs in plans:
                totals.grad_norms.append(self._step(pairs, trajectories, clamped, on_policy, totals))
                on_policy = False
        return totals.metrics(self.accelerator, self.args.train_kl_coefficient is not None)

    def _step(
        self, pairs: np.ndarray, trajectories: Trajectories, advantages: np.ndarray, on_policy: bool, totals: _Totals
    ) -> float:
        count = len(trajectories.latents)
        first = self.accelerator.process_index * count
        mine = pairs[(pairs[:, 0] >= first) & (pairs[:, 0] < first + count)]
        for start in range(0, len(mine), self.args.train_batch_size):
            batch = mine[start : start + self.args.train_batch_size]
            weights = torch.as_tensor(advantages[batch[:, 0]], device=self.policy.device)
            local = torch.from_numpy(batch[:, 0] - first)
            loss = self._losses(trajectories, local, torch.from_numpy(batch[:, 1]), weights, on_policy, totals)
            self.accelerator.backward(loss.sum() / len(pairs))
        sum_gradients(self.parameters, self.accelerator)
        norm = self.accelerator.clip_grad_norm_(self.parameters, self.args.train_max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm) if norm is not None else float("nan")

    def _losses(
        self,
        trajectories: Trajectories,
        rows: Tensor,
        steps: Tensor,
        advantages: Tensor,
        on_policy: bool,
        totals: _Totals,
    ) -> Tensor:
        """Loss of each pair, (P,)."""
        on_device = rows.to(self.policy.device)
        latents = trajectories.latents[on_device, steps.to(self.policy.device)]
        following = trajectories.latents[on_device, steps.to(self.policy.device) + 1]
        conditioning = trajectories.conditioning.rows(on_device)
        step = self.policy.step(latents, steps, conditioning, self.sampler)
        new = log_probability(following, step)
        old = trajectories.log_probabilities[on_device, steps.to(self.policy.device)]
        if on_policy:
            # No update has happened since these samples were drawn, so the ratio is 1 by definition. The recorded
            # value differs by rounding where the batch is composed otherwise (in bf16 by more than the clip range).
            totals.mismatch = max(totals.mismatch, float((new.detach() - old).abs().max()))
            old = new.detach()
        ratio = torch.exp(new - old)
        losses = clipped_loss(ratio, advantages, self.args.train_clip_range)
        totals.add(ratio.detach(), (new - old).detach(), losses.detach(), on_policy, self.args.train_clip_range)
        if self.args.train_kl_coefficient is not None:
            with torch.no_grad(), self.policy.base_model():
                reference = self.policy.step(latents, steps, conditioning, self.sampler)
            divergence = kl_divergence(step, reference)
            totals.kl += float(divergence.detach().sum())
            losses = losses + self.args.train_kl_coefficient * divergence
        return losses


def sum_gradients(parameters: Sequence[torch.nn.Parameter], accelerator: Accelerator) -> None:
    """Add up each parameter's gradient over the processes; a process without one adds 0.

    Args:
        parameters: The trained parameters, in the same order on every process.
        accelerator: Knows the processes.
    """
    if accelerator.num_processes == 1:
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    bucket: list[Tensor] = []
    for index, parameter in enumerate(parameters):
        bucket.append(parameter.grad)  # type: ignore[arg-type]
        if index + 1 == len(parameters) or sum(g.numel() for g in bucket) >= REDUCE_BUCKET:
            flat = accelerator.reduce(torch.cat([g.flatten() for g in bucket]), reduction="sum")
            for gradient, total in zip(bucket, flat.split([g.numel() for g in bucket])):
                gradient.copy_(total.view_as(gradient))
            bucket = []


class _Totals:
    """Sums over the pairs of an epoch, on one process."""

    def __init__(self) -> None:
        self.pairs = self.first_pairs = self.clipped = 0
        self.ratio = self.first_ratio = self.loss = self.squared = self.kl = 0.0
        self.mismatch = self.farthest = 0.0
        self.grad_norms: list[float] = []

    def add(self, ratio: Tensor, log_ratio: Tensor, losses: Tensor, on_policy: bool, clip_range: float) -> None:
        self.pairs += len(ratio)
        self.ratio += float(ratio.sum())
        self.loss += float(losses.sum())
        self.squared += float((log_ratio**2).sum())
        self.clipped += int(((ratio - 1).abs() > clip_range).sum())
        self.farthest = max(self.farthest, float((ratio - 1).abs().max()))
        if on_policy:
            self.first_pairs += len(ratio)
            self.first_ratio += float(ratio.sum())

    def metrics(self, accelerator: Accelerator, with_kl: bool) -> dict[str, float]:
        sums = [
            self.pairs,
            self.ratio,
            self.loss,
            self.squared,
            self.clipped,
            self.kl,
            self.first_pairs,
            self.first_ratio,
        ]
        total = torch.tensor(sums, dtype=torch.float64, device=accelerator.device)
        peak = torch.tensor([[self.mismatch, self.farthest]], dtype=torch.float32, device=accelerator.device)
        pairs, ratio, loss, squared, clipped, kl, first_pairs, first_ratio = accelerator.reduce(total, "sum").tolist()
        mismatch, farthest = accelerator.gather(peak).amax(dim=0).tolist()
        metrics: dict[str, float] = {
            "train/optimizer_steps": len(self.grad_norms),
            "train/pairs": pairs,
            "train/loss": _divide(loss, pairs),
            "train/ratio": _divide(ratio, pairs),
            "train/ratio_before_update": _divide(first_ratio, first_pairs),
            "train/ratio_farthest": farthest,
            "train/clip_fraction": _divide(clipped, pairs),
            "train/approx_kl": 0.5 * _divide(squared, pairs),
            "train/sampling_mismatch": mismatch,
            "train/grad_norm": float(np.mean(self.grad_norms)) if self.grad_norms else float("nan"),
        }
        if with_kl:
            metrics["train/kl"] = _divide(kl, pairs)
        return metrics


def _divide(total: float, count: float) -> float:
    return total / count if count else float("nan")
