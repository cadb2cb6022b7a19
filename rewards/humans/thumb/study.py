"""Metrics against THumB's criteria, caption by caption, and their ranking of the systems against people's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rewards.errors import InputError
from rewards.humans.metrics.base import MetricScores
from rewards.humans.mmhe.records import CRITERIA as OUR_CRITERIA
from rewards.humans.statistics.agreement import Agreement, agreement, no_agreement
from rewards.humans.statistics.pair_counts import Array
from rewards.humans.tables import percent, with_interval
from rewards.humans.thumb.records import COUNTERPART, CRITERIA, HUMAN, TOTAL, RatedCaption
from rewards.runs.files import finite_or_none
from rewards.runs.intervals import Estimate, share
from rewards.tables import text_table

COLUMNS = (*CRITERIA, TOTAL)
STATISTIC = "kendall_tau_b"


@dataclass(frozen=True)
class Ranking:
    """Mean score of each system (best first), and the share of pairs of systems that people order alike.

    Attributes:
        means: system -> mean with its interval over pictures.
        agreement: share of the pairs of systems in the order of people's totals; a tie counts one half.
    """

    means: dict[str, Estimate]
    agreement: float


@dataclass
class ThumbStudy:
    """Results metric by metric.

    Attributes:
        captions: rated by people.
        resamples: of the intervals, which resample pictures.
        overall: metric -> criterion or "total" -> Agreement of the metric's overall score.
        own: metric -> THumB's criterion -> Agreement of the metric's own criterion that answers to it.
        without_people: metric -> Agreement with the total, on the systems' captions only.
        rankings: metric -> Ranking; "people" first.
        notes: what was left out.
    """

    captions: Sequence[RatedCaption]
    resamples: int = 2000
    overall: dict[str, dict[str, Agreement]] = field(default_factory=dict)
    own: dict[str, dict[str, Agreement]] = field(default_factory=dict)
    without_people: dict[str, Agreement] = field(default_factory=dict)
    rankings: dict[str, Ranking] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rankings["people"] = self._ranking(self._human(TOTAL))

    def add(self, metric: str, scores: MetricScores) -> None:
        """Compare one metric: (n,) overall scores and, where it has them, (n, 5) of our five criteria.

        Raises:
            InputError: another number of scores than captions.
        """
        if len(scores.overall) != len(self.captions):
            raise InputError(f"{metric}: {len(scores.overall)} scores for {len(self.captions)} captions")
        self.overall[metric] = {name: self._agreement(scores.overall, name) for name in COLUMNS}
        systems = np.array([caption.system != HUMAN for caption in self.captions])
        self.without_people[metric] = self._agreement(np.where(systems, scores.overall, np.nan), TOTAL)
        if scores.criteria is not None:
            self.own[metric] = {
                theirs: self._agreement(scores.criteria[:, OUR_CRITERIA.index(ours)], theirs)
                for ours, theirs in COUNTERPART.items()
            }
        self.rankings[metric] = self._ranking(scores.overall)

    def text(self) -> str:
        """Tables for a terminal."""
        pictures = len({caption.picture for caption in self.captions})
        systems = list(self.rankings["people"].means)
        parts = [f"{len(self.captions)} captions of {pictures} pictures; intervals resample pictures."]
        if self.overall:
            header = ["tau-b x 100", *CRITERIA, "total", "total, systems only"]
            rows = [
                [
                    name,
                    *(percent(found[column][STATISTIC].value, 1) for column in CRITERIA),
                    with_interval(found[TOTAL][STATISTIC]),
                    with_interval(self.without_people[name][STATISTIC]),
                ]
                for name, found in self.overall.items()
            ]
            parts.append("Overall score against each criterion\n" + text_table(header, rows))
        if self.own:
            header = ["tau-b x 100", *(f"{ours} / {theirs}" for ours, theirs in COUNTERPART.items())]
            rows = [
                [name, *(with_interval(found[theirs][STATISTIC]) for theirs in COUNTERPART.values())]
                for name, found in self.own.items()
            ]
            parts.append("Criterion against its counterpart (clarity and Inc have none)\n" + text_table(header, rows))
        rows = [
            [name, *(_mean(found.means.get(system)) for system in systems), percent(found.agreement, 0)]
            for name, found in self.rankings.items()
        ]
        parts.append("Systems, best by people first\n" + text_table(["mean", *systems, "pairs as people %"], rows))
        return "\n\n".join([*parts, *(f"note: {note}" for note in self.notes)])

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""

        def plain(table: Mapping[str, Agreement]) -> dict[str, object]:
            return {name: found.as_dict() for name, found in table.items()}

        return finite_or_none(
            {
                "captions": len(self.captions),
                "overall": {name: plain(found) for name, found in self.overall.items()},
                "criteria": {name: plain(found) for name, found in self.own.items()},
                "counterparts": COUNTERPART,
                "systems_only": plain(self.without_people),
                "rankings": {
                    name: {"means": {s: vars(m) for s, m in found.means.items()}, "agreement": found.agreement}
                    for name, found in self.rankings.items()
                },
                "notes": self.notes,
            }
        )

    def _human(self, name: str) -> Array:
        return np.array([caption.scores[name] for caption in self.captions])

    def _agreement(self, scores: Array, name: str) -> Agreement:
        judged = int(np.isfinite(scores).sum())
        if judged < 2:
            return no_agreement(len(scores) - judged)
        pictures = [caption.picture for caption in self.captions]
        return agreement(scores, self._human(name), pictures, resamples=self.resamples)

    def _ranking(self, scores: Array) -> Ranking:
        system = np.array([caption.system for caption in self.captions])
        numbers: dict[str, int] = {}
        pictures = np.array([numbers.setdefault(caption.picture, len(numbers)) for caption in self.captions])
        judged, values = np.isfinite(scores), np.nan_to_num(scores)
        means = {
            name: share(np.where(chosen, values, 0.0), chosen, pictures, resamples=self.resamples).estimate()
            for name in dict.fromkeys(system.tolist())
            for chosen in [judged & (system == name)]
        }
        ordered = dict(sorted(means.items(), key=lambda item: -item[1].value))
        people = self.rankings["people"].means if self.rankings else ordered
        return Ranking(ordered, _order_agreement([ordered[name].value for name in people]))


def _order_agreement(values: Sequence[float]) -> float:
    """Share of pairs in falling order; `values` are in people's order, best first. A tie counts one half."""
    signs = [np.sign(a - b) for place, a in enumerate(values) for b in values[place + 1 :]]
    return float(np.mean([(1 + sign) / 2 for sign in signs])) if signs else float("nan")


def _mean(estimate: Estimate | None) -> str:
    return "-" if estimate is None or estimate.value != estimate.value else f"{estimate.value:.3f}"
