"""What every kind of file of rows offers to a job."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rewards.errors import InputError

Row = dict[str, object]
"""Column -> value."""


class Entry(NamedTuple):
    """A row in passing: where it is, the value that was looked for, or why the row is unusable."""

    position: int
    line: int
    value: object
    problem: str | None


class Scanned(NamedTuple):
    """A row as the scan sees it: where it is, its key, or why it is unusable."""

    position: int
    line: int
    key: str | int | None
    problem: str | None


class Source(ABC):
    """Rows in a file or folder.

    A source is scanned once, in order, and then read by position: a shard of work knows where its rows are, so that
    nobody holds the whole file, and a cluster ships positions instead of pictures.

    Args:
        path: of the file or folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def entries(self, column: str | None) -> Iterator[Entry]:
        """All rows in order, with the value of one column (None where a row lacks it).

        Args:
            column: None: rows are found and not looked into.

        Raises:
            InputError: a file that cannot be read further.
        """

    def scan(self, key: str | None, required: bool) -> Iterator[Scanned]:
        """All rows in order, by their key.

        Args:
            key: the column whose value names a row; None: no row has one.
            required: a row without the key is a problem.

        Raises:
            InputError: as :meth:`entries`, or the column does not occur though it is required.
        """
        if key is not None and required:
            self.check_columns([key])
        for position, line, value, problem in self.entries(key):
            if problem is not None or key is None or (value is None and not required):
                yield Scanned(position, line, None, problem)
            elif not isinstance(value, str | int) or isinstance(value, bool) or value == "":
                reason = f"has {key} {short(value)}; text or a whole number is needed"
                yield Scanned(position, line, None, reason)
            else:
                yield Scanned(position, line, value, None)

    @abstractmethod
    def read(self, positions: Sequence[int]) -> list[Row]:
        """The rows at some positions, in the order asked for.

        Raises:
            ValueError: a row is damaged; the message says how.
        """

    @abstractmethod
    def columns(self, wanted: Sequence[Collection[str]] = ()) -> list[str]:
        """Names of the columns.

        Args:
            wanted: where every row has names of its own, rows are read until one name of each group has been met.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the content does, and not with the place."""

    def check_columns(self, *wanted: Collection[str]) -> None:
        """Refuse a source that has no row with what is needed.

        Args:
            wanted: groups of names, of each of which one is needed.

        Raises:
            InputError: names what is missing and what is there.
        """
        found = self.columns(wanted)
        missing = [group for group in wanted if not any(name in found for name in group)]
        if found and missing:  # where no row can be read at all, each is reported
            names = " and no ".join(" or ".join(map(repr, group)) for group in missing)
            raise InputError(f"{self.path} has no column {names}; it has {', '.join(found)}")


def content_fingerprint(path: Path) -> str:
    """Of the whole content: for kinds of files that are read and parsed as a whole anyway."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def ends_fingerprint(paths: Sequence[Path]) -> str:
    """Of size, first and last mebibyte of each file: cheap for terabytes, and not fooled by a copy with a new date."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(2**20))
            file.seek(max(0, size - 2**20))
            digest.update(file.read(2**20))
    return digest.hexdigest()


_SHOWN = 200


def short(value: object) -> str:
    """A value as it is shown in a message, at most 200 characters.

    Example:
        >>> short(float("nan")), len(short("x" * 1000))
        ('nan', 200)
    """
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 2 + 3 :]}"
