"""TIFA's question-answer tuple (TIFA §3, eq. 1: question Q, choices C, answer A in C) and the official JSON.

The official file is a list of objects with `id`, `caption`, `question`, `choices`, `answer`, `element_type`, `element`
and sometimes more (`coco_val_id`). Reading is tolerant of form (ids as numbers, outer blanks, one choice text in
another case than the answer) and strict where a row cannot be scored: a gold answer outside its choices would score 0
for ever. What is written back equals what was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.tifa.normalization import collapse_blanks, normalize_answer

ELEMENT_TYPES = (
    "object", "animal/human", "food", "activity", "attribute", "counting", "color", "material", "spatial", "location",
    "shape", "other",
)  # fmt: skip
"""The benchmark's twelve element types (TIFA tab. 1); "human" and "animal" are one."""

_FIELDS = {
    "id": "id", "caption": "prompt", "question": "text", "choices": "choices", "answer": "answer",
    "element_type": "element_type", "element": "element",
}  # fmt: skip
_OPTIONAL = ("element_type", "element")


@dataclass(frozen=True)
class Question:
    """One question about pictures of one prompt.

    Attributes:
        text: The question.
        choices: The possible answers, at least one, none blank.
        answer: The right one, equal to one of `choices` up to case, blanks, punctuation, number words and articles.
        element: What in the prompt it asks about ("three").
        element_type: One of :data:`ELEMENT_TYPES`, or a name of your own.
        prompt: The text that the picture was made from.
        id: The prompt's id in its benchmark; 5 and "5" are different ids. Default: the prompt itself.
        extra: Whatever else the official row held, and its known keys where they were written in another form.

    Raises:
        InputError: A field is of the wrong type or blank, there are no choices, or the answer is not among them.

    Example:
        >>> question = Question("how many dogs?", ("1", "2", "3"), "three", "three", "counting", "three dogs", "a_1")
        >>> question.answer_index
        2
    """

    text: str
    choices: tuple[str, ...]
    answer: str
    element: str
    element_type: str
    prompt: str
    id: str | int = ""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.choices, str) or not isinstance(self.choices, Sequence):
            raise InputError(f"choices must be a list of texts; got {self.choices!r}")
        object.__setattr__(self, "choices", tuple(self.choices))
        if self.id == "" and isinstance(self.prompt, str):
            object.__setattr__(self, "id", collapse_blanks(self.prompt))
        _check(self)

    @property
    def answer_index(self) -> int:
        """Position of the answer among the choices; of several equal ones the first."""
        return right_choices(self.answer, self.choices)[0]


def right_choices(answer: str, choices: Sequence[str]) -> list[int]:
    """Positions of the choices that equal `answer`: as written where one does, else in normalised form."""
    exact = [index for index, choice in enumerate(choices) if choice == answer]
    if exact:
        return exact
    wanted = normalize_answer(answer)
    return [index for index, choice in enumerate(choices) if normalize_answer(choice) == wanted]


def _check(question: Question) -> None:
    for name in ("text", "answer", "prompt"):
        value = getattr(question, name)
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{name} must be a text that is not blank; got {value!r}")
    for name in ("element", "element_type"):
        if not isinstance(getattr(question, name), str):
            raise InputError(f"{name} must be a text; got {getattr(question, name)!r}")
    if isinstance(question.id, bool) or not isinstance(question.id, (str, int)):
        raise InputError(f"id must be a text or a whole number; got {question.id!r}")
    if not question.choices:
        raise InputError(f"question {question.text!r} has no choices")
    for index, choice in enumerate(question.choices):
        if not isinstance(choice, str) or not choice.strip():
            raise InputError(
                f"question {question.text!r}: choice {index} is {choice!r}; expected a text that is not blank"
            )
    if not right_choices(question.answer, question.choices):
        raise InputError(
            f"question {question.text!r}: the answer {question.answer!r} is not among its choices "
            f"{list(question.choices)}"
        )


def question_from_row(row: Any) -> Question:
    """One object of the official JSON -> a :class:`Question`.

    Args:
        row: A mapping with at least `id`, `caption`, `question`, `choices` and `answer`. Outer blanks are dropped,
            numbers among choices and answers become texts; :func:`question_to_row` still gives the row back as it was.

    Raises:
        InputError: The row cannot be scored; the message says why.
    """
    if not isinstance(row, Mapping):
        raise InputError(f"expected an object with question, choices and answer; got {type(row).__name__}")
    missing = [key for key in _FIELDS if key not in row and key not in _OPTIONAL]
    if missing:
        raise InputError(f"no {', '.join(repr(key) for key in missing)}; the keys are {', '.join(map(str, row))}")
    values = {name: _read(key, row[key]) for key, name in _FIELDS.items() if key in row}
    question = Question(**({"element": "", "element_type": ""} | values))
    plain = _plain_row(question)
    extra = {key: value for key, value in row.items() if key not in plain or not _same(plain[key], value)}
    object.__setattr__(question, "extra", extra)
    return question


def question_to_row(question: Question) -> dict[str, Any]:
    """A :class:`Question` -> an object of the official JSON; the inverse of :func:`question_from_row`."""
    row = _plain_row(question)
    for key, value in question.extra.items():
        # A field that was changed since it was read (dataclasses.replace) wins over the old spelling.
        if key not in _FIELDS or _agrees(key, value, getattr(question, _FIELDS[key])):
            row[key] = value
    return row


def _plain_row(question: Question) -> dict[str, Any]:
    row = {key: getattr(question, name) for key, name in _FIELDS.items()}
    row["choices"] = list(question.choices)
    return {key: value for key, value in row.items() if value != "" or key not in _OPTIONAL}


def _read(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    if key == "choices" and isinstance(value, Sequence):
        return tuple(_read("answer", choice) for choice in value)
    if key == "answer" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if key in _OPTIONAL and value is None:
        return ""
    return value


def _same(left: Any, right: Any) -> bool:
    # As JSON, because 1 == True == 1.0 in Python.
    return json.dumps(left, ensure_ascii=False) == json.dumps(right, ensure_ascii=False)


def _agrees(key: str, written: Any, value: Any) -> bool:
    if key == "caption" and isinstance(written, str):
        return collapse_blanks(written) == collapse_blanks(value)
    return bool(_read(key, written) == value)


def parse_rows(rows: Iterable[Any], source: str = "rows") -> tuple[list[Question], list[str]]:
    """Read what can be read.

    Args:
        rows: Objects of the official JSON.
        source: Named in the problems, usually the file.

    Returns:
        The good questions in order, and one line for each bad row: file, row number from 0, reason.
    """
    questions, problems = [], []
    for index, row in enumerate(rows):
        try:
            questions.append(question_from_row(row))
        except InputError as error:
            problems.append(f"{source}, row {index}: {error}")
    return questions, problems


def read_questions(path: str | Path) -> list[Question]:
    """Read an official question file.

    Raises:
        InputError: Not JSON, not a list, or a row that cannot be scored; the message names file, row and reason.
        OSError: The file cannot be opened.
    """
    questions, problems = parse_rows(read_json_list(path), str(path))
    if problems:
        more = f" (and {len(problems) - 1} more rows)" if len(problems) > 1 else ""
        raise InputError(problems[0] + more)
    return questions


def write_questions(path: str | Path, questions: Iterable[Question]) -> None:
    """Write questions in the official format."""
    rows = [question_to_row(question) for question in questions]
    Path(path).write_text(json.dumps(rows, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: str | Path) -> Any:
    """Parse a JSON file (UTF-8, with or without a byte order mark); an error names the file and the place."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        raise InputError(f"{path} is not JSON: {error}") from error


def read_json_list(path: str | Path) -> list[Any]:
    """Parse a JSON file that must hold a list."""
    rows = read_json(path)
    if not isinstance(rows, list):
        raise InputError(f"{path} holds one {type(rows).__name__}; expected a list of objects")
    return rows
