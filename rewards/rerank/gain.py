"""Expected reward of best-of-k for k = 1..n, from one set of n candidates an item.

Drawing k of the n candidates once gives a noisy curve. All k-subsets are equally likely, so that the candidate with the
i-th smallest score is the best of a random subset with probability C(i-1, k-1) / C(n, k): the curve is a weighted sum,
unbiased for every k (the same counting as pass@k, Chen et al. 2021). Applied to another score of the same candidates,
the same probabilities give what a held-out judge or an oracle thinks of the choice: where that curve stays behind the
judge's own, the choice games the judge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewards.errors import InputError
from rewards.rerank.ranking import Ranking
from rewards.runs.files import Json, finite_or_none
from rewards.runs.intervals import Estimate, multiplicities, percentile_interval

Array = NDArray[np.float64]


def best_of_k_probabilities(scores: Sequence[float | None] | Array) -> Array:
    """Probability that each candidate is the chosen one of k drawn without replacement, for every k.

    Args:
        scores: n scores; None or NaN for an abstention, which is chosen only when nothing else was drawn.

    Returns:
        (n, n) float64: row k-1 holds the probabilities for best-of-k. Candidates with equal scores share alike. A row
        sums to 1, or to less where a subset of only abstentions is possible.

    Example:
        >>> best_of_k_probabilities([0.2, 0.9, 0.5]).round(3).tolist()
        [[0.333, 0.333, 0.333], [0.0, 0.667, 0.333], [0.0, 1.0, 0.0]]
    """
    values = np.array([math.nan if score is None else score for score in scores], dtype=np.float64)
    n = len(values)
    abstained = np.isnan(values)
    order = np.argsort(np.where(abstained, -np.inf, values), kind="stable")
    chance = np.zeros((n, n))
    for k in range(1, n + 1):
        total = math.comb(n, k)
        chance[k - 1, order] = [math.comb(place, k - 1) / total for place in range(n)]
    for value in np.unique(values[~abstained]):
        tied = values == value
        chance[:, tied] = chance[:, tied].mean(axis=1, keepdims=True)
    chance[:, abstained] = 0.0
    return chance


@dataclass(frozen=True)
class GainCurves:
    """Curves over k = 1..n.

    Attributes:
        k: the values of k.
        curves: name -> one Estimate a k. `overall` is the judge's own score, `<part>` a criterion or element type,
            `<other>` and `<other>/<part>` what was given as held-out.
        gains: the same curves minus their value at k = 1, with paired intervals: what choosing among k gains.
        items: items that the curves rest on.
    """

    k: list[int]
    curves: dict[str, list[Estimate]]
    gains: dict[str, list[Estimate]]
    items: int

    def as_dict(self) -> dict[str, Json]:
        """Plain values for JSON."""
        tables = {
            table: {name: [vars(point) for point in points] for name, points in getattr(self, table).items()}
            for table in ("curves", "gains")
        }
        return dict(finite_or_none({"k": self.k, "items": self.items, **tables}))


def gain_curves(
    rankings: Sequence[Ranking],
    held_out: Mapping[str, Sequence[Ranking]] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> GainCurves:
    """Expected score of best-of-k by the judge, and of its choice by others.

    Args:
        rankings: from :func:`rewards.rerank.best_of_n`; items with fewer than two candidates are left out, and k runs
            to the smallest number of candidates.
        held_out: name -> rankings of the same items by another reward, in the same order.
        resamples, seed: of the bootstrap over items (95% intervals).

    Raises:
        InputError: no item with two candidates, or held-out rankings of other items.

    Example:
        >>> from rewards.rerank import best_of_n
        >>> longest = lambda prompts, completions, **columns: [len(text) for text in completions]
        >>> curves = gain_curves(best_of_n(longest, [{"image": "x", "candidates": ["a", "aaa", "aa"]}]))
        >>> [round(point.value, 3) for point in curves.curves["overall"]]
        [2.0, 2.667, 3.0]
    """
    columns = _columns(rankings, held_out or {})
    usable = [n for n, ranking in enumerate(rankings) if len(ranking.candidates) > 1]
    if not usable:
        raise InputError("no item has two candidates: there is no curve to draw")
    largest = min(len(rankings[n].candidates) for n in usable)
    numerators = {name: np.zeros((len(usable), largest)) for name in columns}
    weights = {name: np.zeros((len(usable), largest)) for name in columns}
    for place, n in enumerate(usable):
        chance = best_of_k_probabilities(columns["overall"][n])[:largest]
        for name, values in columns.items():
            scores = np.array([math.nan if value is None else value for value in values[n]], dtype=np.float64)
            known = np.isfinite(scores)
            numerators[name][place] = chance[:, known] @ scores[known]
            weights[name][place] = chance[:, known].sum(axis=1)
    draws = np.concatenate(list(multiplicities(len(usable), resamples, seed, chunk=200)))
    curves, gains = {}, {}
    for name in columns:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = [_mean(numerators[name], weights[name], w) for w in (np.ones((1, len(usable))), draws)]
        curves[name] = [percentile_interval(float(means[0][0, k]), means[1][:, k]) for k in range(largest)]
        value, drawn = (mean - mean[:, :1] for mean in means)
        gains[name] = [percentile_interval(float(value[0, k]), drawn[:, k]) for k in range(largest)]
    return GainCurves(list(range(1, largest + 1)), curves, gains, len(usable))


def _mean(numerators: Array, weights: Array, items: Array) -> Array:
    """Mean over items (B, k) of the expected value given that something was judged."""
    shares = np.where(weights > 0, numerators / weights, 0.0)
    return (items @ shares) / (items @ (weights > 0))


def _columns(
    rankings: Sequence[Ranking], held_out: Mapping[str, Sequence[Ranking]]
) -> dict[str, list[list[float | None]]]:
    """name -> for every item the value of each candidate, in the order of the candidates."""
    columns = {"overall": [_by_index(ranking, None) for ranking in rankings]}
    columns |= {part: [_by_index(ranking, part) for ranking in rankings] for part in _parts(rankings)}
    for name, others in held_out.items():
        sizes = [len(ranking.candidates) for ranking in others]
        if sizes != [len(ranking.candidates) for ranking in rankings]:
            raise InputError(f"the rankings by {name!r} are of other items: the numbers of candidates differ")
        columns[name] = [_by_index(ranking, None) for ranking in others]
        columns |= {f"{name}/{part}": [_by_index(ranking, part) for ranking in others] for part in _parts(others)}
    return columns


def _parts(rankings: Sequence[Ranking]) -> list[str]:
    return list(dict.fromkeys(part for r in rankings for ranked in r.candidates for part in ranked.score.parts))


def _by_index(ranking: Ranking, part: str | None) -> list[float | None]:
    values: list[float | None] = [None] * len(ranking.candidates)
    for ranked in ranking.candidates:
        values[ranked.index] = ranked.score.overall if part is None else ranked.score.parts.get(part)
    return values
