"""A reward in a long job: what it fails on costs one sample, and what fails throughout stops the job."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rewards.errors import InputError, RewardsError
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.scores import Scores

logger = logging.getLogger(__name__)

DEAD_AFTER = 8
"""Failures in a row after which a judge is taken as broken: a server that is gone, a device that has fallen over."""

LARGE = 200
"""Samples of a shard from which on the share of abstentions says something about the judge: with fewer, one broken
folder of pictures would stop the job."""


class Guarded(Reward):
    """A reward whose failures are the samples' own.

    A batch that the reward refuses or fails on is scored again sample by sample; a sample that is refused or fails
    alone abstains with the error as reason. A reward that fails :data:`DEAD_AFTER` times in a row is broken: an error
    that stops the job, so that what was not judged is not written down as judged.

    Args:
        reward: what scores.
        max_abstained: share of abstentions in a large shard above which the job stops.
    """

    def __init__(self, reward: Reward, max_abstained: float = 1.0) -> None:
        self.reward = reward
        self.max_abstained = max_abstained
        self.__name__ = reward.__name__
        self._in_a_row = 0
        self._ever_answered = False

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """The reward's own."""
        return self.reward.identity(texts)

    def score(self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score`.

        Raises:
            RewardsError: the reward is broken.
        """
        try:
            return self._answered(_without_places(self.reward.score(images, texts, **columns)))
        except InputError as error:
            if len(texts) == 1:
                return self._answered(Scores.nothing([str(error)]))
        except Exception as error:
            if len(texts) == 1:
                return self._failed(error)
            logger.warning("a batch of %d samples failed (%s); trying them one by one", len(texts), error)
        each = [self.score([images[row]], [texts[row]], **_row(columns, row)) for row in range(len(texts))]
        return Scores.concatenate(each)

    def check(self, shard: str, reasons: Sequence[str | None]) -> None:
        """Look at a shard's abstentions before it is committed.

        Args:
            shard: its name.
            reasons: of every sample that was judged: why it abstained, or None.

        Raises:
            RewardsError: too many for a judge that works.
        """
        failed = [reason for reason in reasons if reason is not None]
        if self._in_a_row and not self._ever_answered:
            raise RewardsError(f"{shard}: {self.__name__} failed on everything it was asked: {failed[-1]}")
        if len(reasons) >= LARGE and len(failed) > self.max_abstained * len(reasons):
            raise RewardsError(
                f"{shard}: the reward abstained on {len(failed)} of {len(reasons)} candidates, more than "
                f"max_abstained={self.max_abstained:g}; the first reason: {failed[0]}"
            )

    def _answered(self, scores: Scores) -> Scores:
        self._in_a_row = 0
        self._ever_answered = True
        return scores

    def _failed(self, error: Exception) -> Scores:
        self._in_a_row += 1
        reason = f"{type(error).__name__}: {error}"
        if self._in_a_row >= DEAD_AFTER:
            raise RewardsError(f"{self.__name__} failed {self._in_a_row} times in a row: {reason}") from error
        return Scores.nothing([reason])


def _without_places(scores: Scores) -> Scores:
    """Rewards name a sample by its place in the call ("image 3 does not exist"), which means nothing in a file."""
    reasons = [
        reason and re.sub(rf"\b(image|text|picture|prompt|sample) {row}\b", r"the \1", reason, count=1)
        for row, reason in enumerate(scores.reasons)
    ]
    return replace(scores, reasons=reasons)


def _row(columns: Mapping[str, Sequence[object]], row: int) -> dict[str, Sequence[object]]:
    return {name: [values[row]] for name, values in columns.items()}
