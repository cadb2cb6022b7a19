"""The evaluation that the audit likes best: a policy that games its judge is better before the end of its run."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rewards.runs.evaluations import Evaluation


class BestByAudit:
    """Follows the first audit over evaluations.

    Example:
        >>> best = BestByAudit()
        >>> [best.update(step, audit) for step, audit in ((0, 0.5), (10, 0.7), (20, 0.6))], best.step
        ([True, True, False], 10)
    """

    def __init__(self) -> None:
        self.step: int | None = None
        self.audit = -math.inf

    def update(self, step: int, audit: float) -> bool:
        """Take an evaluation.

        Args:
            step: Of the run.
            audit: The audit's mean; NaN is never best.

        Returns:
            Whether none before was as good.
        """
        if not audit > self.audit:
            return False
        self.step, self.audit = step, audit
        return True

    def read(self, evaluations: Iterable[Evaluation]) -> BestByAudit:
        """Take evaluations that were kept; those without an audit say nothing."""
        for evaluation in evaluations:
            judged = [next(iter(sample.audits.values()), None) for sample in evaluation.samples]
            values = [one.overall for one in judged if one is not None and one.overall is not None]
            if values:
                self.update(evaluation.step, math.fsum(values) / len(values))
        return self
