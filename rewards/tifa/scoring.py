"""TIFA's numbers from right and wrong answers: pure functions on plain floats.

Two means are in use and differ: a benchmark's TIFA is the mean over prompts of each prompt's mean (macro), an
accuracy by element type is taken over all questions of the type (pooled). NaN marks what could not be judged and is
left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev


def faithfulness(scores: Sequence[float]) -> float:
    """Share of one picture's questions answered right (TIFA §3, eq. 1).

    Args:
        scores: One value in [0, 1] a question: 1 right, 0 wrong, or the probability of the right choice; NaN where the
            judge could not answer.

    Returns:
        Their mean in [0, 1]; NaN when a question could not be answered (a mean over the others would compare pictures
        of one prompt on different questions) or there is none.

    Example:
        >>> faithfulness([1, 0, 1, 1])
        0.75
    """
    return fmean(scores) if scores else math.nan


def geometric_mean(scores: Sequence[float]) -> float:
    """Soft-TIFA's prompt-level score, exp(mean_i log p_i) (GenEval 2, arXiv 2512.16853): one doubt lowers all.

    Args:
        scores: One value in [0, 1] a question, NaN where the judge could not answer.

    Returns:
        A value in [0, 1], 0 where a score is 0; on hard answers therefore the same as :func:`all_right`. NaN when a
        question could not be answered or there is none.

    Example:
        >>> geometric_mean([0.5, 0.125])
        0.25
    """
    if not scores or any(math.isnan(score) for score in scores):
        return math.nan
    return math.exp(fmean(map(math.log, scores))) if min(scores) > 0 else 0.0


def all_right(scores: Sequence[float]) -> float:
    """1 where every question is right (a probability above one half), else 0; NaN as for :func:`faithfulness`.

    Example:
        >>> all_right([1, 0.9]), all_right([1, 0.4])
        (1.0, 0.0)
    """
    if not scores or any(math.isnan(score) for score in scores):
        return math.nan
    return float(min(scores) > 0.5)


# From the questions of one picture to one number.
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "arithmetic": faithfulness,
    "geometric": geometric_mean,
    "all": all_right,
}


def macro_mean(prompt_scores: Mapping[str | int, Sequence[float]]) -> float:
    """Mean over prompts of each prompt's mean over its pictures: the benchmark's TIFA (TIFA §4).

    Args:
        prompt_scores: For each prompt's id the scores of its pictures, in [0, 1] or NaN.

    Returns:
        A value in [0, 1]; NaN when nothing was judged.

    Example:
        >>> macro_mean({"a": [1.0], "b": [0.5, 0.75]})
        0.8125
    """
    means = prompt_means(prompt_scores)
    return fmean(means) if means else math.nan


def macro_deviation(prompt_scores: Mapping[str | int, Sequence[float]]) -> float:
    """Sample standard deviation over prompts of each prompt's mean; 0 for a single prompt, NaN for none.

    Example:
        >>> macro_deviation({"a": [1.0]})
        0.0
    """
    means = prompt_means(prompt_scores)
    if not means:
        return math.nan
    return stdev(means) if len(means) > 1 else 0.0


def prompt_means(prompt_scores: Mapping[str | int, Sequence[float]]) -> list[float]:
    """Each prompt's mean over the pictures that were judged; prompts without any are left out."""
    judged = ([score for score in scores if not math.isnan(score)] for scores in prompt_scores.values())
    return [fmean(scores) for scores in judged if scores]


def pooled_accuracy(scores: Iterable[float]) -> tuple[float, int]:
    """Mean over all judged questions, whatever their prompt, and their number; (NaN, 0) for none.

    Example:
        >>> pooled_accuracy([1, 1, float("nan"), 0, 0])
        (0.5, 4)
    """
    judged = [score for score in scores if not math.isnan(score)]
    return (fmean(judged) if judged else math.nan), len(judged)


def accuracy_by_type(scores: Iterable[tuple[str, float]]) -> dict[str, tuple[float, int]]:
    """Pooled accuracy and count for each element type (TIFA tab. 4), sorted by name.

    Args:
        scores: (element type, score in [0, 1] or NaN), one a question; an empty type counts as "other".

    Example:
        >>> accuracy_by_type([("color", 1), ("color", 0), ("shape", 1)])
        {'color': (0.5, 2), 'shape': (1.0, 1)}
    """
    by_type: dict[str, list[float]] = {}
    for element_type, score in scores:
        by_type.setdefault(element_type or "other", []).append(score)
    return {name: pooled_accuracy(by_type[name]) for name in sorted(by_type)}
