"""Optimiser steps that are the same on any number of processes, and that a value which is not finite cannot ruin.

Pairs of a sample and a denoising step are planned over all processes from the seed alone, every process computes the
pairs whose samples it drew, and gradients are summed. A process without pairs in a step (its judge abstained) still
takes part in the sum instead of leaving the others waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor

from rewards.errors import RewardsError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.randomness import derived_seed

REDUCE_BUCKET = 2**25
"""Gradient elements summed over processes in one call."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""(rows, steps) of this process's pairs, (P,) int64 each on the CPU -> the loss of each pair, (P,)."""


def plan_pairs(
    advantages: np.ndarray,
    steps: Sequence[int],
    args: DiffusionConfig,
    num_processes: int,
    stream: str,
    fraction: float = 1.0,
    every_sample: bool = False,
) -> list[np.ndarray]:
    """Divide an epoch's pairs of a sample and a denoising step into optimiser steps.

    Args:
        advantages: (N,) of all processes; 0 for samples without one.
        steps: Indices of the denoising steps to train on.
        args: Batch sizes, and the smallest advantage worth a gradient.
        num_processes: Their number.
        stream: Names the shuffle (epoch and inner epoch).
        fraction: Share of the steps that each sample is trained on, drawn at random.
        every_sample: Also those without an advantage: a penalty on the distance to the base model needs them.

    Returns:
        For each optimiser step its (P, 2) int64 pairs of a global sample index and a denoising step; an empty list when
        no sample has an advantage.
    """
    rng = np.random.default_rng(derived_seed(args.seed, "shuffle", stream))
    floor = -1.0 if every_sample else args.train_adv_min
    samples = np.flatnonzero(np.abs(advantages) > floor)
    kept = max(1, round(len(steps) * fraction))
    pairs = [(i, k) for i in samples for k in np.sort(rng.permutation(np.asarray(steps))[:kept])]
    if not pairs:
        return []
    return split_evenly(rng.permutation(np.array(pairs, dtype=np.int64)), len(advantages), args, num_processes)


def split_evenly(pairs: np.ndarray, num_samples: int, args: DiffusionConfig, num_processes: int) -> list[np.ndarray]:
    """Pairs as the parts of the optimiser steps that `num_samples` samples make; none without pairs."""
    samples_a_step = args.train_batch_size * args.train_gradient_accumulation_steps * num_processes
    count = max(1, round(num_samples / samples_a_step))
    return np.array_split(pairs, min(count, len(pairs))) if len(pairs) else []


class Optimization:
    """AdamW over the trained parameters.

    Args:
        parameters: In the same order on every process; those of the first process are taken by all.
        accelerator: Sums over processes and scales losses in half precision.
        args: The settings.

    Attributes:
        optimizer: Accelerate's.
        taken: Optimiser steps of the run, skipped ones not counted.
        skipped_in_a_row: Steps skipped since the last one that was taken.
    """

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], accelerator: Accelerator, args: DiffusionConfig
    ) -> None:
        self.parameters = parameters
        self.accelerator = accelerator
        self.args = args
        with torch.no_grad():
            for parameter in parameters if accelerator.num_processes > 1 else ():
                broadcast(parameter, from_process=0)
        self.optimizer = accelerator.prepare(
            torch.optim.AdamW(
                parameters,
                lr=args.train_learning_rate,
                betas=(args.train_adam_beta1, args.train_adam_beta2),
                weight_decay=args.train_adam_weight_decay,
                eps=args.train_adam_epsilon,
            )
        )
        self.taken = 0
        self.skipped_in_a_row = 0
        self._norms: list[float] = []
        self._skipped = 0

    def begin_epoch(self, learning_rate: float) -> None:
        """Set the epoch's learning rate and start its counts."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self._norms, self._skipped = [], 0

    def step(self, pairs: np.ndarray, local: range, loss: Loss) -> None:
        """One optimiser step on the mean loss of these pairs; every process calls it with the same pairs.

        Args:
            pairs: (P, 2): global index of the sample, denoising step.
            local: Global indices of this process's samples.
            loss: Gives the losses of this process's pairs.

        Raises:
            RewardsError: Too many steps in a row were not finite.
        """
        mine = pairs[(pairs[:, 0] >= local.start) & (pairs[:, 0] < local.stop)]
        finite = torch.ones((), dtype=torch.bool, device=self.accelerator.device)
        for start in range(0, len(mine), self.args.train_batch_size):
            batch = mine[start : start + self.args.train_batch_size]
            losses = loss(torch.from_numpy(batch[:, 0] - local.start), torch.from_numpy(batch[:, 1].copy()))
            finite &= losses.detach().isfinite().all().to(finite.device)
            self.accelerator.backward(losses.sum() / len(pairs))
        self._apply(finite)

    def _apply(self, finite: Tensor) -> None:
        """Sum, clip, step; skip on all processes where one has a loss or gradient that is not finite.

        The host reads loss and norm here together, once (a loss scaler adds a read of its own).
        """
        accelerator = self.accelerator
        sum_gradients(self.parameters, accelerator)
        norm = accelerator.clip_grad_norm_(self.parameters, self.args.train_max_grad_norm)
        norm = torch.zeros((), device=accelerator.device) if norm is None else norm
        broken = accelerator.reduce((~(finite & norm.isfinite())).float(), "sum")
        wrong, size = torch.stack([broken, norm.to(broken)]).tolist()
        skip = wrong >= 1
        if skip and accelerator.scaler is None:
            self.optimizer.zero_grad()
        else:  # a loss scaler skips by itself, and must be asked to, since that is how it finds its scale
            self.optimizer.step()
            skip = self.optimizer.step_was_skipped
            self.optimizer.zero_grad()
        self._count(skip, size)

    def _count(self, skip: bool, norm: float) -> None:
        if not skip:
            self._norms.append(norm)
            self.taken += 1
            self.skipped_in_a_row = 0
            return
        self._skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row > self.args.train_max_skipped_steps:
            raise RewardsError(
                f"{self.skipped_in_a_row} optimiser steps in a row had a loss or gradient that is not finite "
                f"(train_max_skipped_steps {self.args.train_max_skipped_steps}): the model or its precision is broken; "
                "the newest checkpoint is still good"
            )

    def metrics(self) -> dict[str, float]:
        """The epoch's counts, the same on every process; the gradient norm is the mean over its steps."""
        return {
            "train/optimizer_steps": len(self._norms),
            "train/skipped_steps": self._skipped,
            "train/grad_norm": float(np.mean(self._norms)) if self._norms else math.nan,
        }


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


class Totals:
    """Means and largest values of an epoch over the pairs of all processes.

    Args:
        means: Names of the metrics that are means.
        peaks: Names of those that are the largest value.
    """

    def __init__(self, means: Sequence[str], peaks: Sequence[str] = ()) -> None:
        self._sums: dict[str, Tensor | None] = dict.fromkeys(means)
        self._peaks: dict[str, Tensor | None] = dict.fromkeys(peaks)

    def add(self, name: str, values: Tensor, among: Tensor | None = None) -> None:
        """Take further values of a mean: all, or those that `among` marks. Nothing leaves the device."""
        values = values.detach().double()
        if among is not None:
            values = torch.where(among, values, 0)
        count = torch.full_like(values, 1) if among is None else among.double()
        more, known = torch.stack([values.sum(), count.sum()]), self._sums[name]
        self._sums[name] = more if known is None else known + more

    def peak(self, name: str, values: Tensor) -> None:
        """Take further values of a largest value."""
        largest, known = values.detach().max(), self._peaks[name]
        self._peaks[name] = largest if known is None else torch.maximum(known, largest)

    def metrics(self, accelerator: Accelerator) -> dict[str, float]:
        """The values over all processes; NaN for a mean of nothing. Every process must call this."""
        device, names = accelerator.device, [*self._sums, *self._peaks]
        nothing = torch.zeros(2, dtype=torch.float64, device=device)
        sums = [nothing if one is None else one.to(nothing) for one in self._sums.values()]
        peaks = [nothing[0] if one is None else one.to(nothing) for one in self._peaks.values()]
        totals = accelerator.reduce(torch.stack(sums), "sum")
        highest = accelerator.gather(torch.stack(peaks)[None]).amax(dim=0) if peaks else nothing[:0]
        # One copy to the host for all of them.
        values = torch.cat([totals[:, 0] / totals[:, 1], highest]).tolist()
        return dict(zip(names, values))
