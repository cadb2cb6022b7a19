"""Several metrics on one caption benchmark, beside the numbers that the papers printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rewards.errors import InputError
from rewards.humans.captions.benchmarks import BENCHMARKS, PUBLISHED, CaptionReading, compare, headline
from rewards.humans.captions.fleur import (
    ScoredCaption,
    labelled_by_results,
    read_fleur_scores,
    scores_of_captions,
    scores_of_pairs,
)
from rewards.humans.captions.records import PAIR_TIES, CaptionPair, JudgedCaption, PairTies
from rewards.humans.columns import read_columns
from rewards.humans.statistics.pair_counts import Array
from rewards.humans.tables import percent
from rewards.runs.files import finite_or_none
from rewards.runs.intervals import Estimate
from rewards.tables import text_table

SHORT = {"kendall_tau_b": "tau-b", "kendall_tau_c": "tau-c"}


@dataclass
class CaptionStudy:
    """Results by row name, filled metric by metric.

    Attributes:
        benchmark: its name.
        reading: its records and notes.
        resamples: of the intervals.
        rows: name of the row (metric; for pairs also the rule for ties and the source of labels) -> statistics.
        published: row name -> what the papers printed.
        notes: what was left out, and why.
    """

    benchmark: str
    reading: CaptionReading
    resamples: int = 2000
    rows: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def of_pairs(self) -> bool:
        """Whether the benchmark is of pairs of captions."""
        return BENCHMARKS[self.benchmark][1] == "accuracy"

    def add(self, metric: str, scores: Array) -> None:
        """Compare one metric, a score an item of :func:`rewards.humans.captions.benchmarks.items_to_score`."""
        self._row(metric, metric, scores)

    def add_file(self, path: Path) -> None:
        """Compare a column `score` of a JSONL file."""
        self.add(path.stem, read_columns(path, numbers=["score"]).numbers["score"])

    def add_fleur(self, paths: Sequence[Path]) -> None:
        """Compare FLEUR's released scores; of pairs by every rule for ties and both sources of labels."""
        blocks = [block for path in paths for block in read_fleur_scores(path)]
        records = self.reading.records
        if not self.of_pairs:
            found = scores_of_captions([r for r in records if isinstance(r, JudgedCaption)], blocks)
            self._row("FLEUR smoothed", "FLEUR smoothed", found.smoothed)
            self._row("FLEUR raw", "FLEUR raw", found.raw)
        else:
            found = scores_of_pairs([r for r in records if isinstance(r, CaptionPair)], blocks)
            self._fleur_pairs([r for r in records if isinstance(r, CaptionPair)], blocks, found.smoothed, found.raw)
        self.notes += found.notes

    def _fleur_pairs(
        self, pairs: Sequence[CaptionPair], blocks: Sequence[ScoredCaption], smoothed: Array, raw: Array
    ) -> None:
        drawn = labelled_by_results(pairs, blocks)
        for source, records in (("labels of the results", drawn), ("labels of the JSON", pairs)):
            for ties in PAIR_TIES:
                self._row(f"FLEUR smoothed, ties {ties}, {source}", "FLEUR smoothed", smoothed, records, ties)
            self._row(f"FLEUR raw, ties half, {source}", "FLEUR raw", raw, records)
        judged = np.isfinite(smoothed[::2])
        for category in dict.fromkeys(pair.category for pair in pairs):
            chosen = [n for n, pair in enumerate(pairs) if judged[n] and pair.category == category]
            same = sum(pairs[n].preference == drawn[n].preference for n in chosen)
            if chosen:
                self.notes.append(f"{category}: {same} of {len(chosen)} labels of the results are those of the JSON")
            else:
                self.notes.append(f"{category}: no scores, and so no mean over the classes")
        self.notes += [f"ties {name}: {meaning}" for name, meaning in PAIR_TIES.items()]

    def _row(
        self,
        row: str,
        metric: str,
        scores: Array,
        pairs: Sequence[CaptionPair] | None = None,
        ties: PairTies = "half",
    ) -> None:
        records = self.reading.records if pairs is None else pairs
        self.rows[row] = compare(self.benchmark, records, scores, ties=ties, resamples=self.resamples)
        if metric in PUBLISHED.get(self.benchmark, {}):
            self.published[row] = PUBLISHED[self.benchmark][metric]

    def text(self) -> str:
        """A table: a row a metric, a column a statistic or class; x 100 with 95% intervals."""
        if not self.rows:
            what = "pairs of captions" if self.of_pairs else "judgments of captions"
            return f"{len(self.reading.records)} {what}; nothing is compared with them yet (see --help)"
        names = list(next(iter(self.rows.values())))
        header = ["x 100", *(SHORT.get(name, name) for name in names), "published"]
        cells = [
            [
                row,
                *(_cell(found[name], interval=not self.of_pairs or name == "mean") for name in names),
                f"{self.published[row]:.1f}" if row in self.published else "-",
            ]
            for row, found in self.rows.items()
        ]
        return text_table(header, cells)

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; fractions."""
        results: Mapping[str, object] = {
            row: {name: vars(estimate) for name, estimate in found.items()} for row, found in self.rows.items()
        }
        return finite_or_none(
            {
                "benchmark": self.benchmark,
                "notes": [*self.reading.notes, *self.notes],
                "results": results,
                "headline": {row: headline(found).value for row, found in self.rows.items()},
                "published": self.published,
            }
        )


def split_files(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Files of scores as (our JSONL, FLEUR's results).

    Raises:
        InputError: a suffix that is neither `.jsonl` nor `.txt`.
    """
    for path in paths:
        if path.suffix not in (".jsonl", ".csv", ".txt"):
            raise InputError(f"{path}: scores are a .jsonl or .csv with `score`, or FLEUR's results as .txt")
    fleur = [path for path in paths if path.suffix == ".txt"]
    return [path for path in paths if path.suffix != ".txt"], fleur


def _cell(estimate: Estimate, *, interval: bool) -> str:
    shown = percent(estimate.value, 3)
    if interval and math.isfinite(estimate.low):
        shown += f" [{percent(estimate.low, 1)}, {percent(estimate.high, 1)}]"
    return shown
