"""The protocol of a metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from rewards.errors import InputError
from rewards.humans.statistics.pair_counts import Array


@dataclass(frozen=True)
class TextItem:
    """A text to be scored: about an image, to an input (question), of a box, against references."""

    image: object
    text: str
    input: str | None = None
    box: tuple[float, ...] | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricScores:
    """`overall` (n,) float64 with NaN for abstentions; `criteria` (n, C) of a metric that scores criteria."""

    overall: Array
    criteria: Array | None = None


class Metric(Protocol):
    """Scores texts; higher is better."""

    name: str
    needs_references: bool

    def __call__(self, items: Sequence[TextItem]) -> MetricScores:
        """Score n texts."""


def missing_pictures(items: Sequence[TextItem]) -> list[int]:
    """The items whose picture is a path to no file."""
    return [n for n, item in enumerate(items) if isinstance(item.image, str | Path) and not Path(item.image).is_file()]


def scattered(scores: MetricScores, rows: Sequence[int], count: int) -> MetricScores:
    """Scores of some of `count` items in their places; the others abstain.

    Example:
        >>> scattered(MetricScores(np.array([2.0])), [1], 2).overall
        array([nan,  2.])
    """
    overall = np.full(count, np.nan)
    overall[list(rows)] = scores.overall
    if scores.criteria is None:
        return MetricScores(overall)
    criteria = np.full((count, scores.criteria.shape[1]), np.nan)
    criteria[list(rows)] = scores.criteria
    return MetricScores(overall, criteria)


def check_references(items: Sequence[TextItem], name: str) -> None:
    """Raise InputError for the first item without references."""
    for index, item in enumerate(items):
        if not item.references:
            raise InputError(f"item {index} ({item.text[:40]!r}) has no references, which {name} needs")


def as_scores(values: Sequence[float | None]) -> MetricScores:
    """Overall scores only; None becomes NaN."""
    return MetricScores(np.array([np.nan if value is None else value for value in values], dtype=np.float64))
