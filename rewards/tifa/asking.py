"""Three ways to put TIFA's questions to a judge: in its own words, among choices, by the probability of the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from rewards.errors import InputError
from rewards.images import Picture
from rewards.judges.base import Judge
from rewards.tifa.answers import AnswerRow
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.normalization import normalize_answer
from rewards.tifa.questions.question import Question, right_choices
from rewards.tifa.surface_forms import surface_forms

NONE_OF_THESE = "none of these"
"""The choice that is always wrong: what is asked about is not in the picture."""

Asked = Sequence[tuple[int, Question]]
"""Rows of (position of the picture, question)."""
Pictures = Sequence[Picture]


def in_own_words(
    judge: Judge, matcher: AnswerMatcher, rows: Asked, pictures: Pictures, none_of_these: bool
) -> list[AnswerRow]:
    """Free-form answers, matched to the choices (TIFA §3.3)."""
    words = judge.answer(pictures, [question.text for _, question in rows])
    choices = [offered(question, none_of_these) for _, question in rows]
    answered = [row for row, text in enumerate(words) if text is not None]
    matches = matcher.match([words[row] or "" for row in answered], [choices[row] for row in answered])
    matched = dict(zip(answered, matches))
    results = []
    for row, (image, question) in enumerate(rows):
        if row not in matched:
            results.append(unanswered(image, question))
            continue
        index = matched[row].index
        right = index is not None and index in right_choices(question.answer, question.options)
        choice = None if index is None else choices[row][index]
        results.append(AnswerRow(image, question, words[row], choice, matched[row].how, right, float(right)))
    return results


def among_choices(judge: Judge, rows: Asked, pictures: Pictures, soft: bool, none_of_these: bool) -> list[AnswerRow]:
    """The most probable choice (TIFA eq. 1), or with `soft` the probability of the right one among the choices."""
    choices = [offered(question, none_of_these) for _, question in rows]
    found = judge.choose(pictures, [question.text for _, question in rows], choices)
    return [
        chosen(image, question, options, logs, soft)
        for (image, question), options, logs in zip(rows, choices, found, strict=True)
    ]


def by_mass(judge: Judge, rows: Asked, pictures: Pictures, soft: bool) -> list[AnswerRow]:
    """Soft-TIFA: the probability, among all answers, of the right one in any spelling; it counts as right above 1/2."""
    questions = [question for _, question in rows]
    prompts = [wording(judge, question) for question in questions]
    masses = judge.mass(pictures, prompts, [surface_forms(question.answer) for question in questions])
    return [weighed(image, question, mass, soft) for (image, question), mass in zip(rows, masses.tolist(), strict=True)]


def wording(judge: Judge, question: Question) -> str:
    """How a judge is asked a question for its answer's mass."""
    return judge.one_word.replace("{question}", question.text)


def weighed(image: int, question: Question, mass: float, soft: bool) -> AnswerRow:
    """One question by the mass of its right answer."""
    if math.isnan(mass):
        return unanswered(image, question)
    right = mass > 0.5
    return AnswerRow(image, question, None, None, "mass", right, mass if soft else float(right))


def offered(question: Question, none_of_these: bool) -> list[str]:
    """What a question offers: its options and, where it asks for more than yes or no, "none of these".

    Raises:
        InputError: the question has that choice already.
    """
    options = list(question.options)
    normalized = {normalize_answer(option) for option in options}
    if not none_of_these or normalized <= {"yes", "no"}:
        return options
    if normalize_answer(NONE_OF_THESE) in normalized:
        raise InputError(f"question {question.text!r} offers {NONE_OF_THESE!r} already; leave out none_of_these")
    return [*options, NONE_OF_THESE]


def unanswered(image: int, question: Question) -> AnswerRow:
    """A question that the judge could not answer."""
    return AnswerRow(image, question, None, None, "abstained", None, math.nan)


def chosen(
    image: int, question: Question, options: Sequence[str], log_probabilities: torch.Tensor, soft: bool
) -> AnswerRow:
    """One question by the log-probabilities of its options."""
    if log_probabilities.isnan().any() or not log_probabilities.isfinite().any():
        return unanswered(image, question)
    right_ones = right_choices(question.answer, question.options)
    index = int(log_probabilities.argmax())  # the first of equal ones
    right = index in right_ones
    # The judge's probabilities are of all answers there are; TIFA asks which of the choices it is.
    probability = float(log_probabilities.float().softmax(0)[right_ones].sum().clamp(max=1.0))
    return AnswerRow(image, question, None, options[index], "chosen", right, probability if soft else float(right))
