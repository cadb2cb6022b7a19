"""The TIFA benchmark (TIFA §4): every question of every prompt about every picture.

What cannot work is found before the judge starts: pictures that are missing, ids that collide, questions that cannot
be scored. `rewards.jobs.tifa_bench` does the asking, results.py makes the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rewards.errors import InputError
from rewards.tifa.questions.question import Question, read_json
from rewards.tifa.store.store import QuestionStore


@dataclass(frozen=True)
class Picture:
    """One picture to be scored.

    Attributes:
        id: The id of its prompt, as in the question store.
        name: Its path as the image file says it.
        path: Where it lies.
    """

    id: str | int
    name: str
    path: Path


@dataclass(frozen=True)
class Plan:
    """What a benchmark run will do.

    Attributes:
        pictures: Those that exist and have questions, in the order of the image file.
        missing: Pictures that are named but do not exist, as "id: path".
        without_pictures: Ids that have questions but no picture in the image file.
        without_questions: Ids in the image file that have no questions; they are left out.
    """

    pictures: list[Picture]
    missing: list[str]
    without_pictures: list[str]
    without_questions: list[str]


@dataclass(frozen=True)
class Answer:
    """A judge's answer to one question about one picture; the fields are those of
    :class:`rewards.tifa.reward.AnswerRow`."""

    text: str
    free_form: str | None
    choice: str | None
    how: str
    right: bool | None
    score: float | None


@dataclass(frozen=True)
class Judged:
    """One picture's answers, or why there are none."""

    id: str | int
    name: str
    answers: list[Answer]
    reason: str | None


def plan_benchmark(store: QuestionStore, images: str | Path) -> Plan:
    """Read an official image file and compare it with the questions.

    Args:
        store: The questions.
        images: JSON that maps each prompt's id to a path or a list of paths, relative to the file's own folder.

    Raises:
        InputError: The file is something else, or two ids of the store (5 and "5") are one key in it.
    """
    named = _read_images(Path(images))
    ids: dict[str, str | int] = {}
    for id in dict.fromkeys(question.id for question in store):
        if str(id) in ids:
            raise InputError(f"the ids {id!r} and {ids[str(id)]!r} are one key in JSON; rename one of them")
        ids[str(id)] = id
    pictures, missing = [], []
    for key, names in named.items():
        for name in names if key in ids else ():
            path = Path(images).parent / name
            if path.is_file():
                pictures.append(Picture(ids[key], name, path))
            else:
                missing.append(f"{key}: {path}")
    return Plan(pictures, missing, [key for key in ids if key not in named], [key for key in named if key not in ids])


def _read_images(path: Path) -> dict[str, list[str]]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} holds one {type(content).__name__}; expected an object that maps ids to pictures")
    named = {}
    for key, value in content.items():
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}: id {key!r} has {value!r}; expected a path or a list of paths")
        named[key] = list(dict.fromkeys(names))
    return named


def questions_by_id(store: QuestionStore, judged: Iterable[Judged]) -> dict[str | int, tuple[Question, ...]]:
    """The questions of every prompt that was judged."""
    ids = list(dict.fromkeys(row.id for row in judged))
    return dict(zip(ids, store.prepare(ids)))
