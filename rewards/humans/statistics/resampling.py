"""The clustered bootstrap: whole clusters (all pictures of one prompt) are drawn with replacement.

Items of one prompt share its difficulty, so that an interval that treats them as independent is too narrow. A resample
is a vector w of multiplicities, one a cluster, and each statistic is evaluated under these weights:

- sums (Pearson) are linear in w and exact;
- pair counts (tau, pairwise accuracy) are quadratic in w: exact by matrices over clusters on small data, and by their
  expansion around w = 1 on large data;
- ranks (Spearman) are re-computed under w on small data, and expanded likewise on large data.

Two metrics resampled with the same seed and clusters see the same w: that is the paired bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rewards.humans.statistics import named as statistics
from rewards.humans.statistics.pair_counts import PairCounts, cluster_matrices, dense_ranks, pairs_per_item

Array = NDArray[Any]

# Up to here n x n signs are cheap (0.2 s) and the resampled pair counts exact; above, the expansion's error is below
# the third digit of an interval's ends (tests/humans/test_resampling.py compares the two).
EXACT_ITEMS = 4_000
# Resamples in which the expansion of Spearman's rho is compared with re-ranking, to take off its mean error.
_COMPARED = 50
_CHUNK = 2_000_000


class Resampled(NamedTuple):
    """Each statistic in each of B resamples: (B,) float64 arrays by name, and how they were computed."""

    statistics: dict[str, Array]
    method: str


def resample(
    metric: Array,
    human: Array,
    clusters: Array,
    *,
    resamples: int,
    seed: int,
    ties: statistics.TieRule = "half",
    exact: bool | None = None,
) -> Resampled:
    """Evaluate every statistic of :mod:`rewards.humans.statistics.agreement` in bootstrap resamples of whole clusters.

    Args:
        metric, human: (n,) finite float64.
        clusters: (n,) integers 0..G-1, each present.
        resamples: B, the number of resamples.
        seed: of the multiplicities; the same seed and G give the same resamples.
        ties: the rule of pairwise accuracy.
        exact: force the exact or the expanded computation; by default exact up to EXACT_ITEMS items.

    Returns:
        Resampled, method "exact" or "first-order".
    """
    exact = len(metric) <= EXACT_ITEMS if exact is None else exact
    plan = _Exact(metric, human, clusters) if exact else _FirstOrder(metric, human, clusters)
    moments = _cluster_sums(
        np.stack([np.ones_like(metric), *_moments(metric - metric.mean(), human - human.mean())], axis=1), clusters
    )
    within = _within_counts(metric, human, clusters)
    chunks: list[dict[str, Array]] = []
    for weights in multiplicities(int(clusters.max()) + 1, resamples, seed, plan.chunk):
        sums = weights @ moments
        counts, n = plan.pair_counts(weights), sums[:, 0]
        chunks.append(
            {
                "pearson": statistics.correlation_from_sums(*sums.T),
                "spearman": plan.spearman(weights),
                "kendall_tau_a": statistics.kendall_tau_a(counts),
                "kendall_tau_b": statistics.kendall_tau_b(counts),
                "kendall_tau_c": statistics.kendall_tau_c(counts, n, plan.distinct(weights)),
                "pairwise_accuracy": statistics.pairwise_accuracy(counts, ties),
                "pairwise_accuracy_within": statistics.pairwise_accuracy(
                    PairCounts(*(weights @ field for field in within)), ties
                ),
            }
        )
    joined = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    return Resampled(joined, "exact" if exact else "first-order")


def multiplicities(clusters: int, resamples: int, seed: int, chunk: int) -> Iterator[Array]:
    """Blocks of (b, G) float64: how often each cluster was drawn in G draws with replacement."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        drawn = rng.integers(0, clusters, size=(rows, clusters)) + np.arange(rows)[:, None] * clusters
        yield np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters).astype(np.float64)


class _Exact:
    """Statistics under weights without approximation; O(n^2) time once, then O(G^2 + n) a resample."""

    def __init__(self, metric: Array, human: Array, clusters: Array) -> None:
        self.clusters = clusters
        self.matrices = cluster_matrices(metric, human, clusters)
        self.sizes = np.bincount(clusters).astype(np.float64)
        self.ranks = dense_ranks(metric), dense_ranks(human)
        self.chunk = max(1, min(500, _CHUNK // len(metric)))

    def pair_counts(self, weights: Array) -> PairCounts:
        # An item is tied with itself in every field but the balance; copies of one item are pairs of their own.
        itself = weights @ self.sizes
        forms = PairCounts(*(np.einsum("bg,bg->b", weights @ matrix, weights) for matrix in self.matrices))
        ties = [(form - itself) / 2 for form in forms[:-1]]
        return PairCounts(ties[0], ties[1], ties[2], ties[3], forms.balance / 2)

    def spearman(self, weights: Array) -> Array:
        return _weighted_spearman(*self.ranks, weights[:, self.clusters])

    def distinct(self, weights: Array) -> Array:
        of_items = weights[:, self.clusters]
        return np.minimum(*((_by_value(rank, of_items) > 0).sum(1) for rank in self.ranks))


class _FirstOrder:
    """Pair counts and rank sums expanded around all weights 1: O(n log n) once, then O(G) a resample.

    With w = 1 + d a count is Q + d.grad + d^T M d / 2; the last term is replaced by its mean over resamples, because
    leaving it out shifts the intervals of few clusters by half a standard error. For Spearman's rho, which is of third
    degree, that mean is measured on a few resamples.
    """

    def __init__(self, metric: Array, human: Array, clusters: Array) -> None:
        per_item = pairs_per_item(metric, human)
        within = pairs_per_item(metric, human, within=clusters)
        self.sizes = np.bincount(clusters).astype(np.float64)
        self.gradients = np.stack([_cluster_sums(field, clusters) for field in per_item], axis=1)
        n, groups = len(metric), len(self.sizes)
        totals = PairCounts(*(field.sum() / 2 for field in per_item))
        # E[d^T M d] = trace M - (1^T M 1) / G; M holds both directions of a pair, and for ties each item with itself.
        itself = PairCounts(n / 2, n / 2, n / 2, n / 2, 0.0)
        self.means = PairCounts(
            *(
                total + (inside.sum() / 2 + self_pairs) - (total + self_pairs) / groups
                for total, inside, self_pairs in zip(totals, within, itself, strict=True)
            )
        )
        x, y = dense_ranks(metric), dense_ranks(human)
        self.smaller = min(int(x.max()), int(y.max())) + 1
        self.products, gradients = zip(*(_rank_product(a, b) for a, b in ((x, y), (x, x), (y, y))), strict=True)
        self.product_gradients = np.stack([_cluster_sums(gradient, clusters) for gradient in gradients], axis=1)
        self.chunk = max(1, min(500, _CHUNK // groups))
        self.mean_error = 0.0
        errors = [
            _weighted_spearman(x, y, weights[:, clusters]) - self.spearman(weights)
            for weights in multiplicities(groups, _COMPARED, seed=0, chunk=max(1, _CHUNK // n))
        ]
        self.mean_error = float(np.nan_to_num(np.nanmean(np.concatenate(errors))))

    def pair_counts(self, weights: Array) -> PairCounts:
        change = (weights - 1.0) @ self.gradients
        return PairCounts(*(mean + change[:, k] for k, mean in enumerate(self.means)))

    def spearman(self, weights: Array) -> Array:
        change = (weights - 1.0) @ self.product_gradients
        xy, xx, yy = (total + change[:, k] for k, total in enumerate(self.products))
        rho = statistics.ratio(xy, np.sqrt(np.maximum(xx, 0) * np.maximum(yy, 0)))
        return np.clip(rho + self.mean_error, -1.0, 1.0)

    def distinct(self, weights: Array) -> Array:
        return np.full(len(weights), self.smaller)


def _rank_product(x: Array, y: Array) -> tuple[float, Array]:
    """Sum of products of centred mid-ranks, and its derivative by each item's weight at weights 1.

    An item's centred mid-rank is half the weight below minus half the weight above it, so one more copy of item k moves
    the rank of item i by sign(x_i - x_k) / 2.
    """
    n = len(x)
    centred = [_midranks(rank, n) - (n + 1) / 2 for rank in (x, y)]
    value = centred[0] * centred[1]
    return float(value.sum()), value + _pushed(x, centred[1]) + _pushed(y, centred[0])


def _pushed(rank: Array, values: Array) -> Array:
    """For each item k: the sum over i of sign(rank_i - rank_k) / 2 * values_i."""
    by_rank = np.bincount(rank, weights=values)
    below = np.cumsum(by_rank) - by_rank
    return ((by_rank.sum() - below - by_rank - below) / 2)[rank]


def _midranks(rank: Array, n: int) -> Array:
    sizes = np.bincount(rank)
    return (np.cumsum(sizes) - sizes + (sizes + 1) / 2)[rank]


def _weighted_spearman(x: Array, y: Array, weights: Array) -> Array:
    """Spearman's rho (B,) when item i occurs weights[b, i] times; mid-ranks for ties, copies among them."""
    centre = (weights.sum(1, keepdims=True) + 1) / 2
    x, y = (_weighted_ranks(rank, weights) - centre for rank in (x, y))
    sums = (np.einsum("bn,bn->b", weights, column) for column in (np.ones_like(x), *_moments(x, y)))
    return statistics.correlation_from_sums(*sums)


def _weighted_ranks(rank: Array, weights: Array) -> Array:
    sizes = _by_value(rank, weights)
    return (np.cumsum(sizes, axis=1) - sizes + (sizes + 1) / 2)[:, rank]


def _by_value(rank: Array, weights: Array) -> Array:
    """Total weight (B, K) of each distinct value."""
    order = np.argsort(rank, kind="stable")
    starts = np.flatnonzero(np.diff(rank[order], prepend=-1))
    return np.add.reduceat(weights[:, order], starts, axis=1)


def _moments(x: Array, y: Array) -> tuple[Array, ...]:
    return x, y, x * x, y * y, x * y


def _within_counts(metric: Array, human: Array, clusters: Array) -> PairCounts:
    per_item = pairs_per_item(metric, human, within=clusters)
    return PairCounts(*(_cluster_sums(field, clusters) / 2 for field in per_item))


def _cluster_sums(values: Array, clusters: Array) -> Array:
    """Sum (n,) or (n, k) values over the items of each cluster."""
    if values.ndim == 1:
        return np.bincount(clusters, weights=values)
    return np.stack([np.bincount(clusters, weights=column) for column in values.T], axis=1)
