"""The held-out judge: a second reward that never trains, and the gap that shows when the policy games the first."""

from __future__ import annotations

import math

from rewards.errors import RewardsError


class AuditGapExceeded(RewardsError):
    """The reward rose away from the audit by more than the user allows."""


class AuditGap:
    """Follows (reward - audit) on the same samples.

    The two need not agree: a lenient judge starts with a gap. What tells of gaming is that the gap grows while the
    training reward rises, so growth since the first value is watched.

    Args:
        max_growth: :meth:`check` raises when the gap has grown by more than this; None never raises.
        first: The first gap, when a run is resumed.

    Example:
        >>> gap = AuditGap(max_growth=0.2)
        >>> gap.update(0.50, 0.45), round(gap.update(0.60, 0.50), 3), round(gap.growth, 3)
        (0.04999999999999999, 0.1, 0.05)
    """

    def __init__(self, max_growth: float | None = None, first: float | None = None) -> None:
        self.max_growth = max_growth
        self.first = first
        self.growth = math.nan

    def update(self, reward: float, audit: float) -> float:
        """Take the means of one step.

        Args:
            reward: Mean training reward; NaN where nothing was judged.
            audit: Mean of the held-out judge on the same samples.

        Returns:
            The gap; NaN where either is.
        """
        gap = reward - audit
        if math.isnan(gap):
            return gap
        if self.first is None:
            self.first = gap
        self.growth = gap - self.first
        return gap

    def check(self) -> None:
        """Stop a run that games its judge; called after the step's metrics are written.

        Raises:
            AuditGapExceeded: The gap grew by more than ``max_growth``.
        """
        if self.max_growth is not None and self.growth > self.max_growth:
            raise AuditGapExceeded(
                f"the reward has drifted {self.growth:.3f} away from the audit since the first step (allowed "
                f"{self.max_growth}): the policy is probably gaming the judge"
            )
