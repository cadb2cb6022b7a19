"""A number a picture from the answers about it, by how dependencies are read and how questions are aggregated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rewards.humans.dsg.answers import Answered
from rewards.tifa.dependencies import hard_zeroing, parent_positions, soft_product
from rewards.tifa.scoring import AGGREGATES

Dependencies = Literal["read", "released", "none"]
DEPENDENCIES: dict[Dependencies, str] = {
    "read": "a question counts 0 when a parent's own answer is not right; unreadable parents are left out",
    "released": "the same, but one unreadable parent drops all dependencies of its prompt (the released loader)",
    "none": "every question by itself",
}


def picture_score(
    questions: Sequence[Answered],
    dependencies: Dependencies = "read",
    aggregate: str = "arithmetic",
    *,
    soft: bool = False,
    exact: bool = False,
) -> float:
    """The score of one picture.

    Args:
        questions: answered about it, at least one.
        dependencies: one of DEPENDENCIES.
        aggregate: one of `rewards.tifa.scoring.AGGREGATES`.
        soft: by the probabilities of the right answers (soft product) and not by right or wrong (hard zeroing).
        exact: answers are compared to the letter, and an empty one is wrong, as in the released script.

    Returns:
        A value in [0, 1]; NaN where a question was not answered.
    """
    if soft:
        scores = [question.probability for question in questions]
    else:
        scores = [question.exactly_right if exact else question.right for question in questions]
    parents = _parents(questions, dependencies)
    counted = soft_product(scores, parents) if soft else hard_zeroing(scores, parents)
    return AGGREGATES[aggregate](counted)


def _parents(questions: Sequence[Answered], dependencies: Dependencies) -> list[tuple[int, ...]]:
    broken = dependencies == "released" and any(question.unreadable for question in questions)
    if dependencies == "none" or broken:
        return [()] * len(questions)
    ids = [question.id for question in questions]
    return parent_positions(ids, [[p for p in question.parents if p in ids] for question in questions])
