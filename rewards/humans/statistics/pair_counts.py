"""Concordant, discordant and tied pairs of items: what Kendall's tau and pairwise accuracy are made of.

Everything here runs in O(n log n) time and O(n) memory, except :func:`cluster_matrices`, which takes O(n^2) time and
makes the bootstrap of tau a matter of matrix products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class PairCounts(NamedTuple):
    """Numbers of pairs of items; each field is a number or an array with one entry an item, cluster or resample.

    Attributes:
        pairs: all pairs looked at.
        tied_metric: pairs with equal metric (whether or not people tie too).
        tied_human: pairs with equal human score.
        tied_both: pairs with both equal.
        balance: concordant minus discordant pairs (P - Q in Kendall's notation).
    """

    pairs: Array
    tied_metric: Array
    tied_human: Array
    tied_both: Array
    balance: Array

    @property
    def concordant(self) -> Array:
        """Pairs that metric and people order alike."""
        return (self._untied + self.balance) / 2

    @property
    def discordant(self) -> Array:
        """Pairs that metric and people order differently."""
        return (self._untied - self.balance) / 2

    @property
    def _untied(self) -> Array:
        return self.pairs - self.tied_metric - self.tied_human + self.tied_both


def dense_ranks(values: Array | Integers) -> Integers:
    """Ranks from 0 without gaps; equal values share a rank."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def pairs_per_item(metric: Array, human: Array, within: Integers | None = None) -> PairCounts:
    """For each item, the pairs that it takes part in; summing over items counts every pair twice.

    Args:
        metric: (n,) finite numbers.
        human: (n,) finite numbers.
        within: (n,) integers; when given, only pairs of items with the same integer count.

    Returns:
        PairCounts of (n,) float64 arrays.

    Example:
        >>> pairs_per_item(np.array([1, 2, 2]), np.array([1, 3, 2])).balance
        array([2., 1., 1.])
    """
    x, y = dense_ranks(metric), dense_ranks(human)
    group = np.zeros_like(x) if within is None else dense_ranks(within)
    if not len(x):
        return PairCounts(*(np.zeros(0) for _ in PairCounts._fields))
    # Keys that put whole groups one after the other: every pair across groups is then concordant and can be taken off.
    x, y = group * (x.max() + 1) + x, group * (y.max() + 1) + y
    sizes = np.bincount(group)
    earlier = np.concatenate([[0], np.cumsum(sizes)[:-1]])[group]
    later = len(x) - earlier - sizes[group]
    concordant = _dominated(x, y) - earlier + _dominated(-x, -y) - later
    pairs = sizes[group] - 1
    tied_x, tied_y = _ties(x), _ties(y)
    tied_xy = _ties(dense_ranks(x) * len(x) + dense_ranks(y))
    discordant = pairs - tied_x - tied_y + tied_xy - concordant
    fields = (pairs, tied_x, tied_y, tied_xy, concordant - discordant)
    return PairCounts(*(np.asarray(field, dtype=np.float64) for field in fields))


def count_pairs(metric: Array, human: Array, within: Integers | None = None) -> PairCounts:
    """All pairs of items, each counted once.

    Example:
        >>> counts = count_pairs(np.array([1, 2, 2]), np.array([1, 3, 2]))
        >>> float(counts.balance), float(counts.tied_metric)
        (2.0, 1.0)
    """
    return PairCounts(*(np.asarray(field.sum() / 2) for field in pairs_per_item(metric, human, within)))


def cluster_matrices(metric: Array, human: Array, clusters: Integers) -> PairCounts:
    """Pair counts between clusters: field[g, h] sums over item i of cluster g and item j of cluster h.

    For multiplicities w of the clusters, the counts in the resampled data are the quadratic forms
    (w^T M w - w^T diag) / 2 that :class:`rewards.humans.statistics.resampling.Matrices` takes.

    Args:
        metric, human: (n,) finite numbers.
        clusters: (n,) integers 0..G-1, each of them present.

    Returns:
        PairCounts of (G, G) float64 matrices, i = j included (an item ties with itself).
    """
    order = np.argsort(clusters, kind="stable")
    x, y = dense_ranks(metric)[order], dense_ranks(human)[order]
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
    count = len(starts)
    matrices: list[Array] = [np.zeros((count, count)) for _ in PairCounts._fields]
    stops = np.append(starts[1:], len(x))
    for g in range(count):
        # One cluster against all items: (size, n) at a time keeps the memory linear in n.
        rows = slice(starts[g], stops[g])
        order_x = np.sign(x[rows, None] - x[None, :])
        order_y = np.sign(y[rows, None] - y[None, :])
        tied_x, tied_y = order_x == 0, order_y == 0
        fields = (np.ones_like(tied_x), tied_x, tied_y, tied_x & tied_y, order_x * order_y)
        for matrix, field in zip(matrices, fields, strict=True):
            matrix[g] = np.add.reduceat(field.sum(0, dtype=np.float64), starts)
    return PairCounts(*matrices)


def _ties(keys: Integers) -> Integers:
    """How many other items share an item's key."""
    inverse = dense_ranks(keys)
    return np.bincount(inverse)[inverse] - 1


def _dominated(x: Integers, y: Integers) -> Integers:
    """For each item, the number of items with smaller x and smaller y.

    Items stand in the order of x (equal x: larger y first, so that an equal x never counts); then the bits of y's rank
    are walked from the highest: among items that agree in the bits above, one with a 1 exceeds those before with a 0.
    """
    order = np.lexsort((-y, x))
    values = dense_ranks(y)[order]
    counts = np.zeros(len(values), dtype=np.int64)
    arranged = np.arange(len(values))
    for bit in range(int(values.max()).bit_length() - 1, -1, -1):
        prefix = values[arranged] >> (bit + 1)
        is_one = (values[arranged] >> bit) & 1
        zeros_before = np.cumsum(1 - is_one) - (1 - is_one)
        starts = np.flatnonzero(np.diff(prefix, prepend=-1))
        lengths = np.diff(np.append(starts, len(values)))
        counts[arranged] += is_one * (zeros_before - np.repeat(zeros_before[starts], lengths))
        arranged = arranged[np.argsort(values[arranged] >> bit, kind="stable")]
    result = np.empty_like(counts)
    result[order] = counts
    return result
