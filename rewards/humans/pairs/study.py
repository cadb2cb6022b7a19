"""Preferences against people's: accuracy by group, their mean ("macro") and over all pairs, consistency and ties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rewards.errors import InputError
from rewards.humans.pairs.preferences import Decisions
from rewards.humans.pairs.records import ResponsePair
from rewards.humans.statistics.pair_counts import Array
from rewards.humans.tables import percent, with_interval
from rewards.runs.files import finite_or_none
from rewards.runs.intervals import Estimate, Share, share
from rewards.tables import text_table


@dataclass(frozen=True)
class PairResult:
    """One method on all pairs; shares are fractions with intervals that resample pictures.

    Attributes:
        accuracy: by group, "all" (every pair equal) and "macro" (the groups equal): the mean credit of both orders, a
            tie one half.
        both_orders: the same, where only a pair that is right in both orders counts.
        consistency: share of pairs in which the same response wins in both orders (a tie in both is consistent too).
        first_shown: share of decisions, ties one half, for the response that was shown first; 0.5 is unbiased.
        ties: decisions that were ties, of all decisions.
        abstained: pairs left out because a decision was NaN.
        pairs: judged.
    """

    accuracy: dict[str, Estimate]
    both_orders: dict[str, Estimate]
    consistency: Estimate
    first_shown: Estimate
    ties: int
    abstained: int
    pairs: int


def compare_pairs(
    pairs: Sequence[ResponsePair], decisions: Decisions, *, resamples: int = 2000, seed: int = 0
) -> PairResult:
    """Compare decisions with people's ranking.

    Args:
        pairs: n pairs.
        decisions: (n,) margins in each order.
        resamples, seed: of the bootstrap over pictures.

    Raises:
        InputError: another number of decisions than pairs.
    """
    if not len(pairs) == len(decisions.forward) == len(decisions.backward):
        raise InputError(f"{len(decisions.forward)} and {len(decisions.backward)} decisions for {len(pairs)} pairs")
    signs = np.sign(np.stack([decisions.forward, decisions.backward], axis=1))
    judged = ~np.isnan(signs.sum(axis=1))
    signs = np.where(judged[:, None], signs, 0.0)
    better = np.array([1.0 if pair.better == 0 else -1.0 for pair in pairs])
    credit = (1 + signs * better[:, None]) / 2
    numbers: dict[str, int] = {}
    pictures = np.array([numbers.setdefault(pair.image, len(numbers)) for pair in pairs])
    group = np.array([pair.group for pair in pairs])

    def shares(values: Array) -> dict[str, Estimate]:
        by_group = {
            name: share(np.where(chosen, values, 0.0), chosen, pictures, resamples=resamples, seed=seed)
            for name in sorted(set(group.tolist()))
            for chosen in [judged & (group == name)]
        }
        everything = share(np.where(judged, values, 0.0), judged, pictures, resamples=resamples, seed=seed)
        macro = Share(
            float(np.mean([found.value for found in by_group.values()])),
            np.mean([found.drawn for found in by_group.values()], axis=0),
        )
        return {name: found.estimate() for name, found in {**by_group, "all": everything, "macro": macro}.items()}

    # Shown first: index 0 in the forward order, index 1 in the backward order.
    first = (1 + signs[:, 0]) / 2 + (1 - signs[:, 1]) / 2
    return PairResult(
        accuracy=shares(credit.mean(axis=1)),
        both_orders=shares((credit == 1).all(axis=1).astype(np.float64)),
        consistency=shares((signs[:, 0] == signs[:, 1]).astype(np.float64))["all"],
        first_shown=shares(first / 2)["all"],
        ties=int((signs[judged] == 0).sum()),
        abstained=int((~judged).sum()),
        pairs=int(judged.sum()),
    )


@dataclass
class PairStudy:
    """Results of several methods on the same pairs."""

    pairs: Sequence[ResponsePair]
    resamples: int = 2000
    results: dict[str, PairResult] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, method: str, decisions: Decisions) -> None:
        """Compare one method."""
        self.results[method] = compare_pairs(self.pairs, decisions, resamples=self.resamples)

    def text(self) -> str:
        """A table: a row a method; percent with 95% intervals."""
        if not self.results:
            return ""
        groups = list(next(iter(self.results.values())).accuracy)
        header = ["%", *groups, "right in both orders", "same in both orders", "first shown", "ties", "abstained"]
        rows = [
            [
                name,
                *(with_interval(found.accuracy[group]) for group in groups),
                with_interval(found.both_orders["all"]),
                percent(found.consistency.value, 1),
                percent(found.first_shown.value, 1),
                str(found.ties),
                str(found.abstained),
            ]
            for name, found in self.results.items()
        ]
        return text_table(header, rows)

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; fractions."""

        def plain(table: dict[str, Estimate]) -> dict[str, object]:
            return {name: vars(estimate) for name, estimate in table.items()}

        results = {
            name: {
                "accuracy": plain(found.accuracy),
                "right_in_both_orders": plain(found.both_orders),
                "same_in_both_orders": vars(found.consistency),
                "first_shown": vars(found.first_shown),
                "ties": found.ties,
                "abstained": found.abstained,
                "pairs": found.pairs,
            }
            for name, found in self.results.items()
        }
        return dict(finite_or_none({"pairs": len(self.pairs), "results": results, "notes": self.notes}))
