"""Intervals against formulas and simulations of their own."""

import math

import numpy as np
import pytest

from rewards.errors import InputError
from rewards.runs.intervals import Estimate, mean_interval, multiplicities, percentile_interval, share


def test_without_clusters_it_is_the_usual_interval():
    values = np.random.default_rng(0).normal(size=40)
    half = 1.96 * values.std(ddof=1) / math.sqrt(40)
    found = mean_interval(values, range(40))
    assert (found.value, found.low, found.high) == pytest.approx(
        (values.mean(), values.mean() - half, values.mean() + half)
    )


def test_copies_of_an_item_add_nothing():
    values = np.random.default_rng(0).normal(size=40)
    once = mean_interval(values, range(40))
    thrice = mean_interval(np.repeat(values, 3), np.repeat(np.arange(40), 3).tolist())
    assert (thrice.value, thrice.low, thrice.high) == pytest.approx((once.value, once.low, once.high))


def test_values_that_do_not_exist_take_no_part():
    found = mean_interval([1.0, math.nan, 3.0, math.inf], ["a", "b", "c", "a"])
    assert found == mean_interval([1.0, 3.0], ["a", "c"])


@pytest.mark.parametrize(("values", "clusters", "mean"), [([], [], math.nan), ([2.0, 4.0], ["a", "a"], 3.0)])
def test_fewer_than_two_clusters_have_no_interval(values, clusters, mean):
    found = mean_interval(values, clusters)
    assert found.value == pytest.approx(mean, nan_ok=True) and math.isnan(found.low) and math.isnan(found.high)


def test_labels_must_fit():
    with pytest.raises(InputError, match="one cluster a value"):
        mean_interval([1.0, 2.0], ["a"])


def test_the_interval_covers_the_mean_of_clustered_data():
    """95% of intervals hold the truth; those that take values as independent hold it far less often."""
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(30), 8)
    held = naive = 0
    for _ in range(400):
        values = rng.normal(size=30)[clusters] + rng.normal(size=240)
        found = mean_interval(values, clusters.tolist())
        held += found.low <= 0 <= found.high
        naive += abs(values.mean()) <= 1.96 * values.std(ddof=1) / math.sqrt(240)
    assert held / 400 > 0.91 and naive / 400 < 0.75


def test_the_bootstrap_agrees_with_the_formula():
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(60), 3)
    values = rng.normal(size=60)[clusters] + rng.normal(size=180)
    sums = np.bincount(clusters, weights=values)
    drawn = share(sums, np.full(60, 3), resamples=20_000).estimate()
    formula = mean_interval(values, clusters.tolist())
    assert drawn.value == pytest.approx(formula.value)
    assert (drawn.high - drawn.low) / (formula.high - formula.low) == pytest.approx(1, abs=0.04)


def test_whole_clusters_are_drawn():
    draws = np.concatenate(list(multiplicities(5, 300, seed=0, chunk=70)))
    assert draws.shape == (300, 5) and (draws.sum(1) == 5).all() and draws.max() > 1
    assert np.array_equal(draws, np.concatenate(list(multiplicities(5, 300, seed=0, chunk=70))))


def test_undefined_resamples_are_left_out():
    found = percentile_interval(1.0, [0.0, math.nan, 2.0], confidence=0.5)
    assert found == Estimate(1.0, 0.5, 1.5)
    assert math.isnan(percentile_interval(math.nan, [0.0]).low)
