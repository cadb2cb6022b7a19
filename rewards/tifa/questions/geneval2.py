"""GenEval 2's file: a line a prompt, with questions that have an answer and no choices (arXiv 2512.16853)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rewards.errors import InputError
from rewards.runs.files import Row, numbered_lines, write_whole
from rewards.tifa.questions.question import Question

ATOMICITY = "atom_count"
"""Under this name a question's `extra` keeps how many atoms its prompt has."""


def read_geneval2(path: str | Path) -> tuple[list[Question], list[str]]:
    """Read `geneval2_data.jsonl`, or a file of its form.

    Args:
        path: JSON lines with `prompt`, `atom_count`, `vqa_list` (pairs of question and answer) and `skills`, one a
            question.

    Returns:
        The questions, whose element type is their skill and whose id is their prompt; and one line for each prompt that
        cannot be used: file, line number from 1, reason.

    Raises:
        InputError: A line that is no JSON object.

    Example:
        >>> questions, problems = read_geneval2("geneval2_data.jsonl")  # doctest: +SKIP
        >>> questions[0].text, questions[0].answer, questions[0].element_type  # doctest: +SKIP
        ('How many backpacks are in the image?', 'one', 'count')
    """
    questions: list[Question] = []
    problems: list[str] = []
    for number, row in numbered_lines(path):
        try:
            questions.extend(_questions(row))
        except InputError as error:
            problems.append(f"{path}, line {number}: {error}")
    return questions, problems


def write_geneval2(path: str | Path, questions: Iterable[Question]) -> None:
    """Write questions in GenEval 2's form: the inverse of :func:`read_geneval2`.

    Raises:
        InputError: A question has choices, for which the form has no place.
    """
    prompts: dict[str | int, Row] = {}
    for question in questions:
        if question.choices:
            raise InputError(f"question {question.text!r} has choices; GenEval 2's form has no place for them")
        row = prompts.setdefault(question.id, {"prompt": question.prompt})
        row.setdefault(ATOMICITY, question.extra.get(ATOMICITY))
        row.setdefault("vqa_list", []).append([question.text, question.answer])
        row.setdefault("skills", []).append(question.element_type)
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in prompts.values()))


def _questions(row: Row) -> list[Question]:
    if missing := [key for key in ("prompt", "vqa_list", "skills") if key not in row]:
        raise InputError(f"no {', '.join(map(repr, missing))}; the keys are {', '.join(map(str, row))}")
    pairs, skills, atoms = row["vqa_list"], row["skills"], row.get(ATOMICITY)
    if not isinstance(pairs, list) or not isinstance(skills, list) or len(pairs) != len(skills):
        raise InputError("vqa_list and skills must be lists of equal length")
    if isinstance(atoms, bool) or not isinstance(atoms, int):
        raise InputError(f"{ATOMICITY} is {atoms!r}; expected a whole number")
    found = []
    for pair, skill in zip(pairs, skills, strict=True):
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(skill, str):
            raise InputError(f"vqa_list holds {pair!r} with skill {skill!r}; expected [question, answer] and a name")
        found.append(Question(pair[0], (), pair[1], "", skill, row["prompt"], extra={ATOMICITY: atoms}))
    if len({question.text for question in found}) < len(found):
        raise InputError("vqa_list asks a question twice")
    return found
