"""TIFA's question-answer tuple (TIFA §3, eq. 1: question Q, choices C, answer A in C) and the official JSON.

Successors ask without choices (GenEval 2: a count, or yes) and let one question depend on others (DSG); both are
fields of the same tuple. Their files: :mod:`rewards.tifa.questions.geneval2` and :mod:`rewards.tifa.questions.dsg`.

The official file is a list of objects with `id`, `caption`, `question`, `choices`, `answer`, `element_type`, `element`
and sometimes more (`coco_val_id`). Reading is tolerant of form (ids as numbers, outer blanks, one choice text in
another case than the answer) and strict where a row cannot be scored: a gold answer outside its choices would score 0
for ever. What is written back equals what was read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.runs.files import Json, is_whole_text
from rewards.tifa.normalization import collapse_blanks, normalize_answer
from rewards.tifa.numbers import NUMBER_WORDS, is_number

ELEMENT_TYPES = (
    "object", "animal/human", "food", "activity", "attribute", "counting", "color", "material", "spatial", "location",
    "shape", "other",
)  # fmt: skip
"""The benchmark's twelve element types (TIFA tab. 1); "human" and "animal" are one."""

ENTITY_TYPES = frozenset({"object", "animal/human", "food"})
"""Elements that count as entities in the paper's figure 9."""

_FIELDS = {
    "id": "id", "caption": "prompt", "question": "text", "choices": "choices", "answer": "answer",
    "element_type": "element_type", "element": "element", "depends_on": "depends_on",
}  # fmt: skip
_OPTIONAL = ("element_type", "element", "depends_on")


@dataclass(frozen=True)
class Question:
    """One question about pictures of one prompt.

    Attributes:
        text: The question.
        choices: The possible answers, none blank. May be empty where the answer is yes, no or a number (see
            :attr:`options`).
        answer: The right one, equal to one of `choices` up to case, blanks, punctuation, number words and articles.
        element: What in the prompt it asks about ("three").
        element_type: One of :data:`ELEMENT_TYPES`, or a name of your own.
        prompt: The text that the picture was made from.
        id: The prompt's id in its benchmark; 5 and "5" are different ids. Default: the prompt itself.
        extra: Whatever else the official row held, and its known keys where they were written in another form.
        depends_on: Texts of those questions of the same prompt without which this one means nothing (DSG §3.2).

    Raises:
        InputError: A field is of the wrong type or blank, the answer is not among the choices, or there are no choices
            and the answer is neither yes nor no nor a number.

    Example:
        >>> question = Question("how many dogs?", ("1", "2", "3"), "three", "three", "counting", "three dogs", "a_1")
        >>> question.answer_index
        2
        >>> Question("Is the dog red?", (), "Yes", "", "attribute", "a red dog").options
        ('Yes', 'No')
    """

    text: str
    choices: tuple[str, ...]
    answer: str
    element: str
    element_type: str
    prompt: str
    id: str | int = ""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    depends_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.choices, str) or not isinstance(self.choices, Sequence):
            raise InputError(f"choices must be a list of texts; got {self.choices!r}")
        object.__setattr__(self, "choices", tuple(self.choices))
        if isinstance(self.depends_on, str) or not isinstance(self.depends_on, Sequence):
            raise InputError(f"depends_on must be a list of texts; got {self.depends_on!r}")
        object.__setattr__(self, "depends_on", tuple(self.depends_on))
        if self.id == "" and isinstance(self.prompt, str):
            object.__setattr__(self, "id", collapse_blanks(self.prompt))
        _check(self)

    @property
    def answer_index(self) -> int:
        """Position of the answer among the options; of several equal ones the first."""
        return right_choices(self.answer, self.options)[0]

    @property
    def options(self) -> tuple[str, ...]:
        """What can be answered: the choices; for a question without any yes and no, or the numbers from 0 to 10 (and
        the right one, where it is larger), written as the answer is."""
        return self.choices or _implied_options(self.answer)


def right_choices(answer: str, choices: Sequence[str]) -> list[int]:
    """Positions of the choices that equal `answer`: as written where one does, else in normalised form."""
    exact = [index for index, choice in enumerate(choices) if choice == answer]
    if exact:
        return exact
    wanted = normalize_answer(answer)
    return [index for index, choice in enumerate(choices) if normalize_answer(choice) == wanted]


@lru_cache(256)
def _implied_options(answer: str) -> tuple[str, ...]:
    normalized = normalize_answer(answer)
    if normalized in ("yes", "no"):
        return tuple(_as_written(answer, word) for word in ("yes", "no"))
    if not is_number(normalized):
        return ()
    in_words = not any(map(str.isdecimal, answer))
    numbers = [(_as_written(answer, word) if in_words else str(value)) for word, value in _ZERO_TO_TEN]
    return tuple(numbers if normalized in map(normalize_answer, numbers) else [*numbers, answer])


def _as_written(answer: str, word: str) -> str:
    return word.capitalize() if answer[:1].isupper() else word


_ZERO_TO_TEN = [(word, value) for word, value in NUMBER_WORDS.items() if value <= 10]


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
    check_storable(question.id, question.text, question.prompt, question.answer, question.element)
    check_storable(question.element_type, *question.choices, *question.depends_on)
    if not question.options:
        raise InputError(
            f"question {question.text!r} has no choices; only a question that is answered by yes, no or a number can "
            f"do without, and its answer is {question.answer!r}"
        )
    for index, choice in enumerate(question.choices):
        if not isinstance(choice, str) or not choice.strip():
            raise InputError(
                f"question {question.text!r}: choice {index} is {choice!r}; expected a text that is not blank"
            )
    if not all(isinstance(parent, str) for parent in question.depends_on):
        raise InputError(f"question {question.text!r} depends on {question.depends_on!r}; expected texts of questions")
    if not right_choices(question.answer, question.options):
        raise InputError(
            f"question {question.text!r}: the answer {question.answer!r} is not among its choices "
            f"{list(question.choices)}"
        )


def check_storable(*values: object) -> None:
    """Refuse what a file or a database cannot hold, so that one bad row is named instead of failing with the others.

    Raises:
        InputError: A text with half a character, or a whole number beyond 64 bits.
    """
    for value in values:
        if isinstance(value, str) and not is_whole_text(value):
            raise InputError(f"{value!r:.100} holds half a character (a lone surrogate)")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InputError(f"{value!r:.100} is too large; a whole number of 64 bits is needed, or a text")


def question_from_row(row: object) -> Question:
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
    try:
        extra = {key: value for key, value in row.items() if key not in plain or not _same(plain[key], value)}
        json.dumps(extra, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"a value beside the question cannot be kept: {error}") from error
    object.__setattr__(question, "extra", extra)
    return question


def question_to_row(question: Question) -> dict[str, Json]:
    """A :class:`Question` -> an object of the official JSON; the inverse of :func:`question_from_row`."""
    row = _plain_row(question)
    for key, value in question.extra.items():
        # A field that was changed since it was read (dataclasses.replace) wins over the old spelling.
        if key not in _FIELDS or _agrees(key, value, getattr(question, _FIELDS[key])):
            row[key] = value
    return row


def _plain_row(question: Question) -> dict[str, Json]:
    row = {key: getattr(question, name) for key, name in _FIELDS.items()}
    row["choices"], row["depends_on"] = list(question.choices), list(question.depends_on)
    return {key: value for key, value in row.items() if value not in ("", []) or key not in _OPTIONAL}


def _read(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    if key in ("choices", "depends_on") and isinstance(value, Sequence):
        return tuple(_read("answer", choice) for choice in value)
    if key == "answer" and isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    if key in _OPTIONAL and value is None:
        return () if key == "depends_on" else ""
    return value


def _same(left: object, right: object) -> bool:
    # As JSON, because 1 == True == 1.0 in Python.
    return json.dumps(left, ensure_ascii=False) == json.dumps(right, ensure_ascii=False)


def _agrees(key: str, written: object, value: Any) -> bool:
    if key == "caption" and isinstance(written, str):
        return collapse_blanks(written) == collapse_blanks(value)
    return bool(_read(key, written) == value)


def parse_rows(rows: Iterable[object], source: str = "rows") -> tuple[list[Question], list[str]]:
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
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError
        raise InputError(f"{path} is not JSON: {error}") from error


def read_json_list(path: str | Path) -> list[object]:
    """Parse a JSON file that must hold a list."""
    rows = read_json(path)
    if not isinstance(rows, list):
        raise InputError(f"{path} holds one {type(rows).__name__}; expected a list of objects")
    return rows
