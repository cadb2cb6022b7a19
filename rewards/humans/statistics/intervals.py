"""A value with its interval from resamples: the percentile interval, the p-value, and shares of clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rewards.humans.statistics.named import ratio
from rewards.humans.statistics.pair_counts import Array, Integers
from rewards.humans.statistics.resampling import Seed, multiplicities


@dataclass(frozen=True)
class Estimate:
    """A statistic with its interval: value, low and high as fractions (not percent); NaN where it is undefined."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.2f} [{100 * self.low:.2f}, {100 * self.high:.2f}]"


def percentile_interval(value: float, resampled: Array, confidence: float = 0.95) -> Estimate:
    """A value with the percentile interval of its bootstrap distribution; undefined resamples are left out."""
    usable = resampled[np.isfinite(resampled)]
    if not len(usable) or not math.isfinite(value):
        return Estimate(value, math.nan, math.nan)
    low, high = np.quantile(usable, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(low), float(high))


def two_sided_p(change: Array) -> float:
    """Two-sided bootstrap p-value of "no difference" from resampled differences; never below 2 / (resamples + 1)."""
    usable = change[np.isfinite(change)]
    if not len(usable):
        return math.nan
    # One is added to both counts, so that no finite number of resamples claims a probability of 0.
    tail = min((usable <= 0).sum(), (usable >= 0).sum()) + 1
    return float(min(1.0, 2 * tail / (len(usable) + 1)))


class Share(NamedTuple):
    """A share of credit, and the same share in each of B resamples of whole clusters."""

    value: float
    drawn: Array

    def estimate(self, confidence: float = 0.95) -> Estimate:
        """The share with its percentile interval."""
        return percentile_interval(self.value, self.drawn, confidence)


def share(
    credit: ArrayLike, counts: ArrayLike, clusters: Integers | None = None, *, resamples: int = 2000, seed: Seed = 0
) -> Share:
    """sum(credit) / sum(counts), where whole clusters are drawn again; NaN where nothing is counted.

    Args:
        credit: (n,) credit of each item.
        counts: (n,) what each item counts; 0 leaves it out.
        clusters: (n,) integers 0..G-1 of what is drawn together; None: each item by itself.
        resamples: B.
        seed: of the draws; two calls with the same seed and number of clusters are paired.

    Example:
        >>> share([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], resamples=10).value
        0.75
    """
    sums = np.stack([np.asarray(credit, dtype=np.float64), np.asarray(counts, dtype=np.float64)], axis=1)
    if clusters is not None:
        sums = np.stack([np.bincount(clusters, weights=column) for column in sums.T], axis=1)
    if not len(sums):
        return Share(math.nan, np.full(resamples, math.nan))
    drawn = np.concatenate([weights @ sums for weights in multiplicities(len(sums), resamples, seed)])
    value = ratio(*sums.sum(0))
    return Share(float(value), ratio(drawn[:, 0], drawn[:, 1]))
