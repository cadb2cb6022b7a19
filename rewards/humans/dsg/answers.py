"""DSG's files of VQA answers and of Likert ratings (github.com/j-min/DSG), and answers of one's own in their form.

Answers, a row a question about a picture: `t2i_model`, `item_id` (the prompt), `question_id`, `dependency_id` and
`answer`; DSG's annotation files say `proposition_id` and `dependency`, and both names are read. Two columns are ours:
`gold` (the right answer, "yes" without it) and `probability` (of the right answer, in [0, 1]), for soft scores. Without
a column of dependencies every question stands by itself; without question numbers a picture's rows are numbered.

Ratings, a row an annotator: `t2i_model`, `item_id`, `answer` from 1 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewards.errors import InputError
from rewards.humans.files import column_of, number
from rewards.runs.csv_files import csv_rows
from rewards.tifa.dependencies import parse_dependency

GENERATOR = ("t2i_model", "model", "generator")
PROMPT = ("item_id", "prompt_id", "id")
QUESTION = ("question_id", "proposition_id", "qid")
PARENTS = ("dependency_id", "dependency", "dependencies")
RATING = ("answer", "rating", "likert", "score")
LIKERT = range(1, 6)
SHOWN = 5


@dataclass(frozen=True)
class PictureKey:
    """A picture: the generator that drew it and the prompt."""

    generator: str
    prompt: str


@dataclass(frozen=True)
class Answered:
    """One question about one picture.

    Attributes:
        id: number within the prompt.
        answer: as the model gave it; "" where it gave none.
        gold: the right answer.
        probability: of the right answer, in [0, 1]; NaN where the file has none.
        parents: numbers of the questions that it depends on.
        unreadable: parts of the dependency cell that are no numbers.
        line: in the file.
    """

    id: int
    answer: str
    gold: str
    probability: float
    parents: tuple[int, ...]
    unreadable: tuple[str, ...]
    line: int

    @property
    def exactly_right(self) -> float:
        """1 if the answer is the gold answer to the letter, as the released script compares."""
        return float(self.answer == self.gold)

    @property
    def right(self) -> float:
        """1 if it is but for case, outer blanks and a final stop; NaN without an answer."""
        return float(_plain(self.answer) == _plain(self.gold)) if self.answer.strip() else math.nan


@dataclass(frozen=True)
class Answers:
    """Answers by picture, in file order, and whether they carry probabilities and dependencies."""

    pictures: dict[PictureKey, tuple[Answered, ...]]
    has_probabilities: bool
    has_dependencies: bool
    notes: list[str] = field(default_factory=list)


def read_answers(path: str | Path) -> Answers:
    """Read a file of answers; what is odd but usable is listed in `notes`.

    Raises:
        InputError: a missing column, a question number that is no number, a question twice about one picture, or a
            probability outside [0, 1]; with file and line. No rows at all.
    """
    pictures: dict[PictureKey, list[Answered]] = {}
    columns: dict[str, str | None] | None = None
    for line, row in csv_rows(path):
        if columns is None:
            columns = _columns(path, row)
        where = f"{path}, line {line}"
        key = PictureKey(row[str(columns["generator"])].strip(), row[str(columns["prompt"])].strip())
        of_picture = pictures.setdefault(key, [])
        id_ = _question_number(row[columns["id"]], where) if columns["id"] else len(of_picture) + 1
        if any(other.id == id_ for other in of_picture):
            raise InputError(f"{where}: question {id_} about {key.prompt} by {key.generator} is answered twice")
        cell = parse_dependency(row[columns["parents"]] if columns["parents"] else "0")
        of_picture.append(
            Answered(
                id_,
                row["answer"],
                row[columns["gold"]] if columns["gold"] else "yes",
                _probability(row[columns["probability"]], where) if columns["probability"] else math.nan,
                tuple(parent for parent in cell.parents if parent != id_),
                cell.unreadable,
                line,
            )
        )
    if columns is None:
        raise InputError(f"{path} holds no rows")
    answers = {key: tuple(rows) for key, rows in pictures.items()}
    return Answers(
        answers,
        columns["probability"] is not None,
        columns["parents"] is not None,
        _oddities(answers, columns["gold"] is not None),
    )


def read_ratings(path: str | Path) -> dict[PictureKey, tuple[int, ...]]:
    """Ratings by picture, in file order.

    Raises:
        InputError: a missing column, or a rating that is no whole number from 1 to 5; with file and line. No rows.
    """
    ratings: dict[PictureKey, list[int]] = {}
    for line, row in csv_rows(path):
        generator, prompt, rating = (
            _needed(path, row, names, what)
            for names, what in ((GENERATOR, "generator"), (PROMPT, "prompt"), (RATING, "rating"))
        )
        value = number(row[rating], f"{path}, line {line}, column {rating!r}")
        if value not in LIKERT:
            raise InputError(f"{path}, line {line}: rating is {row[rating]!r}; a whole number from 1 to 5 is needed")
        ratings.setdefault(PictureKey(row[generator].strip(), row[prompt].strip()), []).append(int(value))
    if not ratings:
        raise InputError(f"{path} holds no rows")
    return {key: tuple(values) for key, values in ratings.items()}


def listed(things: Sequence[object], shown: int = SHOWN) -> str:
    """The first few of many things, and how many are not shown.

    Example:
        >>> listed(["a", "b", "c"], shown=2)
        'a, b and 1 more'
    """
    more = f" and {len(things) - shown} more" if len(things) > shown else ""
    return ", ".join(map(str, things[:shown])) + more


def _columns(path: str | Path, row: dict[str, str]) -> dict[str, str | None]:
    if "answer" not in row:
        raise InputError(f"{path} has no column answer; it has {', '.join(row)}")
    return {
        "generator": _needed(path, row, GENERATOR, "generator"),
        "prompt": _needed(path, row, PROMPT, "prompt"),
        "id": column_of(row, QUESTION),
        "parents": column_of(row, PARENTS),
        "gold": column_of(row, ("gold", "gold_answer", "gt_answer")),
        "probability": column_of(row, ("probability",)),
    }


def _needed(path: str | Path, row: dict[str, str], names: Sequence[str], what: str) -> str:
    found = column_of(row, names)
    if found is None:
        raise InputError(f"{path} has no column for the {what} ({', '.join(names)}); it has {', '.join(row)}")
    return found


def _question_number(cell: str, where: str) -> int:
    value = number(cell, where)
    if not value.is_integer():
        raise InputError(f"{where}: question number is {cell!r}; a whole number is needed")
    return int(value)


def _probability(cell: str, where: str) -> float:
    value = number(cell, where)
    if not math.isnan(value) and not 0 <= value <= 1:
        raise InputError(f"{where}: probability is {cell!r}; a number from 0 to 1 is needed")
    return value


def _plain(answer: str) -> str:
    return answer.strip().removesuffix(".").strip().lower()


def _oddities(pictures: dict[PictureKey, tuple[Answered, ...]], has_gold: bool) -> list[str]:
    """Unreadable and unknown parents by row, answers that are neither yes nor no, and questions that lack a row."""
    notes, unknown = [], []
    rows = [(key, question) for key, questions in pictures.items() for question in questions]
    for key, question in rows:
        known = {other.id for other in pictures[key]}
        name = f"line {question.line}: question {question.id} about {key.prompt} by {key.generator}"
        for part in question.unreadable:
            notes.append(f"{name} depends on {part!r}, which is no question number")
        unknown += [f"{name} depends on {parent}" for parent in question.parents if parent not in known]
    if unknown:
        notes.append(f"{len(unknown)} parents have no row, and lower nothing: {listed(unknown)}")
    asked: dict[str, set[int]] = {}
    for key, question in rows:
        asked.setdefault(key.prompt, set()).add(question.id)
    lacking = [
        f"question {id_} about {key.prompt} by {key.generator}"
        for key, questions in pictures.items()
        for id_ in sorted(asked[key.prompt] - {question.id for question in questions})
    ]
    if lacking:
        notes.append(f"{len(lacking)} rows are missing, and their questions left out: {listed(lacking)}")
    unless = "" if has_gold else "; without a column gold, yes is right"
    empty = sum(not question.answer.strip() for _, question in rows)
    odd = sum(_plain(q.answer) not in ("yes", "no", "") and _plain(q.gold) in ("yes", "no") for _, q in rows)
    loose = sum(question.right == 1 and not question.exactly_right for _, question in rows)
    for count, what in (
        (empty, "have no answer"),
        (odd, f"are neither yes nor no, and so not right{unless}"),
        (loose, "are right but for case, blanks or a final stop (the released script counts them wrong)"),
    ):
        if count:
            notes.append(f"{count} of {len(rows)} answers {what}")
    return notes
