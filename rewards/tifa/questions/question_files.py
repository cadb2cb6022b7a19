"""Files of questions in every form that is read: TIFA's JSON, GenEval 2's JSON lines, DSG's CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rewards.errors import InputError
from rewards.tifa.questions.dsg import read_dsg, write_dsg
from rewards.tifa.questions.geneval2 import read_geneval2, write_geneval2
from rewards.tifa.questions.question import Question, parse_rows, read_json_list, write_questions


class QuestionFile(NamedTuple):
    """What was read: questions; rows that cannot be used; rows that are used but hold something odd."""

    questions: list[Question]
    problems: list[str]
    warnings: list[str]


def read_question_file(path: str | Path) -> QuestionFile:
    """Read a file of questions by its suffix: `.json` (TIFA), `.jsonl` (GenEval 2) or `.csv` (DSG).

    Raises:
        InputError: Another suffix, or not a file of that form.
    """
    suffix = Path(path).suffix
    if suffix == ".jsonl":
        return QuestionFile(*read_geneval2(path), warnings=[])
    if suffix == ".csv":
        found = read_dsg(path)
        return QuestionFile(found.questions, found.problems, found.warnings)
    if suffix == ".json":
        questions, problems = parse_rows(read_json_list(path), str(path))
        told = [(question, _given_twice(question)) for question in questions]
        return QuestionFile(
            [question for question, twice in told if twice is None],
            problems
            + [f"{path}, question {question.text!r}: {twice}" for question, twice in told if twice is not None],
            warnings=[],
        )
    raise InputError(f"{path} is no file of questions: {', '.join(FORMS)} are read")


def _given_twice(question: Question) -> str | None:
    """Which choice a question offers twice, as written: a judge that chooses would give each of the two its share."""
    twice = [choice for at, choice in enumerate(question.choices) if choice in question.choices[:at]]
    return f"choice {twice[0]!r} is given twice" if twice else None


def write_question_file(path: str | Path, questions: Iterable[Question]) -> None:
    """Write questions in the form that the suffix names.

    Raises:
        InputError: Another suffix, or questions for which the form has no place.
    """
    if Path(path).suffix not in _WRITERS:
        raise InputError(f"{path} is no file of questions: {', '.join(FORMS)} are written")
    _WRITERS[Path(path).suffix](path, questions)


_WRITERS: dict[str, Callable[[str | Path, Iterable[Question]], None]] = {
    ".json": write_questions,
    ".jsonl": write_geneval2,
    ".csv": write_dsg,
}
FORMS = tuple(_WRITERS)
"""Suffixes of the forms."""
