"""The clustered bootstrap: whole clusters (all pictures of one prompt) are drawn with replacement.

Items of one prompt share its difficulty, so that an interval that treats them as independent is too narrow. A resample
is a vector w of multiplicities, one a cluster, and each statistic is evaluated under these weights, exactly:

- sums (Pearson) are linear in w;
- ranks (Spearman) are computed anew under w;
- pair counts (tau, pairwise accuracy) are quadratic in w: by matrices over clusters where these are small, else from
  scipy's tau-b of the copied items.

Two metrics resampled with the same seed and clusters see the same w: that is the paired bootstrap.

What 2,000 resamples of all seven statistics cost, beside scipy's tau-b alone (`benchmarks/humans_agreement.py`): a
tenth of it for TIFA's 800 pictures, a third for THumB's 2,500 captions (matrices), and once to twice for the 16,992
judgments of Flickr8k-Expert and the 47,830 of Flickr8k-CF (copies): about ten seconds and a minute on a free core.
"""

from __future__ import annotations

import numpy as np
import scipy.stats

from rewards.humans.statistics import named as statistics
from rewards.humans.statistics.pair_counts import (
    Array,
    Integers,
    PairCounts,
    cluster_matrices,
    dense_ranks,
    pairs_per_item,
)
from rewards.runs.intervals import multiplicities

# Above either, copying the items of every resample is cheaper than matrices over clusters.
MATRIX_ITEMS = 4_000
MATRIX_CLUSTERS = 2_000
_CHUNK = 2_000_000


def resample(
    metric: Array,
    human: Array,
    clusters: Integers,
    *,
    resamples: int,
    seed: int,
    ties: statistics.TieRule = "half",
) -> dict[str, Array]:
    """Evaluate every statistic of :mod:`rewards.humans.statistics.agreement` in resamples of whole clusters.

    Args:
        metric, human: (n,) finite float64.
        clusters: (n,) integers 0..G-1, each present.
        resamples: B, the number of resamples.
        seed: of the multiplicities; the same seed and G give the same resamples.
        ties: the rule of pairwise accuracy.

    Returns:
        (B,) float64 by statistic.
    """
    groups = int(clusters.max()) + 1
    small = len(metric) <= MATRIX_ITEMS and groups <= MATRIX_CLUSTERS
    counted = (Matrices if small else Copies)(metric, human, clusters)
    ranks = dense_ranks(metric), dense_ranks(human)
    moments = _cluster_sums(
        np.stack([np.ones_like(metric), *_moments(metric - metric.mean(), human - human.mean())], axis=1), clusters
    )
    within = _within_counts(metric, human, clusters)
    chunks: list[dict[str, Array]] = []
    for weights in multiplicities(groups, resamples, seed, chunk=max(1, min(500, _CHUNK // len(metric)))):
        of_items = weights[:, clusters]
        sums = weights @ moments
        counts = counted.pair_counts(weights)
        distinct = np.minimum(*((_by_value(rank, of_items) > 0).sum(1) for rank in ranks))
        chunks.append(
            {
                "pearson": statistics.correlation_from_sums(*sums.T),
                "spearman": _weighted_spearman(*ranks, of_items),
                "kendall_tau_a": statistics.kendall_tau_a(counts),
                "kendall_tau_b": statistics.kendall_tau_b(counts),
                "kendall_tau_c": statistics.kendall_tau_c(counts, sums[:, 0], distinct),
                "pairwise_accuracy": statistics.pairwise_accuracy(counts, ties),
                "pairwise_accuracy_within": statistics.pairwise_accuracy(
                    PairCounts(*(weights @ field for field in within)), ties
                ),
            }
        )
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


class Matrices:
    """Pair counts under weights from matrices over clusters: O(n^2) time once, then O(G^2) a resample."""

    def __init__(self, metric: Array, human: Array, clusters: Integers) -> None:
        self.matrices = cluster_matrices(metric, human, clusters)
        self.sizes = np.bincount(clusters).astype(np.float64)

    def pair_counts(self, weights: Array) -> PairCounts:
        """Counts (B,) under weights (B, G)."""
        # An item is tied with itself in every field but the balance; copies of one item are pairs of their own.
        itself = weights @ self.sizes
        forms = PairCounts(*(np.einsum("bg,bg->b", weights @ matrix, weights) for matrix in self.matrices))
        ties = [(form - itself) / 2 for form in forms[:-1]]
        return PairCounts(ties[0], ties[1], ties[2], ties[3], forms.balance / 2)


class Copies:
    """Pair counts under weights from the copied items themselves: O(n log n) time and O(n) memory a resample."""

    def __init__(self, metric: Array, human: Array, clusters: Integers) -> None:
        self.x, self.y = dense_ranks(metric), dense_ranks(human)
        self.both = dense_ranks(self.x * (int(self.y.max()) + 1) + self.y)
        self.clusters = clusters

    def pair_counts(self, weights: Array) -> PairCounts:
        """Counts (B,) under weights (B, G)."""
        rows = [self._counts(np.repeat(np.arange(len(self.x)), w[self.clusters].astype(int))) for w in weights]
        return PairCounts(*np.array(rows).T)

    def _counts(self, items: Integers) -> tuple[float, ...]:
        pairs = len(items) * (len(items) - 1) / 2
        tied_x, tied_y, tied_both = (_tied_pairs(keys[items]) for keys in (self.x, self.y, self.both))
        # scipy counts the discordant pairs; tau-b times its own denominator gives P - Q back, a whole number.
        tau = scipy.stats.kendalltau(self.x[items], self.y[items], method="asymptotic").statistic
        scale = np.sqrt((pairs - tied_x) * (pairs - tied_y))
        return pairs, tied_x, tied_y, tied_both, float(np.rint(tau * scale)) if scale else 0.0


def _tied_pairs(keys: Integers) -> float:
    sizes = np.bincount(keys).astype(np.float64)
    return float((sizes * (sizes - 1)).sum() / 2)


def _weighted_spearman(x: Integers, y: Integers, weights: Array) -> Array:
    """Spearman's rho (B,) when item i occurs weights[b, i] times; mid-ranks for ties, copies among them."""
    centre = (weights.sum(1, keepdims=True) + 1) / 2
    u, v = (_weighted_ranks(rank, weights) - centre for rank in (x, y))
    sums = (np.einsum("bn,bn->b", weights, column) for column in (np.ones_like(u), *_moments(u, v)))
    return statistics.correlation_from_sums(*sums)


def _weighted_ranks(rank: Integers, weights: Array) -> Array:
    sizes = _by_value(rank, weights)
    ranks: Array = np.cumsum(sizes, axis=1) - sizes + (sizes + 1) / 2
    return ranks[:, rank]


def _by_value(rank: Integers, weights: Array) -> Array:
    """Total weight (B, K) of each distinct value."""
    order = np.argsort(rank, kind="stable")
    starts = np.flatnonzero(np.diff(rank[order], prepend=-1))
    return np.asarray(np.add.reduceat(weights[:, order], starts, axis=1), dtype=np.float64)


def _moments(x: Array, y: Array) -> tuple[Array, ...]:
    return x, y, x * x, y * y, x * y


def _within_counts(metric: Array, human: Array, clusters: Integers) -> PairCounts:
    per_item = pairs_per_item(metric, human, within=clusters)
    return PairCounts(*(_cluster_sums(field, clusters) / 2 for field in per_item))


def _cluster_sums(values: Array, clusters: Integers) -> Array:
    """Sum (n,) or (n, k) values over the items of each cluster."""
    if values.ndim == 1:
        return np.bincount(clusters, weights=values).astype(np.float64)
    return np.stack([np.bincount(clusters, weights=column) for column in values.T], axis=1)
