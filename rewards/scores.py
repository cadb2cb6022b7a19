"""What a reward returns: the score of every sample, its parts, why a sample could not be judged, and what to show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from rewards.errors import InputError
from rewards.runs.files import Json

Details: TypeAlias = Mapping[str, Json]
"""What a reward shows of one sample beside its numbers: answers, deviations, weights."""


@dataclass
class Scores:
    """N samples after one pass of the judge.

    Attributes:
        overall: `(N,)` on the CPU: the reward. NaN: the sample abstained, and `reasons` says why. It is never 0 for
            want of a judgment.
        reasons: N texts: why a sample abstained, or None.
        part_names: names of the P parts that the overall score is made of (criteria, element types, rewards).
        parts: `(N, P)`: a sample's score on each part; NaN where it has none.
        counts: `(N, P)`: how many judgments are behind each part of a sample (questions of an element type; 1 for a
            criterion; 0 where it has none).
        means: further numbers of every sample `(N,)`, shown as means over those that are not NaN.
        sums: further numbers of every sample `(N,)`, shown as sums.
        details: N mappings of JSON values to show for a sample: each question with its answer, and the like.
    """

    overall: Tensor
    reasons: Sequence[str | None]
    part_names: tuple[str, ...] = ()
    parts: Tensor = field(default_factory=lambda: torch.empty(0))
    counts: Tensor = field(default_factory=lambda: torch.empty(0))
    means: Mapping[str, Tensor] = field(default_factory=dict)
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    details: Sequence[Details] = ()

    def __post_init__(self) -> None:
        shape = (len(self.overall), len(self.part_names))
        if not self.part_names:
            self.parts, self.counts = torch.empty(shape), torch.zeros(shape)
        self.details = self.details or [{} for _ in range(shape[0])]
        lengths = {len(self.reasons), len(self.details), shape[0]}
        if len(lengths) > 1 or self.parts.shape != shape or self.counts.shape != shape:
            raise InputError(f"scores of {shape[0]} samples and {shape[1]} parts do not fit together")

    def __len__(self) -> int:
        return len(self.reasons)

    @property
    def abstained(self) -> Tensor:
        """`(N,)` bool: which samples could not be judged."""
        return self.overall.isnan()

    def metrics(self, name: str) -> dict[str, float]:
        """Flat numbers of the batch under `rewards/<name>/`, for curves and trackers.

        `overall/mean` and `/count` are over the samples that were judged; `<part>/mean` and `/count` over
        their judgments of that part; `abstained` counts the samples that were not judged. A mean over nothing is NaN,
        and its key stays, so that all processes log the same keys.
        """
        judged = self.overall[~self.abstained].double()
        prefix = f"rewards/{name}"
        flat = {
            f"{prefix}/overall/mean": _mean(judged),
            f"{prefix}/overall/count": float(len(judged)),
            f"{prefix}/abstained": float(len(self) - len(judged)),
        }
        counts = torch.where(self.abstained.unsqueeze(-1), 0.0, self.counts.double())
        totals = torch.where(counts > 0, self.parts.double() * counts, 0.0).sum(0)
        for part, total, count in zip(self.part_names, totals.tolist(), counts.sum(0).tolist(), strict=True):
            flat[f"{prefix}/{part}/mean"] = total / count if count else math.nan
            flat[f"{prefix}/{part}/count"] = count
        flat |= {f"{prefix}/{key}": _mean(values[~values.isnan()].double()) for key, values in self.means.items()}
        flat |= {f"{prefix}/{key}": float(values.nansum()) for key, values in self.sums.items()}
        return flat

    def records(self) -> list[dict[str, Json]]:
        """One JSON-able record a sample: `overall`, `parts` by name, `abstained` (the reason, or None), and its
        details. Numbers that do not exist are None; parts without a judgment are left out."""
        rows = zip(self.overall.tolist(), self.parts.tolist(), self.counts.tolist(), self.reasons, self.details)
        return [
            {
                "overall": number_or_none(overall),
                "parts": {
                    name: number_or_none(value)
                    for name, value, count in zip(self.part_names, parts, counts, strict=True)
                    if count
                },
                "abstained": reason,
                **details,
            }
            for overall, parts, counts, reason, details in rows
        ]

    @staticmethod
    def nothing(reasons: Sequence[str]) -> Scores:
        """Scores of samples that all abstain."""
        return Scores(torch.full((len(reasons),), math.nan), list(reasons))

    @staticmethod
    def concatenate(batches: Sequence[Scores]) -> Scores:
        """The scores of several batches of one reward as those of one batch, in order.

        Parts and numbers that only some batches have are NaN in the others: a batch in which a judge failed has none.
        """
        names = tuple(dict.fromkeys(name for batch in batches for name in batch.part_names))
        means = dict.fromkeys(key for batch in batches for key in batch.means)
        sums = dict.fromkeys(key for batch in batches for key in batch.sums)
        return Scores(
            overall=torch.cat([batch.overall.float() for batch in batches]) if batches else torch.empty(0),
            reasons=[reason for batch in batches for reason in batch.reasons],
            part_names=names,
            parts=_columns([_by_name(batch, batch.parts) for batch in batches], batches, names, math.nan),
            counts=_columns([_by_name(batch, batch.counts) for batch in batches], batches, names, 0.0),
            means={key: _column([batch.means for batch in batches], batches, key, math.nan) for key in means},
            sums={key: _column([batch.sums for batch in batches], batches, key, 0.0) for key in sums},
            details=[details for batch in batches for details in batch.details],
        )

    def placed(self, rows: Sequence[int], reasons: Sequence[str | None]) -> Scores:
        """These scores at `rows` of a larger batch, whose other samples abstain for the given reasons.

        Args:
            rows: where each of these samples belongs, N of them.
            reasons: a reason for every sample of the larger batch; those at `rows` are not looked at.
        """
        place = {row: index for index, row in enumerate(rows)}
        others = Scores.nothing([reason or "" for row, reason in enumerate(reasons) if row not in place])
        both = Scores.concatenate([self, others])
        rest = iter(range(len(self), len(both)))
        return both.take([place[row] if row in place else next(rest) for row in range(len(reasons))])

    def take(self, rows: Sequence[int]) -> Scores:
        """The scores of some samples, in the given order."""
        index = torch.tensor(rows, dtype=torch.long)
        return Scores(
            self.overall[index],
            [self.reasons[row] for row in rows],
            self.part_names,
            self.parts[index],
            self.counts[index],
            {key: values[index] for key, values in self.means.items()},
            {key: values[index] for key, values in self.sums.items()},
            [self.details[row] for row in rows],
        )


def number_or_none(value: float) -> float | None:
    """A number for JSON and for TRL: None for NaN."""
    return None if math.isnan(value) else value


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else math.nan


def _by_name(batch: Scores, values: Tensor) -> dict[str, Tensor]:
    return {name: values[:, column] for column, name in enumerate(batch.part_names)}


def _columns(
    tables: Sequence[Mapping[str, Tensor]], batches: Sequence[Scores], names: Sequence[str], missing: float
) -> Tensor:
    if not names:
        return torch.empty(sum(map(len, batches)), 0)
    return torch.stack([_column(tables, batches, name, missing) for name in names], dim=1)


def _column(tables: Sequence[Mapping[str, Tensor]], batches: Sequence[Scores], key: str, missing: float) -> Tensor:
    filled = [table.get(key, torch.full((len(b),), missing)).double() for table, b in zip(tables, batches, strict=True)]
    return torch.cat(filled)
