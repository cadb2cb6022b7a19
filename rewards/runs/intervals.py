"""Intervals that know what belongs together: items of one cluster (a prompt, a scene) are not independent.

Two means serve everywhere. :func:`mean_interval` is for means over prompts and paired gains (normal, with the
cluster-robust variance of Liang and Zeger 1986, as CR1). :func:`multiplicities` and :func:`percentile_interval` are the
clustered bootstrap for every other statistic: whole clusters are drawn with replacement, and a statistic that is drawn
twice with one seed sees the same draws, which pairs it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rewards.errors import InputError

Floats: TypeAlias = NDArray[np.float64]
Seed: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval: value, low and high; NaN where it is undefined. As text: in percent."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.2f} [{100 * self.low:.2f}, {100 * self.high:.2f}]"


def cluster_numbers(labels: Sequence[Hashable]) -> NDArray[np.int64]:
    """Number the clusters from 0 in the order of their first item.

    Example:
        >>> cluster_numbers(["b", "a", "b"]).tolist()
        [0, 1, 0]
    """
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(label, len(known)) for label in labels], dtype=np.int64)


def mean_interval(values: ArrayLike, clusters: Sequence[Hashable], confidence: float = 0.95) -> Estimate:
    """The mean of finite values with an interval that treats clusters, not values, as independent.

    With G clusters and residuals e, Var(mean) = G / (G - 1) * sum over clusters of (sum of e)^2 / n^2 (CR1). Where
    each value is a cluster of its own this is the usual squared standard error.

    Args:
        values: (n,) numbers; those that are not finite take no part.
        clusters: n labels.
        confidence: In (0, 1).

    Returns:
        The mean; NaN for none, and no interval for fewer than two clusters, which say nothing about the spread.

    Raises:
        InputError: Not one label a value.

    Example:
        >>> mean_interval([1.0, 1.0, 3.0, 3.0], ["a", "a", "b", "b"]).value
        2.0
    """
    mean, error = _mean_and_error(values, clusters)
    half = _normal_quantile(confidence) * error
    return Estimate(mean, mean - half, mean + half)


def clustered_error(values: ArrayLike, clusters: Sequence[Hashable]) -> float:
    """The standard error of :func:`mean_interval`'s mean; NaN for fewer than two clusters."""
    return _mean_and_error(values, clusters)[1]


def _mean_and_error(values: ArrayLike, clusters: Sequence[Hashable]) -> tuple[float, float]:
    everything = np.asarray(values, dtype=np.float64)
    if everything.ndim != 1 or len(everything) != len(clusters):
        raise InputError(f"expected one cluster a value, got values {everything.shape} and {len(clusters)} clusters")
    finite = np.isfinite(everything)
    kept = everything[finite]
    numbers = cluster_numbers([label for label, keep in zip(clusters, finite, strict=True) if keep])
    groups = len(np.unique(numbers))
    mean = float(kept.mean()) if len(kept) else math.nan
    if groups < 2:
        return mean, math.nan
    residuals = np.bincount(numbers, weights=kept - mean)
    return mean, math.sqrt(groups / (groups - 1) * float((residuals**2).sum())) / len(kept)


def multiplicities(clusters: int, resamples: int, seed: Seed, chunk: int = 500) -> Iterator[Floats]:
    """Blocks of (b, G) float64: how often each of G clusters was drawn in G draws with replacement.

    Seeds such as (0, 1) and (0, 2) give independent draws: for strata that are drawn each by itself.
    """
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        drawn = rng.integers(0, clusters, size=(rows, clusters)) + np.arange(rows)[:, None] * clusters
        yield np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters).astype(np.float64)


def percentile_interval(value: float, resampled: ArrayLike, confidence: float = 0.95) -> Estimate:
    """A value with the percentile interval of its bootstrap distribution; undefined resamples are left out."""
    drawn = np.asarray(resampled, dtype=np.float64)
    usable = drawn[np.isfinite(drawn)]
    if not len(usable) or not math.isfinite(value):
        return Estimate(value, math.nan, math.nan)
    low, high = np.quantile(usable, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(low), float(high))


def two_sided_p(change: Floats) -> float:
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
    drawn: Floats

    def estimate(self, confidence: float = 0.95) -> Estimate:
        """The share with its percentile interval."""
        return percentile_interval(self.value, self.drawn, confidence)


def share(
    credit: ArrayLike,
    counts: ArrayLike,
    clusters: NDArray[np.int64] | None = None,
    *,
    resamples: int = 2000,
    seed: Seed = 0,
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
    if len(sums) < 2:  # one cluster says nothing about the spread
        top, bottom = sums.sum(0)
        return Share(float(top / bottom) if bottom else math.nan, np.full(resamples, math.nan))
    drawn = np.concatenate([weights @ sums for weights in multiplicities(len(sums), resamples, seed)])
    with np.errstate(invalid="ignore", divide="ignore"):
        (top, bottom), shares = sums.sum(0), drawn[:, 0] / drawn[:, 1]
    return Share(float(top / bottom) if bottom else math.nan, shares)


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; a number between 0 and 1 such as 0.95 is needed")
    if confidence == 0.95:
        return 1.96  # as everybody writes it
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)
