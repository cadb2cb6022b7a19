"""Judgments on disk: a rerun or a reranking asks the judge only what it has not been asked before."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch

from rewards import databases
from rewards.databases import Database
from rewards.errors import InputError, RewardsError
from rewards.images import Picture
from rewards.judges.base import DEFAULT_RATINGS, Ability, Judge, Ratings, check_choices, check_rows
from rewards.judges.elsewhere.wire import read_numbers, write_numbers
from rewards.judges.pictures import pictures_of_rows, read_picture
from rewards.runs.files import Json

_FORMAT = 2
"""Counted up when what is kept of a judgment changes: older files are then asked anew."""

_TABLE = "CREATE TABLE IF NOT EXISTS judgments (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"


class CachedJudge(Judge):
    """A judge that remembers.

    A judgment is found again by the picture's content, the prompt, what was asked for, and the judge's identity (name,
    weights, dtype, preprocessing). Abstentions are not kept: what failed is tried again.

    Args:
        judge: The judge that is asked for what is not in the file.
        path: SQLite file; several processes may use it at a time.

    Example:
        >>> import tempfile
        >>> from rewards import load_judge
        >>> judge = CachedJudge(load_judge("shapes-rater"), tempfile.mkdtemp() + "/judgments.sqlite")
        >>> judge.name
        'shapes-rater'
    """

    def __init__(self, judge: Judge, path: str | Path) -> None:
        self.judge = judge
        self.path = str(path)
        self.name, self.revision, self.prompts = judge.name, judge.revision, judge.prompts
        self.one_word, self.elsewhere = judge.one_word, judge.elsewhere
        self.takes_tensors = judge.takes_tensors
        self.hits = self.misses = 0
        self._database = Database(path, lambda: _open(str(path)))
        with self._errors(), self._database.use():
            pass  # a file that cannot be used is told before the judge is asked

    @property
    def abilities(self) -> frozenset[Ability]:
        """The judge's own."""
        return self.judge.abilities

    def identity(self) -> dict[str, Json]:
        """The judge's own identity: a remembered judgment is that judge's judgment."""
        return self.judge.identity()

    def rate(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """As the judge's own."""
        images = check_rows(images, prompts, "prompt")
        words = [str(rating) for rating in ratings]
        reasons: dict[int, str | None] = {}

        def ask(rows: list[int], pictures: list[object]) -> list[Json]:
            found = self.judge.rate(pictures, [prompts[row] for row in rows], words)
            reasons.update(zip(rows, found.reasons or (None,) * len(rows)))
            unseen = found.unseen if found.unseen is not None else torch.zeros(len(rows))
            kept = torch.cat([found.probabilities, unseen.unsqueeze(-1)], dim=-1)
            return [None if bool(row[:-1].isnan().any()) else write_numbers(row) for row in kept]

        keys: list[list[Json]] = [["rate", words, prompt] for prompt in prompts]
        table = torch.full((len(prompts), len(words) + 1), torch.nan)
        for row, kept in enumerate(self._through(images, keys, ask)):
            if isinstance(kept, list):
                table[row] = read_numbers(kept)
        probabilities = table[:, :-1]
        unseen = None if bool((table[:, -1].nan_to_num() == 0).all()) else table[:, -1]
        every = tuple(reasons.get(row) for row in range(len(prompts)))
        return Ratings(probabilities, probabilities.sum(-1), every, unseen)

    def rate_after(
        self, images: Sequence[object], prompts: Sequence[str], said: Sequence[str], ratings: Sequence[str]
    ) -> Ratings:
        """Asked anew every time: only whole answers are kept."""
        return self.judge.rate_after(images, prompts, said, ratings)

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """As the judge's own."""
        images = check_rows(images, questions, "question")

        def ask(rows: list[int], pictures: list[object]) -> list[Json]:
            return list(self.judge.answer(pictures, [questions[row] for row in rows]))

        keys: list[list[Json]] = [["answer", question] for question in questions]
        return [None if kept is None else str(kept) for kept in self._through(images, keys, ask)]

    def choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """As the judge's own."""
        images = check_rows(images, questions, "question")
        check_choices(questions, choices)

        def ask(rows: list[int], pictures: list[object]) -> list[Json]:
            found = self.judge.choose(pictures, [questions[row] for row in rows], [choices[row] for row in rows])
            return [None if bool(scores.isnan().any()) else write_numbers(scores) for scores in found]

        keys: list[list[Json]] = [["choose", question, list(offered)] for question, offered in zip(questions, choices)]
        return [
            read_numbers(kept) if isinstance(kept, list) else torch.full((len(offered),), torch.nan)
            for kept, offered in zip(self._through(images, keys, ask), choices)
        ]

    def mass(self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        """As the judge's own."""
        images = check_rows(images, prompts, "prompt")
        check_choices(prompts, forms)

        def ask(rows: list[int], pictures: list[object]) -> list[Json]:
            found = self.judge.mass(pictures, [prompts[row] for row in rows], [forms[row] for row in rows])
            return [None if value != value else value for value in found.tolist()]

        keys: list[list[Json]] = [["mass", prompt, list(spelled)] for prompt, spelled in zip(prompts, forms)]
        kept = self._through(images, keys, ask)
        return torch.tensor([float(value) if isinstance(value, int | float) else torch.nan for value in kept])

    def choose_with_grad(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Asked of the judge each time: a gradient cannot be kept."""
        return self.judge.choose_with_grad(images, questions, choices)

    def mass_with_grad(
        self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]
    ) -> torch.Tensor:
        """As :meth:`choose_with_grad`."""
        return self.judge.mass_with_grad(images, prompts, forms)

    def rate_with_grad(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """As :meth:`choose_with_grad`."""
        return self.judge.rate_with_grad(images, prompts, ratings)

    def explain(self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """As the judge's own."""
        images = check_rows(images, prompts, "prompt")

        def ask(rows: list[int], pictures: list[object]) -> list[Json]:
            return list(self.judge.explain(pictures, [prompts[row] for row in rows], [ratings[row] for row in rows]))

        keys: list[list[Json]] = [["explain", prompt, rating] for prompt, rating in zip(prompts, ratings)]
        return [None if kept is None else str(kept) for kept in self._through(images, keys, ask)]

    def offload(self) -> None:
        self.judge.offload()

    def close(self) -> None:
        self._database.close()

    def _through(
        self,
        images: Sequence[object],
        keys: Sequence[list[Json]],
        ask: Callable[[list[int], list[object]], list[Json]],
    ) -> list[Json]:
        """Each row's judgment: from the file, or from `ask` and then into the file.

        Args:
            images: One entry a row; read and hashed here, and handed on as they were read.
            keys: What each row asks for.
            ask: Judgments of some rows about their pictures, None for one that must not be kept.
        """
        judge = self.identity()
        found: list[Json] = [None] * len(images)
        pictures: list[object] = list(images)
        digests: dict[int, str] = {}
        for row, (read, key) in enumerate(zip(pictures_of_rows(images, keep_tensors=True, read=read_picture), keys)):
            if isinstance(read, InputError):
                continue  # unreadable: the judge says why
            pictures[row] = read[0] if len(read) == 1 else read
            digests[row] = _digest(judge, read, key)
        for row, kept in self._look_up(digests).items():
            found[row] = kept
        missing = [row for row, value in enumerate(found) if value is None]
        self.hits += len(found) - len(missing)
        self.misses += len(missing)
        for row, value in zip(missing, ask(missing, [pictures[row] for row in missing]) if missing else []):
            found[row] = value
        fresh = [row for row in missing if found[row] is not None and row in digests]
        if fresh:
            self._keep([(digests[row], json.dumps(found[row])) for row in fresh])
        return found

    def _look_up(self, digests: Mapping[int, str]) -> dict[int, Json]:
        with self._errors(), self._database.use() as connection:
            rows = {
                row: connection.execute("SELECT value FROM judgments WHERE key = ?", (digest,)).fetchone()
                for row, digest in digests.items()
            }
        return {row: cast(Json, json.loads(kept[0])) for row, kept in rows.items() if kept is not None}

    def _keep(self, judgments: Sequence[tuple[str, str]]) -> None:
        with self._errors(), self._database.write() as connection:
            connection.executemany("INSERT OR REPLACE INTO judgments VALUES (?, ?)", judgments)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise RewardsError(f"the judgments in {self.path} cannot be read or written: {error}") from error

    def __reduce__(self) -> tuple[type[CachedJudge], tuple[Judge, str]]:
        return type(self), (self.judge, self.path)


def _open(path: str) -> sqlite3.Connection:
    connection = databases.connect(path, cached_statements=16)
    databases.use_write_ahead_log(connection)
    with databases.writing(connection, path):
        connection.execute(_TABLE)
    return connection


def _digest(judge: Mapping[str, Json], pictures: Sequence[Picture], key: list[Json]) -> str:
    text = json.dumps([_FORMAT, judge, [one.key for one in pictures], key], sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
