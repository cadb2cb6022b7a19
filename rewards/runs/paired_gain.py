"""How much a score changed on the same prompts with the same noise, with its interval over prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Gain:
    """Paired change: mean over prompts, 95% interval (normal, clustered by prompt), prompts judged both times."""

    mean: float
    low: float
    high: float
    count: int


def paired_gain(before: np.ndarray | Sequence[Any], after: np.ndarray | Sequence[Any]) -> Gain:
    """Mean change over prompts.

    Args:
        before: (P,) scores, or (P, S) for S samples of each prompt; None or NaN where not judged.
        after: The same prompts and noise later. Samples judged only once take no part.

    Returns:
        The gain; NaN where too few prompts were judged both times.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> paired_gain([1.0, 2.0, None], [2.0, 3.0, 4.0])
        Gain(mean=1.0, low=1.0, high=1.0, count=2)
    """
    first, last = (np.array(scores, dtype=np.float64) for scores in (before, after))
    if first.shape != last.shape:
        raise ValueError(f"scores before {first.shape} and after {last.shape} are not of the same prompts")
    difference = last - first
    rows = difference[:, np.newaxis] if difference.ndim == 1 else difference
    means = np.array([row[np.isfinite(row)].mean() for row in rows if np.isfinite(row).any()])
    if len(means) < 2:
        return Gain(float(means.mean()) if len(means) else math.nan, math.nan, math.nan, len(means))
    mean, half = float(means.mean()), 1.96 * float(means.std(ddof=1)) / math.sqrt(len(means))
    return Gain(mean, mean - half, mean + half, len(means))
