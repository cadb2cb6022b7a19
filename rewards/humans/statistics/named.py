"""The named statistics of agreement, from pair counts, ranks and sums.

Kendall's tau has three variants that differ by up to 7 points on TIFA's human study, so none of them is called just
"tau" here. Every function works on numbers and, elementwise, on arrays with one entry a bootstrap resample.

    tau-a = (P - Q) / N                                   all pairs count, ties included
    tau-b = (P - Q) / sqrt((N - T_x)(N - T_y))            pairs tied in x or y are taken off
    tau-c = (P - Q) / (n^2 (m - 1) / (2 m))               m = the smaller number of distinct values (Stuart)

with N = n (n - 1) / 2 pairs of n items, P concordant, Q discordant, T_x and T_y tied in metric and in human score.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from rewards.errors import InputError
from rewards.humans.statistics.pair_counts import Array, PairCounts

TieRule = Literal["half", "wrong", "drop", "equal"]
TIE_RULES: dict[str, str] = {
    "half": "of the pairs that people order, a metric tie counts one half",
    "wrong": "of the pairs that people order, a metric tie counts as wrong",
    "drop": "pairs tied by people or by the metric are left out",
    "equal": "all pairs; a metric tie is right exactly where people tie (Deutsch et al. 2023)",
}


def kendall_tau_a(counts: PairCounts) -> Array:
    """(P - Q) / N, in [-1, 1]; ties pull it towards 0."""
    return ratio(counts.balance, counts.pairs)


def kendall_tau_b(counts: PairCounts) -> Array:
    """(P - Q) / sqrt((N - T_x)(N - T_y)), in [-1, 1]; NaN when one side is constant."""
    return ratio(counts.balance, np.sqrt((counts.pairs - counts.tied_metric) * (counts.pairs - counts.tied_human)))


def kendall_tau_c(counts: PairCounts, n: Array | float, distinct: Array | float) -> Array:
    """Stuart's tau-c, 2 m (P - Q) / (n^2 (m - 1)); `distinct` is m, the smaller number of distinct values.

    Example:
        >>> from rewards.humans.statistics.pair_counts import count_pairs
        >>> x, y = np.array([1, 2, 2]), np.array([1, 3, 2])
        >>> round(float(kendall_tau_c(count_pairs(x, y), n=3, distinct=2)), 4)
        0.8889
    """
    return ratio(2.0 * distinct * counts.balance, np.square(n, dtype=np.float64) * (distinct - 1))


def pairwise_accuracy(counts: PairCounts, ties: TieRule = "half") -> Array:
    """Share of pairs that the metric orders as people do, in [0, 1]; see TIE_RULES for what a tie counts.

    Raises:
        InputError: unknown tie rule.

    Example:
        >>> from rewards.humans.statistics.pair_counts import count_pairs
        >>> counts = count_pairs(np.array([1, 2, 2]), np.array([1, 3, 2]))
        >>> [round(float(pairwise_accuracy(counts, ties)), 3) for ties in ("half", "wrong", "drop", "equal")]
        [0.833, 0.667, 1.0, 0.667]
    """
    ordered = counts.pairs - counts.tied_human
    if ties == "half":
        return ratio(counts.concordant + (counts.tied_metric - counts.tied_both) / 2, ordered)
    if ties == "wrong":
        return ratio(counts.concordant, ordered)
    if ties == "drop":
        return ratio(counts.concordant, counts.concordant + counts.discordant)
    if ties == "equal":
        return ratio(counts.concordant + counts.tied_both, counts.pairs)
    raise InputError(f"unknown tie rule {ties!r}; one of {', '.join(get_args(TieRule))} is needed")


def correlation_from_sums(n: Array, x: Array, y: Array, xx: Array, yy: Array, xy: Array) -> Array:
    """Pearson's r from the sums of 1, x, y, x^2, y^2, x y; give it centred values, for the sake of the digits."""
    covariance = n * xy - x * y
    # A variance that is only rounding noise belongs to a constant: r is undefined, not noise over noise.
    variance_x, variance_y = (
        np.where(v > 1e-12 * n * s, v, 0.0) for v, s in ((n * xx - x * x, xx), (n * yy - y * y, yy))
    )
    return np.clip(ratio(covariance, np.sqrt(variance_x * variance_y)), -1.0, 1.0)


def ratio(numerator: Array | float, denominator: Array | float) -> Array:
    """numerator / denominator, NaN (undefined, not 0) where the denominator is 0."""
    denominator = np.asarray(denominator, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > 0, numerator / denominator, np.nan)
