"""The clustered bootstrap: weights against copies, matrices against copies, coverage against truth."""

import numpy as np
import pytest
import scipy.stats

from rewards.humans.statistics import named as statistics
from rewards.humans.statistics.pair_counts import count_pairs
from rewards.humans.statistics.resampling import Copies, Matrices, resample
from rewards.runs.intervals import multiplicities


def clustered(rng, clusters, size, noise=1.5):
    """Items of a cluster share an effect on the human score and another on the metric."""
    cluster = np.repeat(np.arange(clusters), size)
    truth = rng.normal(size=clusters * size) + rng.normal(size=clusters)[cluster]
    human = np.round(truth + rng.normal(size=len(truth)) * 0.5)
    metric = np.round(truth + rng.normal(size=len(truth)) * noise + 0.7 * rng.normal(size=clusters)[cluster], 1)
    return metric, human, cluster


def test_a_resample_equals_the_statistics_of_the_copied_items():
    rng = np.random.default_rng(0)
    metric, human, cluster = clustered(rng, clusters=12, size=4)
    drawn = resample(metric, human, cluster, resamples=25, seed=5, ties="wrong")
    weights = np.concatenate(list(multiplicities(12, 25, 5, chunk=25)))
    for b, w in enumerate(weights.astype(int)):
        copies = np.repeat(np.arange(len(metric)), w[cluster])
        x, y = metric[copies], human[copies]
        counts = count_pairs(x, y)
        assert drawn["pearson"][b] == pytest.approx(scipy.stats.pearsonr(x, y).statistic)
        assert drawn["spearman"][b] == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
        assert drawn["kendall_tau_a"][b] == pytest.approx(statistics.kendall_tau_a(counts))
        assert drawn["kendall_tau_b"][b] == pytest.approx(scipy.stats.kendalltau(x, y).statistic)
        assert drawn["kendall_tau_c"][b] == pytest.approx(scipy.stats.kendalltau(x, y, variant="c").statistic)
        assert drawn["pairwise_accuracy"][b] == pytest.approx(statistics.pairwise_accuracy(counts, "wrong"))
        # Two copies of a cluster are two clusters: pairs within them are counted for each copy, not across copies.
        label = np.concatenate([np.full(4, n) for n in range(w.sum())])
        by_copy = np.concatenate([np.tile(np.flatnonzero(cluster == g), w[g]) for g in range(12)])
        within = count_pairs(metric[by_copy], human[by_copy], within=label)
        assert drawn["pairwise_accuracy_within"][b] == pytest.approx(statistics.pairwise_accuracy(within, "wrong"))


@pytest.mark.parametrize(("clusters", "size"), [(60, 5), (20, 30), (150, 1)])
def test_matrices_and_copies_count_the_same_pairs(clusters, size):
    metric, human, cluster = clustered(np.random.default_rng(1), clusters, size)
    weights = next(multiplicities(clusters, 40, seed=2))
    by_matrices, by_copies = (way(metric, human, cluster).pair_counts(weights) for way in (Matrices, Copies))
    for name, one, other in zip(by_matrices._fields, by_matrices, by_copies, strict=True):
        assert np.array_equal(one, other), name


def test_large_data_are_copied_and_give_the_same_intervals(monkeypatch):
    metric, human, cluster = clustered(np.random.default_rng(3), 40, 5)
    small = resample(metric, human, cluster, resamples=30, seed=4)
    monkeypatch.setattr("rewards.humans.statistics.resampling.MATRIX_ITEMS", 100)
    large = resample(metric, human, cluster, resamples=30, seed=4)
    for name, values in small.items():
        assert large[name] == pytest.approx(values, abs=1e-12), name


def test_multiplicities_draw_as_many_clusters_as_there_are_and_do_not_depend_on_the_chunk():
    whole = np.concatenate(list(multiplicities(30, 10, seed=1, chunk=10)))
    assert (whole.sum(1) == 30).all()
    assert np.array_equal(whole, np.concatenate(list(multiplicities(30, 10, seed=1, chunk=3))))


def test_clustered_interval_covers_at_the_stated_rate_and_the_unclustered_one_does_not():
    rng = np.random.default_rng(7)
    big_metric, big_human, _ = clustered(rng, clusters=20_000, size=5)
    truth = {
        "pearson": scipy.stats.pearsonr(big_metric, big_human).statistic,
        "kendall_tau_b": scipy.stats.kendalltau(big_metric, big_human).statistic,
    }
    covered = dict.fromkeys(truth, 0)
    naive = dict.fromkeys(truth, 0)
    repeats = 200
    for repeat in range(repeats):
        metric, human, cluster = clustered(rng, clusters=60, size=5)
        for labels, count in ((cluster, covered), (np.arange(len(metric)), naive)):
            drawn = resample(metric, human, labels, resamples=200, seed=repeat)
            for name, value in truth.items():
                low, high = np.quantile(drawn[name], [0.05, 0.95])
                count[name] += low <= value <= high
    for name in truth:
        # 90% stated; three standard errors of 200 repeats are 6.4 points.
        assert 0.836 <= covered[name] / repeats <= 0.964, (name, covered[name] / repeats)
        assert naive[name] < covered[name], name
