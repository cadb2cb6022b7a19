"""What TIFA returns: every answer, and from them a picture's score and its parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from rewards.scores import Details, Scores, number_or_none
from rewards.tifa.dependencies import hard_zeroing, parent_positions, soft_product
from rewards.tifa.questions.question import Question
from rewards.tifa.scoring import AGGREGATES, accuracy_by_type

DEPENDENCIES = ("none", "hard", "soft")
"""What an unfulfilled parent does to a question: nothing, DSG's rule, or the product; see
:mod:`rewards.tifa.dependencies`."""


@dataclass(frozen=True)
class AnswerRow:
    """One question asked about one picture.

    Attributes:
        image: Position of the picture in the batch.
        question: What was asked.
        free_form: The judge's own words, or None where it chose among the choices or could not answer.
        choice: The choice that it gave or that its words were matched to; None for no answer or no match.
        how: "exact", "sentence", "unmatched" (see :class:`rewards.tifa.matching.Match`), "chosen", "mass", or
            "abstained".
        right: Whether `choice` is the right one; None where the judge could not answer.
        score: 1 or 0, or with `soft` the probability of the right answer, lowered by what the question depends on
            where the reward says so; NaN where the judge could not answer.
    """

    image: int
    question: Question
    free_form: str | None
    choice: str | None
    how: str
    right: bool | None
    score: float


@dataclass
class TIFAScores(Scores):
    """Scores of N pictures: the share of right answers in [0, 1], its parts by element type, and every answer.

    Attributes:
        answers: a row for every question asked, by picture and then in the store's order.
    """

    answers: list[AnswerRow] = field(default_factory=list)

    @property
    def unmatched(self) -> int:
        """Number of answers that match no choice (they count as wrong)."""
        return sum(row.how == "unmatched" for row in self.answers)

    def by_element_type(self) -> dict[str, tuple[float, int]]:
        """Mean score and number of questions of each element type, pooled over the batch."""
        return accuracy_by_type(_typed(self.answers))

    @classmethod
    def of(
        cls,
        answers: list[AnswerRow],
        reasons: Sequence[str | None],
        element_types: Sequence[str],
        aggregate: str = "arithmetic",
    ) -> TIFAScores:
        """Scores from the answers.

        Args:
            answers: of all pictures, by picture.
            reasons: N texts: why a picture could not be judged, or None.
            element_types: types that are parts whether or not this batch asks for them.
            aggregate: from the questions of a picture to its score: a key of
                :data:`rewards.tifa.scoring.AGGREGATES`. Parts are arithmetic means in any case.
        """
        by_image: list[list[AnswerRow]] = [[] for _ in reasons]
        for row in answers:
            by_image[row.image].append(row)
        types = {*element_types, *(row.question.element_type for row in answers)}
        names = tuple(sorted({name for element_type in types for name in types_of(element_type)}))
        parts = torch.full((len(reasons), len(names)), math.nan, dtype=torch.float64)
        counts = torch.zeros(len(reasons), len(names), dtype=torch.float64)
        for image, rows in enumerate(by_image):
            for name, scores in _by_type(rows).items():
                if not any(math.isnan(score) for score in scores):
                    column = names.index(name)
                    parts[image, column], counts[image, column] = math.fsum(scores) / len(scores), len(scores)
        mean = AGGREGATES[aggregate]
        return cls(
            torch.tensor([mean([row.score for row in rows]) for rows in by_image], dtype=torch.float32),
            reasons,
            names,
            parts,
            counts,
            sums={"unmatched": torch.tensor([sum(row.how == "unmatched" for row in rows) for rows in by_image])},
            details=[_details(rows) for rows in by_image],
            answers=answers,
        )


def _by_type(rows: Sequence[AnswerRow]) -> Mapping[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, score in _typed(rows):
        found.setdefault(name, []).append(score)
    return found


def _typed(rows: Sequence[AnswerRow]) -> Iterator[tuple[str, float]]:
    return ((name, row.score) for row in rows for name in types_of(row.question.element_type))


def with_dependencies(answers: Sequence[AnswerRow], dependencies: str) -> list[AnswerRow]:
    """The answers with each score lowered by those of the questions that its question depends on.

    A parent that was not asked about the picture (a filter dropped it) lowers nothing.

    Args:
        answers: of all pictures.
        dependencies: one of :data:`DEPENDENCIES`.
    """
    if dependencies == "none" or not any(row.question.depends_on for row in answers):
        return list(answers)
    places: dict[int, list[int]] = {}
    for place, row in enumerate(answers):
        places.setdefault(row.image, []).append(place)
    rule = hard_zeroing if dependencies == "hard" else soft_product
    result = list(answers)
    for of_picture in places.values():
        rows = [answers[place] for place in of_picture]
        for place, score in zip(of_picture, rule([row.score for row in rows], parents([r.question for r in rows]))):
            if result[place].how != "abstained":
                result[place] = replace(result[place], score=score)
    return result


def parents(questions: Sequence[Question]) -> list[tuple[int, ...]]:
    """Positions of each question's parents among the questions of its prompt; those that are not asked are left out."""
    asked = {question.text for question in questions}
    needed = [[text for text in question.depends_on if text in asked] for question in questions]
    return parent_positions([question.text for question in questions], needed)


def types_of(element_type: str) -> tuple[str, ...]:
    """The parts that a question counts in: its type and, of "attribute.color", "attribute" as well.

    Example:
        >>> types_of("attribute.color"), types_of("")
        (('attribute', 'attribute.color'), ('other',))
    """
    whole = element_type or "other"
    group, dot, _ = whole.partition(".")
    return (group, whole) if dot and group else (whole,)


def _details(rows: Sequence[AnswerRow]) -> Details:
    return {
        "answers": [
            {
                "question": row.question.text,
                "element": row.question.element,
                "element_type": row.question.element_type,
                "answer": row.question.answer,
                "free_form": row.free_form,
                "choice": row.choice,
                "how": row.how,
                "right": row.right,
                "score": number_or_none(row.score),
            }
            for row in rows
        ]
    }
