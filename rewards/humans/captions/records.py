"""What the caption benchmarks have in common: judged captions, pairs of captions, and how a metric is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from rewards.errors import InputError
from rewards.humans.statistics.agreement import Agreement, agreement
from rewards.humans.statistics.pair_counts import Array
from rewards.runs.intervals import Estimate, Share, share


@dataclass(frozen=True)
class JudgedCaption:
    """A caption of a picture with one human judgment (several judgments of one caption are several records)."""

    image: str
    caption: str
    human: float
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaptionPair:
    """Two captions of one picture and which one people prefer: `preference` 1 for a, -1 for b, 0 for a tied vote."""

    image: str
    a: str
    b: str
    preference: int
    category: str
    references: tuple[str, ...] = ()


PairTies = Literal["half", "wrong", "first"]
PAIR_TIES: dict[PairTies, str] = {
    "half": "a metric tie counts one half",
    "wrong": "a metric tie is wrong (the released script of FLEUR)",
    "first": "a metric tie prefers the first caption",
}

Record = TypeVar("Record")


class Reading(NamedTuple, Generic[Record]):
    """The records of a file, and a note for everything that its published protocol leaves out."""

    records: list[Record]
    notes: list[str]


def caption_agreement(
    records: Sequence[JudgedCaption], scores: Array, *, resamples: int = 2000, seed: int = 0
) -> Agreement:
    """Agreement of a metric with the judgments; the captions of one picture are resampled together.

    Args:
        records: n judged captions.
        scores: (n,) the metric's scores in the same order, NaN where it abstained.
    """
    human = [record.human for record in records]
    return agreement(scores, human, [record.image for record in records], resamples=resamples, seed=seed)


def pair_accuracy(
    records: Sequence[CaptionPair],
    scores_a: Array,
    scores_b: Array,
    *,
    ties: PairTies = "half",
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Share of pairs in which the metric prefers the caption that people prefer, by category and over all.

    A tied human vote counts one half, and so does a metric tie by default: the expectation of the coin that the
    published scripts toss, without its noise. Pairs with a NaN score are left out. Intervals resample pictures.

    Args:
        records: n pairs.
        scores_a, scores_b: (n,) the metric's scores of their captions.
        ties: what a metric tie counts, one of PAIR_TIES.
        resamples, seed: of the bootstrap.

    Returns:
        Estimate by category, in order of appearance, and "all" (every pair equal; the papers' average over categories
        is "mean").

    Raises:
        InputError: scores of another length than the records.
    """
    if not len(records) == len(scores_a) == len(scores_b):
        raise InputError(f"{len(records)} pairs, {len(scores_a)} and {len(scores_b)} scores; one of each is needed")
    sign = np.sign(np.asarray(scores_a, dtype=float) - np.asarray(scores_b, dtype=float))
    preference = np.array([record.preference for record in records])
    right = 0.5 + 0.5 * sign * preference
    if ties != "half":
        # A tie between the captions says nothing about a vote that people tie, which stays at one half.
        right = np.where((sign == 0) & (preference != 0), (preference == 1) & (ties == "first"), right)
    numbers: dict[str, int] = {}
    pictures = np.array([numbers.setdefault(record.image, len(numbers)) for record in records])
    judged = np.isfinite(right)
    label = np.array([record.category for record in records])
    # The same seed draws the same pictures for every category, so that their mean is of one resample.
    shares = {
        name: share(np.where(chosen, right, 0.0), chosen, pictures, resamples=resamples, seed=seed)
        for name in dict.fromkeys(label.tolist())
        for chosen in [judged & (label == name)]
    }
    everything = share(np.where(judged, right, 0.0), judged, pictures, resamples=resamples, seed=seed)
    mean = Share(
        float(np.mean([found.value for found in shares.values()])),
        np.mean([found.drawn for found in shares.values()], axis=0),
    )
    return {name: found.estimate() for name, found in {**shares, "all": everything, "mean": mean}.items()}
