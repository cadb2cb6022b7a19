"""Scoring drawn pictures on several processes: broken pictures and failed judges abstain, and are never scored 0."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor

from rewards.calling import score_guarded
from rewards.errors import InputError, RewardsError
from rewards.reward import Reward
from rewards.scores import Scores

BROKEN = "the picture is black or not finite"


@dataclass
class Judged:
    """Scores of drawn pictures.

    Attributes:
        scores: N of them; NaN where a picture could not be judged.
        broken: Pictures that were black or not finite, and were not shown to the judge.
        refused: The message of a reward that refused its input (a prompt without questions, say), or None. The run
            cannot go on; the caller raises on all processes at once, since one that raises alone would leave the others
            waiting.
    """

    scores: Scores
    broken: int = 0
    refused: str | None = None

    @staticmethod
    def concatenate(parts: Sequence[Judged]) -> Judged:
        """One result for the pictures of several."""
        return Judged(
            Scores.concatenate([part.scores for part in parts]),
            sum(part.broken for part in parts),
            next((part.refused for part in parts if part.refused is not None), None),
        )

    @property
    def usual_reason(self) -> str | None:
        """The most frequent reason for which pictures could not be judged."""
        reasons = Counter(reason for reason in self.scores.reasons if reason is not None)
        return reasons.most_common(1)[0][0] if reasons else None


def usable_pictures(images: Tensor) -> Tensor:
    """(N,) bool: pictures that are finite and not wholly black (what an overflow in half precision leaves).

    Args:
        images: (N, 3, H, W) in [0, 1].
    """
    flat = images.flatten(1)
    return torch.isfinite(flat).all(dim=1) & (flat.nan_to_num().amax(dim=1) >= 1 / 255)


def score_pictures(
    reward: Reward, images: Tensor, prompts: Sequence[str], metadata: Sequence[Mapping[str, object]]
) -> Judged:
    """Score pictures; what cannot be judged is NaN with its reason.

    Args:
        reward: What judges.
        images: (N, 3, H, W) float32 in [0, 1], on any device.
        prompts: N texts.
        metadata: N mappings, which the reward gets as its column `metadata`.
    """
    usable = usable_pictures(images).tolist()
    rows = [row for row, ok in enumerate(usable) if ok]
    reasons = [None if ok else BROKEN for ok in usable]
    broken = len(images) - len(rows)
    if not rows:
        return Judged(Scores.nothing([BROKEN] * len(images)), broken)
    try:
        # A batched tensor is what functions of this field take.
        kept = images if not broken else images[torch.tensor(rows, device=images.device)]
        shown: Any = kept if reward.takes_tensors else kept.cpu()
        scores = score_guarded(reward, shown, [prompts[row] for row in rows], metadata=[metadata[row] for row in rows])
    except InputError as error:
        return Judged(Scores.nothing([str(error)] * len(images)), broken, refused=f"{reward.__name__}: {error}")
    return Judged(scores.placed(rows, reasons), broken)


def gather(judged: Judged, indices: Sequence[int], with_details: bool) -> Judged:
    """The scores of all processes, in global order; every process must call this.

    Args:
        judged: This process's.
        indices: Global index of each of its samples.
        with_details: Send what the reward tells of each sample, too.

    Raises:
        RewardsError: The reward refused its input on some process.
    """
    sent = judged if with_details else Judged(_without_details(judged.scores), judged.broken, judged.refused)
    parts: list[tuple[list[int], Judged]] = gather_object([(list(indices), sent)])
    for _, part in parts:
        if part.refused is not None:
            raise RewardsError(f"the reward refused its input: {part.refused}")
    everything = Judged.concatenate([part for _, part in parts])
    order = [index for rows, _ in parts for index in rows]
    everything.scores = everything.scores.take(sorted(range(len(order)), key=order.__getitem__))
    return everything


def batch_metrics(reward: Reward, scores: Scores, branch: str) -> dict[str, float]:
    """The metrics of an epoch's samples under `<branch>/<reward>/`, with the deviation of the overall score."""
    metrics = {f"{branch}/{key.removeprefix('rewards/')}": v for key, v in reward.metrics(scores).items()}
    judged = scores.overall[~scores.abstained].double()
    deviation = float(judged.std(correction=0)) if len(judged) else math.nan
    return metrics | {f"{branch}/{reward.__name__}/overall/std": deviation}


def _without_details(scores: Scores) -> Scores:
    return Scores(
        scores.overall, scores.reasons, scores.part_names, scores.parts, scores.counts, scores.means, scores.sums
    )
