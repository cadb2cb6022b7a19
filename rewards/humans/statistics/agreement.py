"""Does a metric agree with people? Named statistics, clustered intervals, and the test of a difference.

scipy computes the point values; what is ours is the naming (tau-a, tau-b and tau-c are different numbers), the
clustering of the bootstrap and the pairing of two metrics on the same items.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from rewards.errors import InputError
from rewards.humans.statistics import named as statistics
from rewards.humans.statistics.pair_counts import Array, Integers, count_pairs, dense_ranks
from rewards.humans.statistics.resampling import resample
from rewards.runs.files import finite_or_none
from rewards.runs.intervals import Estimate, percentile_interval, two_sided_p

Labels: TypeAlias = Sequence[Hashable] | NDArray[np.generic]

STATISTICS = (
    "pearson",
    "spearman",
    "kendall_tau_a",
    "kendall_tau_b",
    "kendall_tau_c",
    "pairwise_accuracy",
    "pairwise_accuracy_within",
)


@dataclass(frozen=True)
class Agreement:
    """Agreement of one metric with people.

    Attributes:
        statistics: Estimate by name, the names of STATISTICS.
        items: items compared.
        abstained: items left out because the metric gave NaN; they are never taken as 0.
        clusters: independent groups in the bootstrap.
        ties: the tie rule of the two pairwise accuracies.
        confidence, resamples, seed: of the intervals.
    """

    statistics: dict[str, Estimate]
    items: int
    abstained: int
    clusters: int
    ties: str
    confidence: float
    resamples: int
    seed: int

    def __getitem__(self, name: str) -> Estimate:
        return self.statistics[name]

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; undefined numbers are None."""
        return finite_or_none(asdict(self))


@dataclass(frozen=True)
class Difference:
    """Statistic of metric A minus that of metric B on the same items.

    Attributes:
        statistic: which statistic.
        estimate: the difference with its paired, clustered interval.
        p_value: two-sided bootstrap p-value of "no difference"; never below 2 / (resamples + 1).
        items, abstained: compared, and left out because either metric gave NaN.
    """

    statistic: str
    estimate: Estimate
    p_value: float
    items: int
    abstained: int


def agreement(
    metric: ArrayLike,
    human: ArrayLike,
    groups: Labels | None = None,
    *,
    ties: statistics.TieRule = "half",
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Compare a metric with human judgments of the same items.

    Args:
        metric: (n,) scores; NaN means that the metric abstained, and leaves the item out (counted).
        human: (n,) human scores, all finite.
        groups: (n,) labels of the clusters that are resampled as a whole (the pictures of one prompt); None: each item
            by itself.
        ties: what a tie counts in pairwise accuracy, one of `rewards.humans.statistics.named.TIE_RULES`.
        confidence: of the percentile intervals, in (0, 1).
        resamples: of the clustered bootstrap, at least 1.
        seed: of the bootstrap.

    Returns:
        Agreement. `pairwise_accuracy` compares all pairs of items, `pairwise_accuracy_within` those of one group only
        (NaN without groups). A statistic that is undefined (a constant metric) is NaN.

    Raises:
        InputError: lengths that differ, fewer than two items, a human score that is not finite, an infinite metric,
            an unknown tie rule, or a confidence outside (0, 1).

    Example:
        >>> result = agreement([0.1, 0.4, 0.3, 0.9], [1, 2, 3, 5], groups=["a", "a", "b", "b"])
        >>> round(result["kendall_tau_b"].value, 3), result.clusters
        (0.667, 2)
    """
    _check_settings(confidence, resamples)
    x, y, clusters, abstained = _aligned([metric], human, groups)
    with_groups = groups is not None
    values = _point_values(x[0], y, clusters, ties)
    drawn = resample(x[0], y, clusters, resamples=resamples, seed=seed, ties=ties)
    estimates = {name: percentile_interval(values[name], drawn[name], confidence) for name in STATISTICS}
    if not with_groups:
        estimates["pairwise_accuracy_within"] = Estimate(math.nan, math.nan, math.nan)
    return Agreement(
        statistics=estimates,
        items=len(y),
        abstained=abstained,
        clusters=int(clusters.max()) + 1,
        ties=ties,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )


def no_agreement(abstained: int) -> Agreement:
    """What is known of a metric that abstained on all but one item or less: nothing, NaN throughout."""
    nothing = Estimate(math.nan, math.nan, math.nan)
    return Agreement(dict.fromkeys(STATISTICS, nothing), 0, abstained, 0, "half", 0.95, 0, 0)


def difference(
    metric_a: ArrayLike,
    metric_b: ArrayLike,
    human: ArrayLike,
    groups: Labels | None = None,
    *,
    statistic: str = "kendall_tau_b",
    ties: statistics.TieRule = "half",
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Difference:
    """Test whether metric A agrees better with people than metric B, on the same items and the same resamples.

    Args and errors are those of :func:`agreement`; `statistic` is one of STATISTICS. Items on which either metric
    abstained are left out for both.

    Example:
        >>> human = [1, 2, 3, 4, 5, 1, 2, 3]
        >>> good, bad = [1, 2, 3, 4, 5, 1, 2, 3], [3, 1, 2, 5, 1, 4, 1, 3]
        >>> difference(good, bad, human, statistic="spearman").estimate.value > 0
        True
    """
    _check_settings(confidence, resamples)
    if statistic not in STATISTICS:
        raise InputError(f"unknown statistic {statistic!r}; one of {', '.join(STATISTICS)} is needed")
    x, y, clusters, abstained = _aligned([metric_a, metric_b], human, groups)
    values = [_point_values(column, y, clusters, ties)[statistic] for column in x]
    drawn = [resample(column, y, clusters, resamples=resamples, seed=seed, ties=ties)[statistic] for column in x]
    change = drawn[0] - drawn[1]
    return Difference(
        statistic,
        percentile_interval(values[0] - values[1], change, confidence),
        two_sided_p(change),
        len(y),
        abstained,
    )


def _point_values(metric: Array, human: Array, clusters: Integers, ties: statistics.TieRule) -> dict[str, float]:
    counts = count_pairs(metric, human)
    constant = np.ptp(metric) == 0 or np.ptp(human) == 0
    values = {
        "kendall_tau_a": statistics.kendall_tau_a(counts),
        "pairwise_accuracy": statistics.pairwise_accuracy(counts, ties),
        "pairwise_accuracy_within": statistics.pairwise_accuracy(count_pairs(metric, human, within=clusters), ties),
        "pearson": math.nan if constant else scipy.stats.pearsonr(metric, human).statistic,
        "spearman": math.nan if constant else scipy.stats.spearmanr(metric, human).statistic,
        "kendall_tau_b": math.nan if constant else scipy.stats.kendalltau(metric, human, variant="b").statistic,
        "kendall_tau_c": math.nan if constant else scipy.stats.kendalltau(metric, human, variant="c").statistic,
    }
    return {name: float(value) for name, value in values.items()}


def _check_settings(confidence: float, resamples: int) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; a number between 0 and 1 such as 0.95 is needed")
    if resamples < 1:
        raise InputError(f"resamples is {resamples}; at least 1 is needed")


def _aligned(
    metrics: Sequence[ArrayLike], human: ArrayLike, groups: Labels | None
) -> tuple[list[Array], Array, Integers, int]:
    """Check lengths and values, leave out the items on which a metric abstained, number the clusters from 0."""
    y = _vector(human, "human")
    columns = [_vector(metric, "metric") for metric in metrics]
    for column in columns:
        if len(column) != len(y):
            raise InputError(f"metric has {len(column)} scores and human has {len(y)}; one of each an item is needed")
    _refuse(~np.isfinite(y), y, "human score", "every item needs a finite human score")
    for column in columns:
        _refuse(np.isinf(column), column, "metric score", "use NaN for an item that the metric could not judge")
    if groups is not None and len(groups) != len(y):
        raise InputError(f"groups has {len(groups)} labels and human has {len(y)} scores; one label an item is needed")
    keep = ~np.any(np.isnan(columns), axis=0)
    if keep.sum() < 2:
        raise InputError(f"{int(keep.sum())} of {len(y)} items have a metric score; at least 2 are needed")
    if groups is None:
        clusters = np.arange(int(keep.sum()))
    else:
        numbers: dict[Hashable, int] = {}
        clusters = dense_ranks(np.array([numbers.setdefault(label, len(numbers)) for label in groups])[keep])
    return [column[keep] for column in columns], y[keep], clusters, int((~keep).sum())


def _vector(values: ArrayLike, name: str) -> Array:
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} holds something that is not a number: {error}") from error
    if vector.ndim != 1:
        raise InputError(f"{name} has shape {vector.shape}; one number an item, shape (n,), is needed")
    return vector


def _refuse(bad: NDArray[np.bool_], values: Array, what: str, needed: str) -> None:
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        raise InputError(f"{what} of item {index} is {values[index]}; {needed}")
