"""The clustered bootstrap: weights against copies, expansion against exact, coverage against truth."""

import numpy as np
import pytest
import scipy.stats

from rewards.humans.statistics import named as statistics
from rewards.humans.statistics.pair_counts import count_pairs
from rewards.humans.statistics.resampling import multiplicities, resample

NAMES = ("pearson", "spearman", "kendall_tau_a", "kendall_tau_b", "kendall_tau_c", "pairwise_accuracy")


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
    drawn = resample(metric, human, cluster, resamples=25, seed=5, ties="wrong").statistics
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


@pytest.mark.parametrize(("clusters", "size", "tolerance"), [(500, 4, 0.2), (50, 30, 0.2), (20, 60, 0.35)])
def test_expansion_agrees_with_exact_resampling(clusters, size, tolerance):
    metric, human, cluster = clustered(np.random.default_rng(1), clusters, size)
    exact, expanded = (
        resample(metric, human, cluster, resamples=1000, seed=2, exact=exact).statistics for exact in (True, False)
    )
    for name in NAMES:
        ends = [np.quantile(draws[name], [0.025, 0.975]) for draws in (exact, expanded)]
        assert np.abs(ends[0] - ends[1]).max() < tolerance * exact[name].std(), name


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
            drawn = resample(metric, human, labels, resamples=200, seed=repeat, exact=False).statistics
            for name, value in truth.items():
                low, high = np.quantile(drawn[name], [0.05, 0.95])
                count[name] += low <= value <= high
    for name in truth:
        # 90% stated; three standard errors of 200 repeats are 6.4 points.
        assert 0.836 <= covered[name] / repeats <= 0.964, (name, covered[name] / repeats)
        assert naive[name] < covered[name], name
