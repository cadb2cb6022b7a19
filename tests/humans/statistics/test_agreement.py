"""agreement() and difference(): intervals, abstentions, and errors that name the item."""

import json
import math

import numpy as np
import pytest
import scipy.stats

from rewards.errors import InputError
from rewards.humans.statistics.agreement import STATISTICS, agreement, difference


def data(n=200, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    human = rng.integers(1, 6, n).astype(float)
    return human + rng.normal(0, noise, n), human


def test_point_values_are_scipys_and_lie_in_their_intervals():
    metric, human = data()
    result = agreement(metric, human, groups=np.arange(200) // 4, resamples=300)
    assert result["pearson"].value == scipy.stats.pearsonr(metric, human).statistic
    assert result["spearman"].value == scipy.stats.spearmanr(metric, human).statistic
    assert result["kendall_tau_c"].value == scipy.stats.kendalltau(metric, human, variant="c").statistic
    assert (result.items, result.clusters) == (200, 50)
    for name in STATISTICS:
        assert result[name].low < result[name].value < result[name].high, name


def test_abstentions_are_left_out_and_counted_never_taken_as_zero():
    metric, human = data()
    holes = metric.copy()
    holes[::7] = np.nan
    keep = ~np.isnan(holes)
    result, expected = agreement(holes, human, resamples=50), agreement(metric[keep], human[keep], resamples=50)
    assert result.abstained == 29 and result.items == 171
    assert result.statistics == {**expected.statistics, "pairwise_accuracy_within": result["pairwise_accuracy_within"]}


def test_order_of_items_and_names_of_groups_do_not_matter_to_the_values():
    metric, human = data()
    order = np.random.default_rng(1).permutation(200)
    groups = np.arange(200) // 4
    a = agreement(metric, human, groups, resamples=50)
    b = agreement(metric[order], human[order], [f"prompt {g}" for g in groups[order]], resamples=50)
    for name in STATISTICS:
        assert a[name].value == pytest.approx(b[name].value, abs=1e-12)


def test_without_groups_there_is_no_accuracy_within_groups():
    assert math.isnan(agreement(*data(), resamples=20)["pairwise_accuracy_within"].value)


def test_difference_is_paired_and_sees_a_better_metric():
    good, human = data(noise=1.0)
    bad = good + np.random.default_rng(5).normal(0, 1.5, 200)
    result = difference(good, bad, human, groups=np.arange(200) // 4, statistic="kendall_tau_b", resamples=999)
    assert result.estimate.low > 0 and result.p_value == 2 / 1000
    same = difference(good, good, human, resamples=99)
    assert same.estimate.value == 0 and same.p_value == 1.0
    # Metrics that err alike differ by little: the paired interval is far narrower than the two intervals together.
    near = difference(good, good + 0.01 * bad, human, resamples=300).estimate
    alone = agreement(good, human, resamples=300)["kendall_tau_b"]
    assert near.high - near.low < 0.25 * (alone.high - alone.low)


def test_difference_leaves_out_what_either_metric_left_out():
    metric, human = data()
    a, b = metric.copy(), metric.copy()
    a[:10], b[5:20] = np.nan, np.nan
    assert (difference(a, b, human, resamples=20).items, difference(a, b, human, resamples=20).abstained) == (180, 20)


def test_p_value_is_uniform_enough_when_there_is_no_difference():
    p_values = []
    for seed in range(120):
        metric, human = data(n=80, seed=seed)
        rng = np.random.default_rng(1000 + seed)
        a, b = metric + rng.normal(size=80), metric + rng.normal(size=80)
        p_values.append(difference(a, b, human, statistic="pearson", resamples=199, seed=seed).p_value)
    assert np.mean(np.array(p_values) < 0.1) < 0.2
    assert 0.35 < np.mean(p_values) < 0.65


@pytest.mark.parametrize(
    ("metric", "human", "groups", "message"),
    [
        ([1, 2], [1, 2, 3], None, "metric has 2 scores and human has 3"),
        ([1, 2, 3], [1, math.nan, 3], None, "human score of item 1 is nan"),
        ([1, math.inf, 3], [1, 2, 3], None, "metric score of item 1 is inf"),
        ([1, 2, 3], [1, 2, 3], ["a"], "groups has 1 labels and human has 3"),
        ([math.nan, 2, math.nan], [1, 2, 3], None, "1 of 3 items have a metric score"),
        (["a", 2, 3], [1, 2, 3], None, "metric holds something that is not a number"),
        ([[1, 2], [3, 4]], [1, 2], None, r"metric has shape \(2, 2\)"),
    ],
)
def test_wrong_input_is_named(metric, human, groups, message):
    with pytest.raises(InputError, match=message):
        agreement(metric, human, groups)


def test_wrong_settings_are_named():
    with pytest.raises(InputError, match="confidence is 95"):
        agreement([1, 2], [1, 2], confidence=95)
    with pytest.raises(InputError, match="resamples is 0"):
        agreement([1, 2], [1, 2], resamples=0)
    with pytest.raises(InputError, match="unknown statistic 'tau'"):
        difference([1, 2], [1, 2], [1, 2], statistic="tau")


def test_json_has_no_nan():
    json.dumps(agreement([1, 1, 1], [1, 2, 3], resamples=5).as_dict(), allow_nan=False)
