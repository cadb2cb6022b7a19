"""CSV files with a header, read strictly: a quote that is never closed must not swallow the rows after it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rewards.errors import InputError

LARGEST_CELL = 2**24
"""Python's own limit of 131,072 characters a cell refuses long documents."""

_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what `errors="surrogateescape"` makes of such bytes


def strict_reader(lines: Iterable[str], delimiter: str = ",") -> Iterator[list[str]]:
    """A reader of cells that raises `csv.Error` where a quote is not closed, or closed within a cell."""
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_CELL))
    return csv.reader(lines, strict=True, delimiter=delimiter)


def cells_problem(cells: Sequence[str]) -> str | None:
    """Why decoded cells cannot be used, or None."""
    return "is not UTF-8; save the file as UTF-8" if any(map(_NOT_UTF8.search, cells)) else None


def csv_rows(
    path: str | Path, columns: Sequence[str] = (), *, delimiter: str = ",", whole: bool = True
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, cells by column) for every row of a CSV file with a header; a byte order mark is left out.

    Args:
        path: the file.
        columns: what its header must have.
        delimiter: between the cells.
        whole: refuse rows with another number of cells than the header; otherwise what is missing is "", and what is
            too much is left out.

    Raises:
        InputError: a missing column, a row with another number of cells, a quote that is not closed, or bytes that are
            not UTF-8; with the line.
    """
    with Path(path).open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        counted = _Counted(file)
        reader = strict_reader(counted, delimiter)
        header: list[str] = []
        while True:
            begins = counted.lines + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise InputError(f"{path}, line {begins}: is not CSV: {error} (a quote that is not closed?)") from error
            if cells is None:
                break
            if (problem := cells_problem(cells)) is not None:
                raise InputError(f"{path}, line {begins}: {problem}")
            if not header:
                header = cells
                if missing := [name for name in columns if name not in header]:
                    names = ", ".join(map(repr, missing))
                    raise InputError(f"{path} has no column {names}; it has {', '.join(header)}")
            elif cells:
                if whole and len(cells) != len(header):
                    raise InputError(f"{path}, line {counted.lines}: has another number of cells than the header")
                cells += [""] * (len(header) - len(cells))
                yield counted.lines, dict(zip(header, cells, strict=False))
    if not header and columns:
        raise InputError(f"{path} has no column {', '.join(map(repr, columns))}; it is empty")


class _Counted:
    """Lines with their number."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.lines = 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.lines += 1
        return line
