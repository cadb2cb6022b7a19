"""Questions that look wrong: what a person should see before a training run uses them.

Nothing here is an error: a question may be right although it looks odd. Questions that cannot be scored at all never
get into a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rewards.tifa.geneval2 import SKILLS
from rewards.tifa.normalization import normalize_answer
from rewards.tifa.numbers import is_number
from rewards.tifa.questions.dsg import EXTRA
from rewards.tifa.questions.question import ELEMENT_TYPES, Question, right_choices
from rewards.tifa.questions.surplus import SURPLUS

COLORS = frozenset({
    "amber", "aqua", "beige", "black", "blond", "blonde", "blue", "bronze", "brown", "colorful", "colourful",
    "copper", "coral", "cream", "crimson", "cyan", "dark", "gold", "golden", "gray", "green", "grey",
    "indigo", "ivory", "khaki", "lavender", "light", "lime", "magenta", "maroon", "mauve", "multicolored",
    "navy", "olive", "orange", "pale", "peach", "pink", "plum", "purple", "rainbow", "red", "rose", "ruby",
    "rust", "salmon", "scarlet", "silver", "tan", "teal", "transparent", "turquoise", "violet", "white",
    "yellow",
})  # fmt: skip
"""Words that make a choice a color."""

KNOWN_TYPES = frozenset({*ELEMENT_TYPES, *SKILLS, "entity", "relation", "global", SURPLUS})
"""TIFA's types, GenEval 2's skills, DSG's categories, and what nobody asked for."""

FIRST_SHARE = 0.6
"""A store in which more right answers than this come first rewards a judge that always takes the first choice."""


@dataclass(frozen=True)
class Suspicion:
    """One thing to look at.

    Attributes:
        id: The prompt's id, or None for something about the whole store.
        question: The question's text, or None for something about a whole prompt or store.
        kind: A short name of what is odd, equal for equal reasons.
        detail: What was found.
    """

    id: str | int | None
    question: str | None
    kind: str
    detail: str


def check_questions(questions: Iterable[Question]) -> list[Suspicion]:
    """Look at every question, every prompt's questions together, and all of them.

    Returns:
        What looks wrong: a multiple-choice question that holds its answer, choices that are equal, a single choice, a
        color question without a color, or without its own, among the choices, a counting question without a number,
        an unknown element type; a prompt all of whose questions are answered "yes" (a judge that always says yes
        scores 1; of DSG's questions all are); and a store in which the right answer mostly comes first.

    Example:
        >>> odd = Question("is the red dot red?", ("red", "blue"), "red", "red", "color", "a red dot", "a")
        >>> [suspicion.kind for suspicion in check_questions([odd])]
        ['answer in question']
    """
    found: list[Suspicion] = []
    by_prompt: dict[str | int, list[Question]] = {}
    for question in questions:
        found.extend(Suspicion(question.id, question.text, kind, detail) for kind, detail in _check_one(question))
        by_prompt.setdefault(question.id, []).append(question)
    for id, asked in by_prompt.items():
        of_dsg = all(EXTRA in question.extra for question in asked)
        if len(asked) > 1 and not of_dsg and all(normalize_answer(question.answer) == "yes" for question in asked):
            found.append(Suspicion(id, None, "always yes", f"all {len(asked)} questions are answered yes"))
    found.extend(_check_order([question for asked in by_prompt.values() for question in asked]))
    return found


def _check_one(question: Question) -> Iterable[tuple[str, str]]:
    choices = [normalize_answer(choice) for choice in question.choices]
    answer = normalize_answer(question.answer)
    closed = set(choices) <= {"yes", "no"}
    if not closed and _names(question.text, answer) and not all(_names(question.text, choice) for choice in choices):
        # "is it red or blue?" names all of its choices and gives nothing away.
        yield "answer in question", f"{question.answer!r} stands in the question"
    if len(set(choices)) < len(choices):
        yield "equal choices", f"{list(question.choices)}"
    if len(set(choices)) == 1:
        yield "single choice", f"{list(question.choices)}"
    if len(right_choices(question.answer, question.choices)) > 1:
        yield "several right choices", f"{question.answer!r} is more than one of {list(question.choices)}"
    if question.element_type == "color" and not closed and not any(COLORS & set(choice.split()) for choice in choices):
        yield "no color among choices", f"{list(question.choices)}"
    elif question.element_type == "color" and not closed and not _among(question.element, choices):
        yield "color not among choices", f"{question.element!r} is none of {list(question.choices)}"
    if question.element_type == "counting" and not closed and not any(map(_has_number, choices)):
        yield "no number among choices", f"{list(question.choices)}"
    if question.element_type.partition(".")[0] not in KNOWN_TYPES:
        yield "unknown element type", f"{question.element_type!r}"


def _check_order(questions: Sequence[Question]) -> Iterable[Suspicion]:
    open_questions = [q for q in questions if not {normalize_answer(choice) for choice in q.choices} <= {"yes", "no"}]
    first = sum(question.answer_index == 0 for question in open_questions)
    if len(open_questions) >= 20 and first > FIRST_SHARE * len(open_questions):
        detail = f"the right answer is the first choice in {first} of {len(open_questions)} multiple-choice questions"
        yield Suspicion(None, None, "answer comes first", detail)


def _names(text: str, normalized: str) -> bool:
    return f" {normalized} " in f" {normalize_answer(text)} "


def _among(element: str, choices: Sequence[str]) -> bool:
    wanted = normalize_answer(element)
    return not element or any(_names(choice, wanted) or _names(wanted, choice) for choice in choices)


def _has_number(choice: str) -> bool:
    return any(map(is_number, choice.split()))
