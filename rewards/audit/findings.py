"""What an audit found: kinds by how often they are accepted, a verdict by stated bounds, tables, and JSON."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rewards.runs.files import Json, finite_or_none
from rewards.runs.intervals import Estimate, Floats, cluster_numbers, mean_interval, share
from rewards.tables import Table

BOUND = 0.05
"""Accepted share above which a kind is called unsafe to train on."""
CONTROL = "control"
"""The family of variants that are as true as the truth: their acceptance is no fault."""


@dataclass(frozen=True)
class Example:
    """One pair to look at: the truth of a row and a variant of it."""

    truth: str
    variant: str
    true_image: Image.Image
    image: Image.Image
    drop: float


@dataclass(frozen=True)
class Finding:
    """One kind of variant, over n pairs of a truth and a variant.

    Attributes:
        family: `false detail`, `empty gain`, `unseen picture` or `control`.
        kind: such as `background` or `repeated`.
        rows: (n,) the row of each pair.
        clusters: what belongs together, a label a pair.
        truth, variant: (n, 1 + P) scores, the overall score first; NaN where there is none.
        worse: (n,) whether the variant is worse than the truth by a second judge; true throughout without one.
        parts: names of the P parts of the reward.
        examples: the worst pairs.
    """

    family: str
    kind: str
    rows: NDArray[np.int64]
    clusters: Sequence[Hashable]
    truth: Floats
    variant: Floats
    worse: NDArray[np.bool_]
    parts: tuple[str, ...]
    examples: Sequence[Example] = ()

    def with_examples(self, examples: Sequence[Example]) -> Finding:
        """The same finding with pairs to look at."""
        return replace(self, examples=examples)

    @cached_property
    def drops(self) -> Floats:
        """(n, 1 + P) the truth's scores less the variant's; NaN where a pair takes no part."""
        return np.where(self.worse[:, None], self.truth - self.variant, np.nan)

    @property
    def pairs(self) -> int:
        """Number of pairs that take part."""
        return int(np.isfinite(self.drops[:, 0]).sum())

    @property
    def spared(self) -> int:
        """Number of judged pairs that take no part, because the second judge does not find the variant worse."""
        return int(np.isfinite((self.truth - self.variant)[~self.worse, 0]).sum())

    @cached_property
    def accepted(self) -> Estimate:
        """Share of pairs in which the variant scores at least as high as the truth, with its clustered interval."""
        return self._accepted(0)

    @cached_property
    def drop(self) -> Estimate:
        """Mean fall of the score below the truth's."""
        return mean_interval(self.drops[:, 0], self.clusters)

    def by_part(self) -> dict[str, tuple[Estimate, float]]:
        """Accepted share and mean drop by each part (criterion, element type) that some pair has."""
        known = [n for n in range(1, len(self.parts) + 1) if np.isfinite(self.drops[:, n]).any()]
        return {self.parts[n - 1]: (self._accepted(n), float(np.nanmean(self.drops[:, n]))) for n in known}

    def worst(self, count: int = 3) -> list[int]:
        """The pairs with the lowest drops."""
        order = np.argsort(self.drops[:, 0], kind="stable")
        return [int(n) for n in order[:count] if np.isfinite(self.drops[n, 0])]

    def _accepted(self, column: int) -> Estimate:
        drops = self.drops[:, column]
        judged = np.isfinite(drops)
        return share((drops <= 0) & judged, judged, cluster_numbers(self.clusters)).estimate()


@dataclass(frozen=True)
class Findings:
    """The whole audit of one reward.

    Attributes:
        reward: its name.
        identity: what its scores depend on.
        second: likewise of the second judge, where one was asked.
        data: what the pairs depend on: a hash of the rows, seeds.
        rows: number of true texts.
        findings: a kind each.
        abstained: how many texts or pictures could not be judged.
    """

    reward: str
    identity: Mapping[str, Json]
    second: Mapping[str, Json] | None
    data: Mapping[str, Json]
    rows: int
    findings: Sequence[Finding]
    abstained: int

    def ranked(self) -> list[Finding]:
        """Kinds by accepted share, the most accepted first; controls and kinds without a pair at the end."""
        return sorted(self.findings, key=lambda f: (f.family == CONTROL, -np.nan_to_num(f.accepted.value), f.kind))

    def unsafe(self, bound: float = BOUND) -> list[Finding]:
        """Kinds that are accepted more often than `bound`, the most accepted first; those of too few pairs left out."""
        return [
            found
            for found in self.ranked()
            if found.family != CONTROL and found.accepted.value > bound and math.isfinite(found.accepted.low)
        ]

    def scarce(self) -> list[Finding]:
        """Kinds with some pairs, but too few for an interval: nothing can be said of them."""
        return [
            found
            for found in self.ranked()
            if found.family != CONTROL and found.pairs and not math.isfinite(found.accepted.low)
        ]

    def verdict(self, bound: float = BOUND) -> str:
        """One sentence.

        Example:
            >>> Findings("HarmonicEval", {}, None, {}, 0, [], 0).verdict()
            'nothing is accepted in more than 5% of its pairs'
        """
        unsafe, scarce = self.unsafe(bound), self.scarce()
        few = f"; too few pairs to tell: {', '.join(found.kind for found in scarce)}" if scarce else ""
        if not unsafe:
            return f"nothing is accepted in more than {bound:.0%} of its pairs{few}"
        named = ", ".join(f"{found.kind} ({found.accepted.value:.0%})" for found in unsafe)
        return f"not safe to train on: {named}{few}"

    def table(self) -> Table:
        """Kinds by row, the most accepted first; by part only the accepted share."""
        by_part = {found.kind: found.by_part() for found in self.findings}
        parts = list(dict.fromkeys(name for found in by_part.values() for name in found))
        rows = []
        for found in self.ranked():
            shares = [by_part[found.kind].get(name) for name in parts]
            interval = f"{found.accepted.value:.1%} [{found.accepted.low:.1%}, {found.accepted.high:.1%}]"
            cells = ["" if share is None else f"{share[0].value:.0%}" for share in shares]
            pairs = f"{found.pairs}" + (f" of {found.pairs + found.spared}" if found.spared else "")
            rows.append([found.kind, found.family, pairs, interval, f"{found.drop.value:+.3f}", *cells])
        header = ["kind", "family", "pairs", "accepted [95%]", "drop", *parts]
        note = f"{self.rows} truths; {self.abstained} texts or pictures could not be judged"
        if self.second is not None:
            note += "; pairs that the second judge does not find worse take no part"
        return Table(f"What {self.reward} accepts", header, rows, note)

    def truths(self) -> dict[str, float]:
        """Mean score of the truths, `overall` and by part; of those that have a blank picture beside them."""
        blank = self._blank()
        if blank is None:
            return {}
        names = ("overall", *blank.parts)
        return {n: float(np.nanmean(v)) for n, v in zip(names, blank.truth.T) if np.isfinite(v).any()}

    def _blank(self) -> Finding | None:
        return next((found for found in self.findings if found.kind == "blank"), None)

    def prior(self) -> Table | None:
        """What is scored without seeing anything: the truth on a blank picture, by part; None where none was judged."""
        blank = self._blank()
        if blank is None or not np.isfinite(blank.drops).any():
            return None
        rows = []
        for column, name in enumerate(("overall", *blank.parts)):
            both = np.isfinite(blank.drops[:, column])
            if both.any():
                seen, unseen = blank.truth[both, column].mean(), blank.variant[both, column].mean()
                rows.append([name, f"{seen:.3f}", f"{unseen:.3f}", f"{seen - unseen:.3f}"])
        return Table("With the picture, and with a blank one", ["part", "picture", "blank", "what remains"], rows)

    def record(self) -> dict[str, Json]:
        """JSON, for comparing two judges or two settings."""
        return {
            "reward": self.reward,
            "identity": dict(self.identity),
            "second": None if self.second is None else dict(self.second),
            "data": dict(self.data),
            "rows": self.rows,
            "abstained": self.abstained,
            "verdict": self.verdict(),
            "findings": [_record(found) for found in self.ranked()],
        }


def _record(found: Finding) -> dict[str, Json]:
    by_part = found.by_part().items()
    parts: dict[str, Json] = {name: {"accepted": _numbers(share), "drop": drop} for name, (share, drop) in by_part}
    examples: list[Json] = [{"truth": e.truth, "variant": e.variant, "drop": e.drop} for e in found.examples]
    record: dict[str, Json] = {
        "kind": found.kind,
        "family": found.family,
        "pairs": found.pairs,
        "spared": found.spared,
        "accepted": _numbers(found.accepted),
        "drop": _numbers(found.drop),
        "parts": parts,
        "examples": examples,
        "drops": [float(drop) for drop in found.drops[:, 0]],
        "clusters": list(map(str, found.clusters)),
    }
    return dict(finite_or_none(record))


def _numbers(estimate: Estimate) -> list[Json]:
    return [estimate.value, estimate.low, estimate.high]
