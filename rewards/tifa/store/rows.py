"""From questions to the store's rows and back, inside a transaction of :mod:`rewards.tifa.store.store`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b

from rewards._version import __version__
from rewards.errors import InputError
from rewards.runs.files import Json
from rewards.tifa.normalization import collapse_blanks
from rewards.tifa.questions.question import Question
from rewards.tifa.store import schema


def add_one(connection: sqlite3.Connection, question: Question, origin: int, on_conflict: str) -> str:
    """Store a question unless it is there: "new", "known" (the same) or "kept" (the stored one differs and stays)."""
    number = prompt_number(connection, question.id, question.prompt)
    key = text_key(question.text)
    old = connection.execute(f"{schema.SELECT} WHERE p.number = ? AND q.key = ?", (number, key)).fetchone()
    if old is not None:
        known = read_row(old)
        if scored_fields(known) == scored_fields(question):
            return "known"
        if on_conflict == "keep":
            return "kept"
        raise InputError(
            f"id {question.id!r} already has the question {question.text!r} with choices {list(known.choices)} and "
            f"answer {known.answer!r}; the new one has choices {list(question.choices)} and answer "
            f"{question.answer!r}"
        )
    connection.execute(
        schema.INSERT,
        (number, key, question.text, dump(question.choices), question.answer, question.element_type,
         question.element, question.prompt, dump(question.extra) if question.extra else None,
         dump(question.depends_on) if question.depends_on else None, origin),
    )  # fmt: skip
    connection.execute("UPDATE counter SET next = next + 1")
    return "new"


def prompt_number(connection: sqlite3.Connection, id: str | int, prompt: str) -> int:
    """The number of an id's prompt, which is made where absent."""
    key = collapse_blanks(prompt)
    row = connection.execute("SELECT number, key, text FROM prompts WHERE id = ?", (id,)).fetchone()
    if row is None:
        inserted = connection.execute("INSERT INTO prompts (id, text, key) VALUES (?, ?, ?)", (id, prompt, key))
        return int(inserted.lastrowid or 0)
    if row["key"] != key:
        raise InputError(f"id {id!r} belongs to the prompt {row['text']!r}; got {prompt!r}")
    return int(row["number"])


def add_provenance(connection: sqlite3.Connection, data: Mapping[str, Json], stamp: bool = True) -> int:
    """The number of a provenance, which is made where absent; `stamp` adds date and version."""
    stamps = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "version": __version__} if stamp else {}
    text = dump(stamps | dict(data))
    connection.execute("INSERT OR IGNORE INTO provenance (data) VALUES (?)", (text,))
    return int(connection.execute("SELECT number FROM provenance WHERE data = ?", (text,)).fetchone()[0])


def read_row(row: sqlite3.Row) -> Question:
    """A row of :data:`rewards.tifa.store.schema.SELECT` -> its question."""
    # Straight into the object: every row was checked when it was added, and checking again doubles the look-up time.
    question = object.__new__(Question)
    _, _, _, text, choices, answer, element_type, element, extra, parents, _, _, _, id, prompt = row
    question.__dict__.update(
        text=text, choices=_read_choices(choices), answer=answer, element=element, element_type=element_type,
        prompt=prompt, id=id, extra=json.loads(extra) if extra else {},
        depends_on=_read_choices(parents) if parents else (),
    )  # fmt: skip
    return question


@lru_cache(4096)
def _read_choices(text: str) -> tuple[str, ...]:
    # Most questions of a store share a few sets of choices, "yes, no" above all.
    return tuple(json.loads(text))


def scored_fields(question: Question) -> list[object]:
    """What a score depends on; two questions that agree in it are the same."""
    prompt, text = collapse_blanks(question.prompt), collapse_blanks(question.text)
    fields: list[object] = [question.id, prompt, text, list(question.choices), question.answer, question.element_type]
    return [*fields, list(question.depends_on)] if question.depends_on else fields


def question_hash(question: Question) -> int:
    """128 bits of what a score depends on."""
    return int.from_bytes(blake2b(dump(scored_fields(question)).encode(), digest_size=16).digest(), "big")


def text_key(text: str) -> bytes:
    """A question's identity within its prompt: 8 bytes, so that a million of them stay a small index."""
    return blake2b(collapse_blanks(text).encode(), digest_size=8).digest()


def dump(value: object) -> str:
    """Compact JSON; an error names what is not JSON."""
    if isinstance(value, Mapping):
        value = dict(value)
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InputError(f"not JSON: {value!r} ({error})") from error
