"""Judgments on disk: a rerun or a reranking asks the judge only what it has not been asked before."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rewards import databases
from rewards.errors import InputError, RewardsError
from rewards.images import content_hash
from rewards.judges.base import DEFAULT_RATINGS, Judge, Ratings, check_rows
from rewards.judges.elsewhere.wire import read_numbers, write_numbers

_TABLE = "CREATE TABLE IF NOT EXISTS judgments (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"


class CachedJudge(Judge):
    """A judge that remembers.

    A judgment is found again by the picture's content, the prompt, what was asked for, and the judge's identity (name,
    revision, dtype, preprocessing). Abstentions are not kept: what failed is tried again.

    Args:
        judge: The judge that is asked for what is not in the file.
        path: SQLite file; several processes may use it at a time.

    Example:
        >>> judge = CachedJudge(load_judge("shapes-rater"), "judgments.sqlite")  # doctest: +SKIP
    """

    def __init__(self, judge: Judge, path: str | Path) -> None:
        self.judge = judge
        self.path = str(path)
        self.name, self.revision, self.prompts = judge.name, judge.revision, judge.prompts
        self.hits = self.misses = 0
        self._open()

    def identity(self) -> dict[str, Any]:
        """The judge's own identity: a remembered judgment is that judge's judgment."""
        return self.judge.identity()

    def rate(self, images: Sequence[Any], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS) -> Ratings:
        """As the judge's own."""
        images = check_rows(images, prompts, "prompt")
        words = [str(rating) for rating in ratings]
        reasons: dict[int, str | None] = {}

        def ask(rows: list[int]) -> list[Any]:
            found = self.judge.rate([images[row] for row in rows], [prompts[row] for row in rows], words)
            reasons.update(zip(rows, found.reasons or (None,) * len(rows)))
            return [None if bool(row.isnan().any()) else write_numbers(row) for row in found.probabilities]

        keys = [["rate", words, prompt] for prompt in prompts]
        probabilities = torch.full((len(prompts), len(words)), torch.nan)
        for row, kept in enumerate(self._through(images, keys, ask)):
            if kept is not None:
                probabilities[row] = read_numbers(kept)
        return Ratings(probabilities, probabilities.sum(-1), tuple(reasons.get(row) for row in range(len(prompts))))

    def answer(self, images: Sequence[Any], questions: Sequence[str]) -> list[str | None]:
        """As the judge's own."""
        images = check_rows(images, questions, "question")

        def ask(rows: list[int]) -> list[Any]:
            return self.judge.answer([images[row] for row in rows], [questions[row] for row in rows])

        return self._through(images, [["answer", question] for question in questions], ask)

    def choose(
        self, images: Sequence[Any], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """As the judge's own."""
        images = check_rows(images, questions, "question")
        if len(choices) != len(questions):
            raise InputError(f"got {len(questions)} questions but {len(choices)} lists of choices")

        def ask(rows: list[int]) -> list[Any]:
            found = self.judge.choose(
                [images[row] for row in rows], [questions[row] for row in rows], [choices[row] for row in rows]
            )
            return [None if bool(scores.isnan().any()) else write_numbers(scores) for scores in found]

        keys = [["choose", question, list(offered)] for question, offered in zip(questions, choices)]
        return [
            torch.full((len(offered),), torch.nan) if kept is None else read_numbers(kept)
            for kept, offered in zip(self._through(images, keys, ask), choices)
        ]

    def explain(self, images: Sequence[Any], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """As the judge's own."""
        images = check_rows(images, prompts, "prompt")

        def ask(rows: list[int]) -> list[Any]:
            return self.judge.explain(
                [images[row] for row in rows], [prompts[row] for row in rows], [ratings[row] for row in rows]
            )

        keys = [["explain", prompt, rating] for prompt, rating in zip(prompts, ratings)]
        return self._through(images, keys, ask)

    def offload(self) -> None:
        self.judge.offload()

    def close(self) -> None:
        self._database.close()

    def _through(
        self, images: Sequence[Any], keys: Sequence[list[Any]], ask: Callable[[list[int]], list[Any]]
    ) -> list[Any]:
        """Each row's judgment: from the file, or from `ask` and then into the file."""
        hashes: dict[int, list[str] | None] = {}
        for image in images:
            if id(image) not in hashes:
                hashes[id(image)] = _hashes(image)
        # Where pictures came from is left out: a path of preprocessing that was not used yet would change every key.
        judge = {name: value for name, value in self.identity().items() if name != "pictures"}
        found: list[Any] = [None] * len(images)
        digests: dict[int, str] = {}
        with self._lock:
            for row, (image, key) in enumerate(zip(images, keys)):
                pictures = hashes[id(image)]
                if pictures is None:
                    continue  # unreadable: the judge says why
                text = json.dumps([judge, pictures, key], sort_keys=True, default=str)
                digests[row] = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
                found[row] = self._look_up(digests[row])
        missing = [row for row, value in enumerate(found) if value is None]
        self.hits += len(found) - len(missing)
        self.misses += len(missing)
        for row, value in zip(missing, ask(missing) if missing else []):
            found[row] = value
        fresh = [row for row in missing if found[row] is not None and row in digests]
        if fresh:
            self._keep([(digests[row], json.dumps(found[row])) for row in fresh])
        return found

    def _look_up(self, digest: str) -> Any:
        with self._errors():
            row = self._database.execute("SELECT value FROM judgments WHERE key = ?", (digest,)).fetchone()
        return None if row is None else json.loads(row[0])

    def _keep(self, judgments: Sequence[tuple[str, str]]) -> None:
        with self._errors(), databases.writing(self._database, self.path):
            self._database.executemany("INSERT OR REPLACE INTO judgments VALUES (?, ?)", judgments)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            raise RewardsError(f"the judgments in {self.path} cannot be read or written: {error}") from error

    def _open(self) -> None:
        self._lock = threading.RLock()
        try:
            self._database = databases.connect(self.path, check_same_thread=False, cached_statements=16)
        except sqlite3.Error as error:
            raise RewardsError(f"{self.path} cannot be opened: {error}") from error
        with self._errors():
            databases.use_write_ahead_log(self._database)
            with databases.writing(self._database, self.path):
                self._database.execute(_TABLE)

    def __reduce__(self) -> tuple[type[CachedJudge], tuple[Judge, str]]:
        return type(self), (self.judge, self.path)


def _hashes(image: Any) -> list[str] | None:
    entries = image if isinstance(image, (list, tuple)) else [image]
    try:
        return [content_hash(entry) for entry in entries]
    except InputError:
        return None
