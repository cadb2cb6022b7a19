"""The order of candidates: best first, ties by position, abstentions last and marked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewards.errors import RewardsError
from rewards.rerank.items import Item
from rewards.runs.files import Json

# Scores are float32 and depend on the batch in the last digits; what ranks and is written is rounded to six decimals,
# so that equal candidates tie. Candidates within the judge's own noise (1e-5) of each other may still change places
# when the batch size changes; with the same settings the bytes are the same.
DECIMALS = 6


@dataclass(frozen=True)
class Score:
    """A reward's verdict on one candidate.

    Attributes:
        overall: the score, None for an abstention.
        parts: by criterion (HarmonicEval), element type (TIFA) or reward (a weighted sum); None where undefined.
        details: what explains the score: deviations and weights, or every question with its answer.
        reason: why the reward abstained, or None.
    """

    overall: float | None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    details: Mapping[str, Json] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class Ranked:
    """A candidate in its place.

    Attributes:
        rank: from 1; None where the reward abstained.
        index: in the item.
        candidate: itself.
        score: the reward's verdict.
        same_as: the index of an equal candidate that was judged in its stead, or None.
    """

    rank: int | None
    index: int
    candidate: object
    score: Score
    same_as: int | None = None


@dataclass(frozen=True)
class Ranking:
    """An item's candidates, best first.

    Attributes:
        item: what was ranked.
        candidates: all of them; those on which the reward abstained stand last, in the order in which they came.
    """

    item: Item
    candidates: tuple[Ranked, ...]

    @property
    def judged(self) -> tuple[Ranked, ...]:
        """The candidates that have a rank."""
        return tuple(ranked for ranked in self.candidates if ranked.rank is not None)

    @property
    def best(self) -> Ranked:
        """The best candidate.

        Raises:
            RewardsError: the reward abstained on all candidates; see `judged`.
        """
        if not self.judged:
            name = f"item {self.item.id!r}" if self.item.id else "an item"
            raise RewardsError(f"{name} has no best candidate, none could be judged: {self.candidates[0].score.reason}")
        return self.candidates[0]

    @property
    def margin(self) -> float | None:
        """Score of the best minus score of the second; None with fewer than two judged candidates."""
        judged = [ranked.score.overall for ranked in self.candidates if ranked.score.overall is not None]
        return round(judged[0] - judged[1], DECIMALS) if len(judged) > 1 else None


def rank(item: Item, scores: Sequence[Score], same_as: Sequence[int | None] | None = None) -> Ranking:
    """Order the candidates of an item.

    Args:
        item: with n candidates.
        scores: n scores, in the order of the candidates.
        same_as: for each candidate the index of an earlier equal one, or None.

    Example:
        >>> scores = [Score(0.5), Score(None, reason="black"), Score(0.9), Score(0.5)]
        >>> [r.index for r in rank(Item(("a", "b", "c", "d"), prompt="p"), scores).candidates]
        [2, 0, 3, 1]
    """
    rounded = [round_score(score) for score in scores]
    order = sorted(range(len(rounded)), key=lambda n: _key(rounded[n].overall, n))
    twins = same_as or [None] * len(rounded)
    return Ranking(
        item,
        tuple(
            Ranked(
                place if rounded[index].overall is not None else None,
                index,
                item.candidates[index],
                rounded[index],
                twins[index],
            )
            for place, index in enumerate(order, start=1)
        ),
    )


def round_score(score: Score) -> Score:
    """The score as it is compared and written: six decimals, NaN as None."""
    parts = {name: rounded_or_none(value) for name, value in score.parts.items()}
    return Score(rounded_or_none(score.overall), parts, score.details, score.reason)


def rounded_or_none(value: float | None) -> float | None:
    """Six decimals; None for None, NaN and infinities."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), DECIMALS) + 0.0  # + 0.0: no negative zero


def _key(overall: float | None, index: int) -> tuple[int, float, int]:
    return (1, 0.0, index) if overall is None else (0, -overall, index)
