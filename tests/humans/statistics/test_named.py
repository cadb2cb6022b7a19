"""Statistics against scipy on random data with ties, and against enumeration of all pairs on small data."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.errors import InputError
from rewards.humans.statistics import named as statistics
from rewards.humans.statistics.agreement import agreement
from rewards.humans.statistics.pair_counts import cluster_matrices, count_pairs, pairs_per_item

small = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=14)


def enumerate_pairs(x, y, within=None):
    """The definition, pair by pair."""
    result = dict.fromkeys(("pairs", "tied_metric", "tied_human", "tied_both", "balance"), 0)
    for i, j in itertools.combinations(range(len(x)), 2):
        if within is not None and within[i] != within[j]:
            continue
        result["pairs"] += 1
        result["tied_metric"] += x[i] == x[j]
        result["tied_human"] += y[i] == y[j]
        result["tied_both"] += x[i] == x[j] and y[i] == y[j]
        result["balance"] += int(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]))
    return result


@settings(max_examples=200, deadline=None)
@given(small)
def test_pair_counts_equal_enumeration(pairs):
    x, y = np.array(pairs, dtype=float).T
    assert count_pairs(x, y)._asdict() == enumerate_pairs(x, y)


@settings(max_examples=100, deadline=None)
@given(small)
def test_pair_counts_within_groups_equal_enumeration(pairs):
    x, y = np.array(pairs, dtype=float).T
    groups = np.arange(len(x)) * 7 % 3
    assert count_pairs(x, y, within=groups)._asdict() == enumerate_pairs(x, y, groups)


def test_pairs_per_item_counts_every_pair_at_both_ends():
    x, y = np.array([1.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0, 0.0])
    counts = pairs_per_item(x, y)
    assert counts.balance.tolist() == [0, -1, 0, -3]
    assert counts.tied_metric.tolist() == [1, 1, 0, 0]
    assert counts.tied_human.tolist() == [0, 1, 1, 0]
    assert counts.pairs.tolist() == [3, 3, 3, 3]


def test_cluster_matrices_sum_to_the_counts():
    rng = np.random.default_rng(3)
    x, y, clusters = rng.integers(0, 5, 40), rng.integers(0, 4, 40), np.arange(40) % 7
    matrices, counts = cluster_matrices(x, y, clusters), count_pairs(x, y)
    assert matrices.balance.sum() / 2 == counts.balance
    assert (matrices.tied_metric.sum() - 40) / 2 == counts.tied_metric
    first, second = clusters == 2, clusters == 5
    expected = sum(
        np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i in np.flatnonzero(first) for j in np.flatnonzero(second)
    )
    assert matrices.balance[2, 5] == expected


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("levels", [3, 8, 1000])
def test_statistics_equal_scipy_on_random_data_with_ties(seed, levels):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 400))
    y = rng.integers(1, 6, n).astype(float)
    x = np.round((y + rng.normal(0, 2, n)) * levels / 10)
    counts = count_pairs(x, y)
    distinct = min(len(np.unique(x)), len(np.unique(y)))
    b = scipy.stats.kendalltau(x, y, variant="b").statistic
    c = scipy.stats.kendalltau(x, y, variant="c").statistic
    assert statistics.kendall_tau_b(counts) == pytest.approx(b, abs=1e-12)
    assert statistics.kendall_tau_c(counts, n, distinct) == pytest.approx(c, abs=1e-12)
    sums = [n, *(float(v.sum()) for v in (x - x.mean(), y - y.mean()))]
    cx, cy = x - x.mean(), y - y.mean()
    sums = [n, cx.sum(), cy.sum(), (cx * cx).sum(), (cy * cy).sum(), (cx * cy).sum()]
    assert statistics.correlation_from_sums(*sums) == pytest.approx(scipy.stats.pearsonr(x, y).statistic, abs=1e-12)


def test_tau_a_without_ties_equals_tau_b_and_with_ties_is_smaller():
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = x + rng.normal(size=60)
    counts = count_pairs(x, y)
    assert statistics.kendall_tau_a(counts) == pytest.approx(statistics.kendall_tau_b(counts))
    tied = count_pairs(np.round(x), np.round(y))
    assert abs(statistics.kendall_tau_a(tied)) < abs(statistics.kendall_tau_b(tied))


def test_pairwise_accuracy_by_hand_under_each_tie_rule():
    # Pairs: (0,1) right, (0,2) metric tie, (1,2) human tie, (0,3) wrong, (1,3) wrong, (2,3) right.
    x, y = np.array([1.0, 2.0, 1.0, 1.5]), np.array([2.0, 3.0, 3.0, 1.0])
    # (2,3): x 1 < 1.5, y 3 > 1 -> wrong; (0,3): x 1 < 1.5, y 2 > 1 -> wrong; (1,3): x 2 > 1.5, y 3 > 1 -> right.
    counts = count_pairs(x, y)
    assert statistics.pairwise_accuracy(counts, "half") == pytest.approx(2.5 / 5)
    assert statistics.pairwise_accuracy(counts, "wrong") == pytest.approx(2 / 5)
    assert statistics.pairwise_accuracy(counts, "drop") == pytest.approx(2 / 4)
    assert statistics.pairwise_accuracy(counts, "equal") == pytest.approx(2 / 6)


def test_unknown_tie_rule_is_refused():
    with pytest.raises(InputError, match="unknown tie rule 'maybe'"):
        statistics.pairwise_accuracy(count_pairs(np.arange(3), np.arange(3)), "maybe")


def test_constant_metric_is_undefined_not_zero():
    result = agreement([1.0, 1.0, 1.0], [1, 2, 3], resamples=20)
    assert math.isnan(result["pearson"].value) and math.isnan(result["kendall_tau_b"].value)
    assert result["pairwise_accuracy"].value == 0.5
    assert result.as_dict()["statistics"]["pearson"]["value"] is None
