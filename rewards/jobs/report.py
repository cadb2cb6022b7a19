"""How a job ended: rows that were scored, that abstained, and that failed, with the most frequent reasons."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

REPORTED = 3
"""Exit status of a command that finished and has rows to report."""

_KINDS_KEPT = 1000


@dataclass
class Report:
    """Counts over rows, filled one row at a time.

    Attributes:
        scored: rows with a score.
        abstained: rows that the reward could not judge.
        failed: rows that could not be given to the reward: not readable, or without a picture or text.
        total: of the scores.
        reasons: how often each kind of reason was given, without what differs from row to row (numbers, quoted names).
    """

    scored: int = 0
    abstained: int = 0
    failed: int = 0
    total: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, overall: float | None, reason: str | None, failed: bool = False) -> None:
        """Count one row.

        Args:
            overall: its score, None for none.
            reason: why it has none.
            failed: it could not be given to the reward at all.
        """
        if overall is not None:
            self.scored += 1
            self.total += overall
            return
        self.failed += failed
        self.abstained += not failed
        kind = _kind(reason or "no reason given")
        if kind in self.reasons or len(self.reasons) < _KINDS_KEPT:
            self.reasons[kind] += 1

    @property
    def unscored(self) -> int:
        """Rows without a score."""
        return self.abstained + self.failed

    @property
    def status(self) -> int:
        """Exit status: 0, or 3 where rows abstained or failed."""
        return REPORTED if self.unscored else 0

    def sentence(self) -> str:
        """What a command says at its end.

        Example:
            >>> report = Report()
            >>> report.add(0.5, None)
            >>> for row in (3, 7):
            ...     report.add(None, f"image {row} does not exist")
            >>> report.sentence()
            '1 scored (mean 0.5000), 2 abstained, 0 failed; most often: image # does not exist (2)'
        """
        mean = f" (mean {self.total / self.scored:.4f})" if self.scored else ""
        said = f"{self.scored} scored{mean}, {self.abstained} abstained, {self.failed} failed"
        return said + (f"; most often: {self.most_frequent}" if self.reasons else "")

    @property
    def most_frequent(self) -> str | None:
        """The most frequent reason with its count, or None."""
        common = self.reasons.most_common(1)
        return f"{common[0][0]} ({common[0][1]})" if common else None


def _kind(reason: str) -> str:
    """A reason without what is one row's own."""
    return re.sub(r"\d+", "#", re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", reason))[:200]
