"""The question store: fixed questions in one SQLite file, shared by many processes.

Training never writes questions: they are made once (imported, generated, or from a grammar), kept with who made them
and how they were checked, and found by a prompt's id or by its text. Two prompts that differ only in white space are
the same prompt; any other difference makes them two.

The file is in write-ahead-log mode: readers never wait, writers wait for one another, and a process that is killed
leaves the file whole. It must lie on a local disk, since SQLite's log does not work on network file systems.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rewards.databases import Database
from rewards.errors import InputError, RewardsError
from rewards.runs.files import Json, Row
from rewards.tifa.normalization import collapse_blanks
from rewards.tifa.questions.question import Question
from rewards.tifa.store import rows, schema
from rewards.tifa.store.totals import Totals, change_totals, read_totals, write_totals


class StoreError(RewardsError):
    """The store's file cannot be read or written (a full disk, a locked or damaged file)."""


@dataclass(frozen=True)
class Added:
    """What :meth:`QuestionStore.add` did.

    Attributes:
        new: Questions stored.
        known: Questions that were there already, with the same choices and answer; nothing was stored twice.
        kept: Questions that were there with other choices or another answer; the stored ones stayed.
    """

    new: int = 0
    known: int = 0
    kept: int = 0


class Note(NamedTuple):
    """That a prompt was worked on, with anything worth keeping about it, as JSON."""

    id: str | int
    prompt: str
    data: Mapping[str, Json]


class QuestionStore:
    """Question-answer tuples in one SQLite file.

    May be used from several threads and processes at once, forked ones too, and pickled.

    Args:
        path: The file; made where absent, unless `create` is False.
        create: Whether a missing file is made or an error.

    Raises:
        InputError: The file is missing (with `create=False`), is not a question store, or is one of a later version.

    Example:
        >>> import tempfile
        >>> store = QuestionStore(Path(tempfile.mkdtemp()) / "questions.sqlite")
        >>> asked = Question("is it red?", ("yes", "no"), "yes", "red", "color", "a red circle", "s_1")
        >>> store.add([asked]).new
        1
        >>> store.get("a  red circle\\n") == store.get("s_1") == (asked,)
        True
    """

    def __init__(self, path: str | Path, create: bool = True) -> None:
        if str(path) == ":memory:":
            raise InputError("a question store is a file; every thread would have a ':memory:' of its own")
        self.path = Path(path)
        self._database = Database(self.path, partial(schema.open_store, self.path, create))
        self._kept: dict[str | int, tuple[Question, ...]] = {}
        self._kept_at: tuple[sqlite3.Connection, int, int] | None = None
        with self._using():
            pass  # a file that cannot be used is told at once

    def __repr__(self) -> str:
        return f"QuestionStore({str(self.path)!r})"

    def __getstate__(self) -> dict[str, Path]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["path"], create=False)  # type: ignore[misc]

    # Writing

    def add(
        self,
        questions: Iterable[Question],
        provenance: Mapping[str, Json] | None = None,
        on_conflict: str = "error",
        notes: Iterable[Note] = (),
    ) -> Added:
        """Store questions and notes, all or none of them.

        Args:
            questions: Any number. A question whose text is there already for its id is not stored twice.
            provenance: Who made them and how, as JSON: source, model, revision, prompt hash, filter mode, ... The
                date (UTC) and this package's version are added.
            on_conflict: What to do when the stored question has other choices or another answer: "error", or "keep"
                the stored one.
            notes: What is remembered about prompts that were worked on, also where no question came of it.

        Returns:
            How many were new, known, and kept from before.

        Raises:
            InputError: A conflict (naming id and question), or an id that belongs to another prompt.
            StoreError: The file cannot be written.
        """
        if on_conflict not in ("error", "keep"):
            raise InputError(f"on_conflict is {on_conflict!r}; expected 'error' or 'keep'")
        questions, notes = list(questions), list(notes)
        with self._transaction() as connection:
            origin = rows.add_provenance(connection, provenance or {})
            counts = {"new": 0, "known": 0, "kept": 0}
            changes = Totals()
            for question in questions:
                outcome = rows.add_one(connection, question, origin, on_conflict)
                counts[outcome] += 1
                if outcome == "new":
                    changes.count(question)
            change_totals(connection, changes)
            for note in notes:
                number = rows.prompt_number(connection, note.id, note.prompt)
                connection.execute("UPDATE prompts SET note = ? WHERE number = ?", (rows.dump(note.data), number))
        return Added(**counts)

    def record_checks(self, checks: Iterable[tuple[Question, Mapping[str, Json], bool]]) -> None:
        """Keep what a filter found out about questions (see :mod:`rewards.tifa.questions.filtering`).

        Args:
            checks: For each question what is kept beside it, as JSON, and whether it is asked. Questions that are not
                asked stay in the file and are left out by :meth:`get`.
        """
        checks = list(checks)
        with self._transaction() as connection:
            changes = Totals()
            for question, check, kept in checks:
                one = (question.id, rows.text_key(question.text))
                row = connection.execute(f"{schema.SELECT} WHERE p.id = ? AND q.key = ?", one).fetchone()
                if row is None:
                    continue
                if bool(row["kept"]) != kept:
                    changes.count(rows.read_row(row), 1 if kept else -1)
                values = (rows.dump(check), int(kept), *one)
                connection.execute(f"UPDATE questions SET checks = ?, kept = ? {_ONE_QUESTION}", values)
            change_totals(connection, changes)

    def set_meta(self, key: str, value: Json) -> None:
        """Keep one named JSON value about the whole store, such as the filter's mode."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, rows.dump(value)))

    def merge(self, other: QuestionStore, on_conflict: str = "error") -> Added:
        """Take over everything from another store: questions, provenance, checks and notes.

        Raises:
            InputError: As :meth:`add`.
        """
        if other.path.resolve() == self.path.resolve():
            raise InputError(f"{self.path} cannot be merged into itself")
        counts = {"new": 0, "known": 0, "kept": 0}
        with other._using() as source, self._transaction() as connection:
            origins: dict[int, int] = {}
            changes = Totals()
            for row in source.execute(schema.SELECT_ALL):
                question = rows.read_row(row)
                origin = row["origin"]
                if origin not in origins:
                    origins[origin] = rows.add_provenance(connection, other._origin(origin), stamp=False)
                outcome = rows.add_one(connection, question, origins[origin], on_conflict)
                counts[outcome] += 1
                if outcome == "new":
                    number = rows.prompt_number(connection, question.id, question.prompt)
                    connection.execute(
                        "UPDATE questions SET checks = ?, kept = ? WHERE prompt = ? AND key = ?",
                        (row["checks"], row["kept"], number, row["key"]),
                    )
                    if row["kept"]:
                        changes.count(question)
            change_totals(connection, changes)
            for id, prompt, note in source.execute("SELECT id, text, note FROM prompts"):
                number = rows.prompt_number(connection, id, prompt)
                connection.execute("UPDATE prompts SET note = coalesce(note, ?) WHERE number = ?", (note, number))
        return Added(**counts)

    # Reading

    def get(self, prompt_or_id: str | int, dropped: bool = False) -> tuple[Question, ...]:
        """The questions of one prompt, in the order in which they were added.

        Args:
            prompt_or_id: An id, or else a prompt's text. An id is looked for as it is, then as the other of int and
                str. A text that several ids share gives the distinct questions of all of them (the first of equal
                ones).
            dropped: Whether questions that a filter dropped are given as well.

        Raises:
            InputError: Neither an id nor a prompt of this store, or one without questions.
        """
        questions = self._find(prompt_or_id, dropped)
        if not questions:
            raise InputError(self._missing([prompt_or_id]))
        return questions

    def prepare(self, prompts: Sequence[str | int]) -> list[tuple[Question, ...]]:
        """The questions of many prompts, kept in memory for the next call.

        Args:
            prompts: Prompts or ids, as :meth:`get` takes them.

        Returns:
            One tuple of questions for each entry, in the same order; repeated entries stay repeated.

        Raises:
            InputError: Prompts without questions; all are counted and the first are named.
        """
        if isinstance(prompts, str):
            raise InputError("expected a list of prompts; got one string")
        prepared = self._memory()
        for prompt in prompts:
            if prompt not in prepared and (found := self._find(prompt)):
                prepared[prompt] = found
        missing = [prompt for prompt in prompts if prompt not in prepared]
        if missing:
            raise InputError(self._missing(missing))
        return [prepared[prompt] for prompt in prompts]

    def __iter__(self) -> Iterator[Question]:
        """All questions that are asked, in the order in which they were added."""
        return (question for question, kept, _ in self.everything() if kept)

    def everything(self) -> Iterator[tuple[Question, bool, Row | None]]:
        """All questions, dropped ones too, with whether they are asked and what :meth:`record_checks` kept."""
        for row in self._walk(schema.SELECT_ALL):
            yield rows.read_row(row), bool(row["kept"]), json.loads(row["checks"]) if row["checks"] else None

    def __len__(self) -> int:
        """Number of questions that are asked."""
        return int(self._scalar("SELECT count(*) FROM questions WHERE kept = 1"))

    def prompts(self) -> list[tuple[str | int, str]]:
        """Every prompt as (id, text), also those without questions, in the order in which they came."""
        with self._using() as connection:
            return [tuple(row) for row in connection.execute("SELECT id, text FROM prompts ORDER BY number")]

    def notes(self) -> Iterator[Note]:
        """What was remembered about prompts."""
        for id, prompt, note in self._walk("SELECT id, text, note FROM prompts WHERE note IS NOT NULL"):
            yield Note(id, prompt, json.loads(note))

    def worked_on(self) -> dict[str | int, str]:
        """Id and text of the prompts that have questions or a note."""
        with self._using() as connection:
            return {row[0]: row[1] for row in connection.execute(schema.WORKED_ON)}

    def element_types(self) -> tuple[str, ...]:
        """The element types of the questions that are asked, sorted; kept in the file, however many there are."""
        return self._totals().element_types

    def provenance(self, question: Question) -> Row:
        """Who made a question and how, with `date` (UTC) and `version`; under `filter` what :meth:`record_checks`
        kept.

        Raises:
            InputError: The question is not in this store.
        """
        with self._using() as connection:
            row = connection.execute(
                f"SELECT origin, checks FROM questions {_ONE_QUESTION}", (question.id, rows.text_key(question.text))
            ).fetchone()  # fmt: skip
        if row is None:
            raise InputError(f"question {question.text!r} of id {question.id!r} is not in {self.path}")
        return self._origin(row["origin"]) | ({"filter": json.loads(row["checks"])} if row["checks"] else {})

    def meta(self, key: str) -> Json:
        """The value kept by :meth:`set_meta`, or None."""
        value = self._scalar("SELECT value FROM meta WHERE key = ?", (key,))
        kept: Json = None if value is None else json.loads(value)
        return kept

    def fingerprint(self, prompts: Sequence[str | int] | None = None) -> str:
        """32 hexadecimal digits that change when a question that is asked changes, comes or goes.

        Training keeps it in its checkpoints, so that a run resumed with other questions is refused. It does not
        depend on the order in which questions were added, nor on their provenance.

        Args:
            prompts: Only the questions of these prompts or ids; default: all.
        """
        if prompts is None:
            return self._totals().fingerprint
        return Totals({(q.id, q.text): q for found in self.prepare(prompts) for q in found}.values()).fingerprint

    def close(self) -> None:
        """Close the file; it is opened again when needed."""
        self._database.close()

    # Inside

    def _find(self, key: str | int, dropped: bool = False) -> tuple[Question, ...]:
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            raise InputError(f"expected a prompt or an id; got {type(key).__name__}")
        with self._using() as connection:
            for column, value in _lookups(key):
                found = connection.execute(schema.LOOK_UP[column], (value,)).fetchall()
                if found:
                    break
            else:
                return ()
            wanted = [row for row in found if dropped or row["kept"]]
            distinct: dict[bytes, sqlite3.Row] = {}
            for row in wanted:  # of several ids with this text, the first one's question stands
                distinct.setdefault(row["key"], row)
            return tuple(rows.read_row(row) for row in distinct.values())

    def _totals(self) -> Totals:
        with self._using() as connection:
            totals = read_totals(connection)
        if totals is None:  # a file of an earlier version
            if not os.access(self.path.parent, os.W_OK):
                return Totals(self)
            with self._transaction() as connection:  # nobody adds questions while they are counted
                totals = Totals(self)
                write_totals(connection, totals)
        return totals

    def _origin(self, number: int) -> dict[str, Json]:
        return dict(json.loads(self._scalar("SELECT data FROM provenance WHERE number = ?", (number,))))

    def _memory(self) -> dict[str | int, tuple[Question, ...]]:
        """What was read from the file and is still true."""
        with self._using() as connection:
            # SQLite counts other connections' changes and this one's own apart, both by connection.
            changes = connection.execute("PRAGMA data_version").fetchone()[0]
            version = (connection, changes, connection.total_changes)
        if version != self._kept_at or len(self._kept) > _PREPARED_LIMIT:
            self._kept, self._kept_at = {}, version
        return self._kept

    def _walk(self, query: str) -> Iterator[sqlite3.Row]:
        """The rows found, some at a time, so that nobody waits for a reader that takes long over each of them."""
        with self._using() as connection:
            found = connection.execute(query)
        while True:
            with self._using() as now:
                if now is not connection:
                    raise StoreError(f"question store {self.path} was closed, or its process forked, while it was read")
                some = found.fetchmany(_ROWS_AT_A_TIME)
            if not some:
                return
            yield from some

    def _scalar(self, query: str, values: tuple[object, ...] = ()) -> Any:
        with self._using() as connection:
            row = connection.execute(query, values).fetchone()
        return None if row is None else row[0]

    def _missing(self, prompts: Sequence[str | int]) -> str:
        distinct = list(dict.fromkeys(prompts))
        named = ", ".join(repr(prompt) for prompt in distinct[:3])
        more = f" and {len(distinct) - 3} more" if len(distinct) > 3 else ""
        return f"{self.path} has no questions for {named}{more}; add them with `rewards questions build` or `import`"

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors(), self._database.write() as connection:
            yield connection

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with self._errors(), self._database.use() as connection:
            yield connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"question store {self.path}: {error}") from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise InputError(f"question store {self.path} cannot hold this text or id: {error}") from error


_ONE_QUESTION = "WHERE prompt = (SELECT number FROM prompts WHERE id = ?) AND key = ?"
_PREPARED_LIMIT = 4096
"""Prompts kept in memory by `prepare`; about 4 KB each."""
_ROWS_AT_A_TIME = 256


def _lookups(key: str | int) -> Iterator[tuple[str, str | int]]:
    yield "id", key
    if isinstance(key, int):
        yield "id", str(key)
        return
    digits = key.strip()
    if digits.isascii() and digits.isdigit() and str(int(digits)) == digits:
        yield "id", int(digits)
    yield "prompt", collapse_blanks(key)
