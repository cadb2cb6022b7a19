"""The TIFA benchmark (TIFA §4): every question of every prompt about every picture, resumable.

What cannot work is found before the judge starts: pictures that are missing, ids that collide, questions that cannot
be scored. What was answered is written down batch by batch, so that a killed run goes on where it stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.tifa.questions.question import Question, read_json
from rewards.tifa.reward import TIFA, AnswerRow
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
    """A judge's answer to one question about one picture; the fields are those of :class:`AnswerRow`."""

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


def run_benchmark(
    tifa: TIFA,
    pictures: Sequence[Picture],
    journal: str | Path,
    batch_size: int = 8,
    progress: Callable[[int], object] | None = None,
) -> list[Judged]:
    """Ask the judge about every picture.

    Args:
        tifa: The reward; its store holds the questions.
        pictures: What to score.
        journal: A JSONL file that every batch is appended to. Pictures that it holds already, with the same content,
            are not asked about again.
        batch_size: Pictures in one call of the judge.
        progress: Called with the number of pictures that are done.

    Returns:
        One entry a picture, in order.

    Raises:
        InputError: The journal belongs to other questions, another judge or other settings.
    """
    header = {"identity": tifa.identity(), "questions": tifa.questions.fingerprint(), "format": 1}
    done = _read_journal(Path(journal), header)
    keys = [_key(picture) for picture in pictures]
    waiting = [index for index, key in enumerate(keys) if key not in done]
    if progress is not None:
        progress(len(pictures) - len(waiting))
    with Path(journal).open("a", encoding="utf-8") as file:
        if file.tell() == 0:
            _write_lines(file, [header])
        for start in range(0, len(waiting), batch_size):
            batch = waiting[start : start + batch_size]
            rows = _judge(tifa, [pictures[index] for index in batch])
            for index, row in zip(batch, rows):
                done[keys[index]] = row
            _write_lines(file, [{"key": keys[index], **asdict(row)} for index, row in zip(batch, rows)])
            if progress is not None:
                progress(len(batch))
    return [done[key] for key in keys]


def _judge(tifa: TIFA, batch: Sequence[Picture]) -> list[Judged]:
    scores = tifa.score([picture.path for picture in batch], [picture.id for picture in batch])
    answers: list[list[Answer]] = [[] for _ in batch]
    for row in scores.answers:
        answers[row.image].append(_answer(row))
    return [
        Judged(picture.id, picture.name, answers[index], scores.reasons[index]) for index, picture in enumerate(batch)
    ]


def _answer(row: AnswerRow) -> Answer:
    score = None if row.right is None else row.score
    return Answer(row.question.text, row.free_form, row.choice, row.how, row.right, score)


def _key(picture: Picture) -> str:
    """Id, name and content: a picture that was drawn anew is asked about anew."""
    digest = blake2b(picture.path.read_bytes(), digest_size=12).hexdigest()
    return json.dumps([picture.id, picture.name, digest])


def _read_journal(path: Path, header: dict[str, Any]) -> dict[str, Judged]:
    if not path.exists():
        return {}
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):  # the last line of a killed run
        os.truncate(path, len(whole))
    lines = whole.decode("utf-8").splitlines()
    if not lines:
        return {}
    try:
        if json.loads(lines[0]) != json.loads(json.dumps(header)):
            raise InputError(f"{path} was begun with other questions, another judge or other settings; remove it")
        found = {}
        for line in lines[1:]:
            row = json.loads(line)
            answers = [Answer(**answer) for answer in row["answers"]]
            found[row["key"]] = Judged(row["id"], row["name"], answers, row["reason"])
        return found
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a journal of this benchmark: {error}") from error


def _write_lines(file: Any, rows: Iterable[dict[str, Any]]) -> None:
    file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    file.flush()


def questions_by_id(store: QuestionStore, judged: Iterable[Judged]) -> dict[str | int, tuple[Question, ...]]:
    """The questions of every prompt that was judged."""
    ids = list(dict.fromkeys(row.id for row in judged))
    return dict(zip(ids, store.prepare(ids)))
