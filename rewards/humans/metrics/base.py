"""The protocol of a metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rewards.errors import InputError


@dataclass(frozen=True)
class TextItem:
    """A text to be scored: about an image, to an input (question), of a box, against references."""

    image: Any
    text: str
    input: str | None = None
    box: tuple[float, ...] | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricScores:
    """`overall` (n,) float64 with NaN for abstentions; `criteria` (n, C) of a metric that scores criteria."""

    overall: NDArray[Any]
    criteria: NDArray[Any] | None = None


class Metric(Protocol):
    """Scores texts; higher is better."""

    name: str
    needs_references: bool

    def __call__(self, items: Sequence[TextItem]) -> MetricScores:
        """Score n texts."""


def check_references(items: Sequence[TextItem], name: str) -> None:
    """Raise InputError for the first item without references."""
    for index, item in enumerate(items):
        if not item.references:
            raise InputError(f"item {index} ({item.text[:40]!r}) has no references, which {name} needs")


def as_scores(values: Sequence[float | None]) -> MetricScores:
    """Overall scores only; None becomes NaN."""
    return MetricScores(np.array([np.nan if value is None else value for value in values], dtype=np.float64))
