"""From the verdicts of a checklist to one number: pure functions.

    r = sum_j w_j c_j / sum_j w_j        (explicit aggregation; Rubrics as Rewards, arXiv 2507.17746)

with c_j in [0, 1] what item j's verdict scores and w_j its weight. The weights can be drawn towards the items of which
the judge is certain (HarmonicEval eq. 1), or towards those that tell the samples of a group apart (POW3R, arXiv
2605.20164), while the stated weights stay factors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rewards.harmonic.weighting import harmonic_weights


def verdict_score(probabilities: Tensor, values: Sequence[float], soft: bool) -> float:
    """What a verdict scores.

    Args:
        probabilities: `(K,)` of the choices, with sum 1.
        values: `(K,)` what each choice scores.
        soft: the expected value; otherwise that of the most probable choice (the first of equal ones).

    Example:
        >>> probabilities = torch.tensor([0.2, 0.3, 0.5])
        >>> verdict_score(probabilities, (0.0, 0.5, 1.0), soft=False)
        1.0
        >>> round(verdict_score(probabilities, (0.0, 0.5, 1.0), soft=True), 6)
        0.65
    """
    if not soft:
        return values[int(probabilities.argmax())]
    return float((probabilities.double() * torch.tensor(values, dtype=torch.float64)).sum())


def verdict_deviation(probabilities: Tensor, values: Sequence[float]) -> float:
    """Deviation of a verdict's value under the judge's probabilities (HarmonicEval eq. 2 on these values).

    Example:
        >>> verdict_deviation(torch.tensor([0.5, 0.5]), (0.0, 1.0))
        0.5
    """
    points = torch.tensor(values, dtype=torch.float64)
    weights = probabilities.double()
    mean = (weights * points).sum()
    return float((weights * (points - mean) ** 2).sum().sqrt())


def weighted_mean(scores: Sequence[float], weights: Sequence[float]) -> float:
    """sum_j w_j c_j / sum_j w_j; NaN where a score is.

    Example:
        >>> weighted_mean([1.0, 0.0], [3.0, 1.0])
        0.75
    """
    return sum(w * c for w, c in zip(weights, scores, strict=True)) / sum(weights)


def certain_weights(weights: Sequence[float], deviations: Sequence[float], gamma: float) -> list[float]:
    """Stated weights times HarmonicEval's, with sum 1: certain verdicts count more.

    Args:
        weights: `(J,)` stated ones, above 0.
        deviations: `(J,)` of the verdicts.
        gamma: from 1 (only the stated weights) towards 0 (only the most certain).

    Example:
        >>> certain_weights([1.0, 1.0], [1.0, 2.0], gamma=0.5)
        [0.8, 0.2]
    """
    harmonic = harmonic_weights(torch.tensor(deviations, dtype=torch.float64), gamma).tolist()
    return _normalized([w * h for w, h in zip(weights, harmonic, strict=True)], weights)


def contrast_weights(weights: Sequence[float], scores: Tensor) -> list[float]:
    """Stated weights times each item's spread within a group, with sum 1; the stated ones where nothing differs.

    Args:
        weights: `(J,)` stated ones.
        scores: `(G, J)` of the group's samples, without NaN.

    Example:
        >>> contrast_weights([1.0, 1.0], torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        [0.0, 1.0]
    """
    spread = scores.double().std(0, unbiased=False).tolist() if len(scores) else [0.0] * len(weights)
    return _normalized([w * s for w, s in zip(weights, spread, strict=True)], weights)


def _normalized(values: Sequence[float], otherwise: Sequence[float]) -> list[float]:
    chosen = values if sum(values) > 0 else otherwise
    return [value / sum(chosen) for value in chosen]
