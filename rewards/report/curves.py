"""From values to curves: running means with intervals, bands for long curves, and few enough points to draw.

Plain arrays; :mod:`rewards.report.draw` draws them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


@dataclass(frozen=True)
class Series:
    """The finite values of one key, by step: ``steps`` (N,) int64, ``values`` and ``weights`` (N,) float64.

    A weight is the number of samples behind a value (the ``/count`` beside a ``/mean``), 1 where none was logged.
    """

    steps: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def mean(self) -> float:
        """Mean over all samples of all steps; NaN for an empty series."""
        return float(np.average(self.values, weights=self.weights)) if len(self) else math.nan


@dataclass(frozen=True)
class Band:
    """An area along a curve: ``steps``, ``low`` and ``high``, each (B,)."""

    steps: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Smoothed:
    """A running mean with its 95% interval, each (N,); the interval is NaN where one value stands alone."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def default_window(count: int) -> int:
    """Points in a smoothing window for a curve of ``count`` points: a tenth of them, 7 to 500; 1 for short curves."""
    return min(500, max(7, count // 10)) if count >= 20 else 1


def smooth(series: Series, window: int) -> Smoothed:
    """A centred running mean, weighted by the samples behind each value, with a 95% interval of that mean.

    Args:
        series: N values.
        window: Points in the window; it is cut off at the ends of the curve.

    Returns:
        N points. The interval is normal, from the spread of the values within the window. It stays within the lowest
        and the highest value of the curve: a mean of shares is a share.

    Example:
        >>> s = Series(np.arange(3), np.array([0.0, 3.0, 0.0]), np.ones(3))
        >>> smooth(s, 3).mean.tolist()
        [1.5, 1.0, 1.5]
    """
    count = len(series)
    half = max(0, (window - 1) // 2)
    index = np.arange(count)
    start, end = np.maximum(index - half, 0), np.minimum(index + half + 1, count)
    # Centring first keeps the sums of squares from cancelling when the values are far from 0; the median, since one
    # value of 1e20 in a diverged run would take the mean with it.
    centre = float(np.median(series.values)) if count else 0.0
    centred = series.values - centre

    def windowed(values: np.ndarray) -> np.ndarray:
        size = np.abs(values)
        if not count or size.sum() * 1e-16 <= 1e-9 * np.median(size):
            total = np.concatenate([[0.0], np.cumsum(values)])
            return total[end] - total[start]
        # A running total would carry the rounding of a huge value into every window after it.
        return sliding_window_view(np.pad(values, half), 2 * half + 1).sum(axis=1)

    weight = windowed(series.weights)
    mean = windowed(series.weights * centred) / weight
    variance = np.maximum(windowed(series.weights * centred**2) / weight - mean**2, 0.0)
    effective = weight**2 / windowed(series.weights**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(effective > 1.5, 1.96 * np.sqrt(variance / np.maximum(effective - 1, 1e-9)), np.nan)
    low, high = (np.min(series.values), np.max(series.values)) if count else (0.0, 0.0)
    mean = mean + centre
    return Smoothed(series.steps, mean, np.maximum(mean - error, low), np.minimum(mean + error, high))


def thin(values: np.ndarray, points: int = 400) -> np.ndarray:
    """Indices of at most about ``points`` points that keep the look of a curve: each bucket's lowest and highest value.

    Args:
        values: (N,) along the curve.
        points: About how many to keep.

    Returns:
        Sorted indices, with the first and the last.
    """
    count = len(values)
    if count <= points:
        return np.arange(count)
    edges = np.linspace(0, count, max(2, points // 2) + 1).astype(int)
    kept = {0, count - 1}
    for start, end in pairwise(edges.tolist()):
        if end > start:
            bucket = values[start:end]
            kept |= {start + int(bucket.argmin()), start + int(bucket.argmax())}
    return np.array(sorted(kept))


def spread(series: Series, bins: int = 200) -> Band:
    """The 5th and 95th percentile of the values in bins of equally many points.

    Args:
        series: N values, at least as many as bins.
        bins: B.

    Returns:
        A band over the whole curve: the first bin starts at the first step, the last ends at the last.

    Example:
        >>> band = spread(Series(np.arange(40), np.tile(np.arange(20.0), 2), np.ones(40)), bins=2)
        >>> band.steps.tolist(), band.low.round(2).tolist(), band.high.round(2).tolist()
        ([0, 39], [0.95, 0.95], [18.05, 18.05])
    """
    parts = list(zip(np.array_split(series.steps, bins), np.array_split(series.values, bins)))
    steps = np.array([steps[len(steps) // 2] for steps, _ in parts])
    steps[0], steps[-1] = series.steps[0], series.steps[-1]
    low, high = np.array([np.percentile(values, [5, 95]) for _, values in parts]).T
    return Band(steps, low, high)
