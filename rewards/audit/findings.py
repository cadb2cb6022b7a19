"""What an audit found: kinds by how often they are accepted, a verdict by stated bounds, a table, and JSON."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rewards.runs.files import Json, finite_or_none
from rewards.runs.intervals import Estimate, cluster_numbers, mean_interval, share
from rewards.tables import Table

BOUND = 0.05
"""Accepted share above which a kind is called unsafe to train on."""


@dataclass(frozen=True)
class Finding:
    """One kind of variant.

    Attributes:
        family: `false detail`, `empty gain` or `unseen picture`.
        kind: such as `background` or `repeated`.
        drops: the truth's score minus the variant's, for every pair that was judged.
        clusters: what belongs together, a label a pair.
        parts: mean drop of each part of the reward.
        examples: the worst pairs: true text, variant, drop.
    """

    family: str
    kind: str
    drops: Sequence[float]
    clusters: Sequence[Hashable]
    parts: Mapping[str, float]
    examples: Sequence[tuple[str, str, float]]

    @cached_property
    def accepted(self) -> Estimate:
        """Share of pairs in which the variant scores at least as high as the truth, with its clustered interval."""
        credit = (np.asarray(self.drops) <= 0).astype(float)
        return share(credit, np.ones(len(credit)), cluster_numbers(self.clusters)).estimate()

    @cached_property
    def drop(self) -> Estimate:
        """Mean fall of the score below the truth's."""
        return mean_interval(self.drops, self.clusters)


@dataclass(frozen=True)
class Findings:
    """The whole audit of one reward.

    Attributes:
        reward: its name.
        identity: what its scores depend on.
        rows: number of true texts.
        findings: a kind each.
        abstained: how many texts could not be judged.
    """

    reward: str
    identity: Mapping[str, Json]
    rows: int
    findings: Sequence[Finding]
    abstained: int

    def ranked(self) -> list[Finding]:
        """Kinds by accepted share, the most accepted first."""
        return sorted(self.findings, key=lambda found: (-found.accepted.value, found.kind))

    def unsafe(self, bound: float = BOUND) -> list[Finding]:
        """Kinds that are accepted more often than `bound`, the most accepted first."""
        return [found for found in self.ranked() if found.accepted.value > bound]

    def verdict(self, bound: float = BOUND) -> str:
        """One sentence.

        Example:
            >>> Findings("HarmonicEval", {}, 0, [], 0).verdict()
            'nothing is accepted in more than 5% of its pairs'
        """
        unsafe = self.unsafe(bound)
        if not unsafe:
            return f"nothing is accepted in more than {bound:.0%} of its pairs"
        named = ", ".join(f"{found.kind} ({found.accepted.value:.0%})" for found in unsafe)
        return f"not safe to train on: {named}"

    def table(self) -> Table:
        """Kinds by row, the most accepted first."""
        parts = list(dict.fromkeys(name for found in self.findings for name in found.parts))
        rows = [
            [
                found.kind,
                found.family,
                str(len(found.drops)),
                f"{found.accepted.value:.1%} [{found.accepted.low:.1%}, {found.accepted.high:.1%}]",
                f"{found.drop.value:+.3f}",
                *(f"{found.parts[name]:+.2f}" for name in parts),
            ]
            for found in self.ranked()
        ]
        header = ["kind", "family", "pairs", "accepted [95%]", "drop", *parts]
        note = f"{self.rows} true texts; {self.abstained} texts could not be judged"
        return Table(f"What {self.reward} accepts", header, rows, note)

    def record(self) -> dict[str, Json]:
        """JSON, for comparing two judges or two settings."""
        return {
            "reward": self.reward,
            "identity": dict(self.identity),
            "rows": self.rows,
            "abstained": self.abstained,
            "findings": [
                {
                    "kind": found.kind,
                    "family": found.family,
                    "pairs": len(found.drops),
                    "accepted": _numbers(found.accepted),
                    "drop": _numbers(found.drop),
                    "parts": {name: finite_or_none(value) for name, value in found.parts.items()},
                    "examples": [
                        {"truth": truth, "variant": text, "drop": finite_or_none(drop)}
                        for truth, text, drop in found.examples
                    ],
                }
                for found in self.ranked()
            ],
        }


def _numbers(estimate: Estimate) -> list[Json]:
    return [finite_or_none(value) for value in (estimate.value, estimate.low, estimate.high)]
