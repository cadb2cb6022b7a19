"""From ``metrics.jsonl`` to curves: read runs, find what they logged, smooth, thin.

Everything here is plain arrays; :mod:`rewards.report.page` draws them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from rewards.errors import InputError
from rewards.runs.files import read_lines
from rewards.runs.metrics import read_metrics
from rewards.runs.samples import read_samples

LARGEST = 1e100
"""Values beyond it are as good as infinite (float32 ends at 3.4e38), and their squares would overflow."""
_PART = re.compile(r"(?P<branch>(?:eval/)?(?:rewards|audit))/(?P<reward>[^/]+)/(?P<part>.+)/mean")


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
class Smoothed:
    """A running mean with its 95% interval, each (N,); the interval is NaN where one value stands alone."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass
class Run:
    """What a run folder holds.

    Attributes:
        name: Name in legends.
        folder: The folder.
        rows: Number of lines in ``metrics.jsonl``.
        samples: From ``samples.jsonl``.
        evaluations: From ``evaluations.jsonl``.
        first_time, last_time: Unix seconds of the first and last line, or None.
    """

    name: str
    folder: Path
    rows: int
    samples: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    first_time: float | None
    last_time: float | None
    _columns: dict[str, dict[int, float]] = field(repr=False)
    _cache: dict[str, Series] = field(default_factory=dict, repr=False)

    @property
    def keys(self) -> list[str]:
        """Every key that was ever logged, sorted."""
        return sorted(self._columns)

    @property
    def last_step(self) -> int | None:
        """The last step with a value, or None."""
        return max((max(column) for column in self._columns.values() if column), default=None)

    def series(self, key: str) -> Series:
        """The finite values of a key, by step (the last line of a step counts); empty for an unknown key."""
        if key not in self._cache:
            column = self._columns.get(key, {})
            counts = self._columns.get(key.removesuffix("/mean") + "/count", {}) if key.endswith("/mean") else {}
            rows = sorted((s, v, counts.get(s, 1.0)) for s, v in column.items() if abs(v) < LARGEST)
            rows = [row for row in rows if row[2] > 0]
            steps, values, weights = (np.array(c, dtype=np.float64) for c in zip(*rows)) if rows else (np.zeros(0),) * 3
            weights[~((weights > 1e-6) & (weights < 1e15))] = 1.0  # no number of samples
            self._cache[key] = Series(steps.astype(np.int64), values, weights)
        return self._cache[key]

    def total(self, key: str) -> float:
        """Sum of a key's values over all steps (for counts); 0 where it was never logged."""
        return float(self.series(key).values.sum())

    def rewards(self, branch: str) -> list[str]:
        """Names of the rewards that have curves in a branch: "rewards", "audit", "eval/rewards" or "eval/audit"."""
        return list(dict.fromkeys(match["reward"] for match in self._means(branch)))

    def parts(self, branch: str, reward: str) -> list[str]:
        """Criteria or element types of a reward in a branch, without "overall"."""
        found = [match["part"] for match in self._means(branch) if match["reward"] == reward]
        return [part for part in found if part != "overall"]

    def _means(self, branch: str) -> list[re.Match[str]]:
        matches = (_PART.fullmatch(key) for key in self.keys)
        return [match for match in matches if match and match["branch"] == branch]


def load_run(path: str | Path, name: str | None = None) -> Run:
    """Read a run folder, finished or going on.

    Args:
        path: The folder, or its ``metrics.jsonl``.
        name: Name in legends; default: the folder's name.

    Returns:
        The run; without any row where nothing was logged yet.

    Raises:
        InputError: No such folder, or a damaged file.
    """
    folder = Path(path)
    if folder.name == "metrics.jsonl":
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"no run folder {str(path)!r}")
    rows = read_metrics(folder) if (folder / "metrics.jsonl").exists() else []
    columns: dict[str, dict[int, float]] = {}
    for row in rows:
        step = row["step"]
        for key, value in row.items():
            if key not in ("step", "time"):
                number = math.nan if value is None or isinstance(value, str) else float(value)
                columns.setdefault(key, {})[step] = number
    times = [row["time"] for row in rows if isinstance(row.get("time"), (int, float))]
    evaluations = folder / "evaluations.jsonl"
    return Run(
        name=name or folder.resolve().name,
        folder=folder,
        rows=len(rows),
        samples=read_samples(folder),
        evaluations=read_lines(evaluations, growing=True) if evaluations.exists() else [],
        first_time=times[0] if times else None,
        last_time=times[-1] if times else None,
        _columns=columns,
    )


def load_runs(paths: Sequence[str | Path]) -> list[Run]:
    """Read several runs; runs whose folders share a name are told apart by their parents' names.

    Raises:
        InputError: No path, or see :func:`load_run`.
    """
    if not paths:
        raise InputError("name at least one run folder")
    runs = [load_run(path) for path in paths]
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            run.name = f"{run.folder.resolve().parent.name}/{run.name}"
    return runs


def default_window(count: int) -> int:
    """Points in a smoothing window for a curve of ``count`` points: a tenth of them, 7 to 500; 1 for short curves."""
    return min(500, max(7, count // 10)) if count >= 20 else 1


def smooth(series: Series, window: int) -> Smoothed:
    """A centred running mean, weighted by the samples behind each value, with a 95% interval of that mean.

    Args:
        series: N values.
        window: Points in the window; it is cut off at the ends of the curve.

    Returns:
        N points. The interval is normal, from the spread of the values within the window.

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
    return Smoothed(series.steps, mean + centre, mean + centre - error, mean + centre + error)


def thin(steps: np.ndarray, values: np.ndarray, points: int = 400) -> np.ndarray:
    """Indices of at most about ``points`` points that keep the look of a curve: each bucket's lowest and highest value.

    Args:
        steps: (N,) sorted; only its length matters.
        values: (N,).
        points: About how many to keep.

    Returns:
        Sorted indices, with the first and the last.
    """
    count = len(steps)
    if count <= points:
        return np.arange(count)
    edges = np.linspace(0, count, max(2, points // 2) + 1).astype(int)
    kept = {0, count - 1}
    for start, end in pairwise(edges.tolist()):
        if end > start:
            bucket = values[start:end]
            kept |= {start + int(bucket.argmin()), start + int(bucket.argmax())}
    return np.array(sorted(kept))


@dataclass(frozen=True)
class Spread:
    """Where nine of ten values of a long curve lie, in bins along it: ``steps``, ``low`` and ``high``, each (B,)."""

    steps: np.ndarray
    low: np.ndarray
    high: np.ndarray


def spread(series: Series, bins: int = 200) -> Spread:
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
    return Spread(steps, low, high)


def first_present(run: Run, keys: Iterable[str]) -> str | None:
    """The first of the keys that the run logged a finite value of."""
    return next((key for key in keys if len(run.series(key))), None)
