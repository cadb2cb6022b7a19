"""A run in which nothing can be learned: warned of at once, and stopped when it goes on."""

from __future__ import annotations

import logging

from rewards.errors import RewardsError

logger = logging.getLogger(__name__)


class IdleRun:
    """Counts steps in a row that taught nothing: no sample was better or worse than another.

    Args:
        patience: so many in a row stop the run.
        samples: what is rewarded ("texts", "pictures").

    Example:
        >>> run = IdleRun(patience=2, samples="texts")
        >>> run.take(True, "step 1")
        >>> run.take(False, "step 2"), run.take(True, "step 3"), run.take(False, "step 4")
        (None, None, None)
        >>> run.take(False, "step 5")
        Traceback (most recent call last):
        ...
        rewards.errors.RewardsError: stopped at step 5: nothing was learned 2 times in a row, because ...
    """

    def __init__(self, patience: int, samples: str) -> None:
        self.patience = patience
        self._why = f"because no {samples} that could be compared have different rewards"
        self._idle = 0

    def take(self, learned: bool, where: str) -> None:
        """Look at one step (or what lies between two log lines).

        Args:
            learned: whether anything could be learned in it.
            where: its name, for the message.

        Raises:
            RewardsError: nothing could, too often in a row.
        """
        self._idle = 0 if learned else self._idle + 1
        if self._idle >= self.patience:
            raise RewardsError(
                f"stopped at {where}: nothing was learned {self._idle} times in a row, {self._why}. Is the reward "
                "constant, or what the model makes always the same?"
            )
        if self._idle:
            logger.warning("%s: nothing is learned, %s", where, self._why)
