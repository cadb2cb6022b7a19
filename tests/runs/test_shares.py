"""Shares of clusters against values by hand and against scipy's bootstrap; strata drawn each by itself."""

import math

import numpy as np
import pytest
import scipy.stats

from rewards.runs.intervals import multiplicities, share


def test_a_share_is_credit_over_counts_and_draws_whole_clusters():
    found = share([1, 0, 1, 1], [1, 1, 1, 0], np.array([0, 0, 1, 1]), resamples=400, seed=0)
    assert found.value == pytest.approx(3 / 3)
    # Two clusters: (1 of 2) and (2 of 1); a resample holds one of them twice, or both.
    assert set(found.drawn.round(6)) == {0.5, 1.0, 2.0}


def test_the_interval_is_scipys():
    rng = np.random.default_rng(0)
    right = (rng.random(200) < 0.7).astype(float)
    ours = share(right, np.ones(200), resamples=4000, seed=1).estimate()
    theirs = scipy.stats.bootstrap((right,), np.mean, n_resamples=4000, method="percentile", rng=2).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.006)
    assert ours.value == right.mean()


def test_what_is_not_counted_is_left_out_and_nothing_is_undefined():
    assert share([1, 0], [1, 0], resamples=5).value == 1.0
    assert math.isnan(share([0.0], [0.0], resamples=5).estimate().low)
    assert math.isnan(share([], [], resamples=5).value)
    alone = share([3.0], [4.0], resamples=5).estimate()
    assert alone.value == 0.75 and math.isnan(alone.low) and math.isnan(alone.high)


def test_copies_of_a_cluster_say_no_more_than_one():
    rng = np.random.default_rng(1)
    means = rng.random(200)
    found = share(means, np.ones(200)).estimate()
    half = 1.96 * means.std(ddof=1) / math.sqrt(200)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.1) and found.low < means.mean() < found.high
    again = share(10 * means, np.full(200, 10)).estimate()
    assert (again.low, again.high) == pytest.approx((found.low, found.high))


def test_seeds_of_strata_are_independent_and_a_seed_is_repeatable():
    one, other, again = (next(multiplicities(50, 3, seed)) for seed in ((0, 1), (0, 2), (0, 1)))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
