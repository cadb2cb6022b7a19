"""CSV: a header, then a row of cells each; all values are texts."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from rewards.errors import InputError
from rewards.jobs.sources.base import Entry, Row, Source, content_fingerprint
from rewards.runs.csv_files import cells_problem, strict_reader


class CommaSeparated(Source):
    """Positions are byte offsets, lines count from 1 (the header's). A cell may hold line breaks inside quotes.

    Raises:
        InputError: no header, or one that is not UTF-8 or names a column twice.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with path.open("rb") as file:
            first = next(_records(file), None)
            self._after_header = 0 if first is None else first.end
            self._header_lines = 0 if first is None else first.lines
        if first is None:
            raise InputError(f"{path} is empty; a header with the names of the columns is needed")
        if first.problem is not None:
            raise InputError(f"{path}, line 1 {first.problem}")
        self._header = [first.cells[0].removeprefix("\ufeff"), *first.cells[1:]]
        if twice := sorted({name for name in self._header if self._header.count(name) > 1}):
            raise InputError(f"{path} has column {twice[0]!r} twice in its header")

    def entries(self, column: str | None) -> Iterator[Entry]:
        """See :meth:`Source.entries`."""
        with self.path.open("rb") as file:
            file.seek(self._after_header)
            for record in _records(file, line=self._header_lines + 1):
                if column is None:
                    yield Entry(record.start, record.line, None, None)
                    continue
                try:
                    yield Entry(record.start, record.line, self._row(record).get(column), None)
                except ValueError as error:
                    yield Entry(record.start, record.line, None, str(error))

    def read(self, positions: Sequence[int]) -> list[Row]:
        """See :meth:`Source.read`."""
        rows = []
        with self.path.open("rb") as file:
            for position in positions:
                file.seek(position)
                rows.append(self._row(next(_records(file))))
        return rows

    def columns(self, wanted: Sequence[Collection[str]] = ()) -> list[str]:
        """See :meth:`Source.columns`."""
        return list(self._header)

    def fingerprint(self) -> str:
        """See :meth:`Source.fingerprint`."""
        return content_fingerprint(self.path)

    def _row(self, record: _Record) -> Row:
        """The cells by name; cells that are missing at the end are None."""
        if record.problem is not None:
            raise ValueError(record.problem)
        if len(record.cells) > len(self._header):
            raise ValueError(f"has {len(record.cells)} cells, the header {len(self._header)}")
        missing: list[str | None] = [None] * (len(self._header) - len(record.cells))
        return dict(zip(self._header, [*record.cells, *missing], strict=True))


class _Record:
    """A row of cells between two byte offsets, or why it is none."""

    def __init__(self, start: int, end: int, line: int, lines: int, cells: list[str], problem: str | None) -> None:
        self.start, self.end, self.line, self.lines = start, end, line, lines
        self.cells, self.problem = cells, problem


def _records(file: BinaryIO, line: int = 1) -> Iterator[_Record]:
    """The rows from the file's position on; empty lines are none.

    A quote that is not closed costs its own line: what it would have swallowed is read as the rows that it is.
    """
    lines = _Lines(file)
    while True:
        start, before = lines.position, lines.count
        # A reader for each row: after an error csv's own is in the middle of a cell.
        reader = strict_reader(lines)
        problem, cells = None, []
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"is not CSV: {error} (a quote that is not closed?)"
            lines.back_to_the_line_after(start, before)
        problem = problem or cells_problem(cells)
        if cells or problem:
            yield _Record(start, lines.position, line + before, lines.count - before, cells, problem)


class _Lines:
    """Decoded lines, with the place that was read up to. Bytes that are not UTF-8 become lone surrogates."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.position = file.tell()
        self.count = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        content = self._file.readline()
        if not content:
            raise StopIteration
        self.position += len(content)
        self.count += 1
        return content.decode("utf-8", errors="surrogateescape")

    def back_to_the_line_after(self, start: int, count: int) -> None:
        """Go on behind the line that begins at `start`, before which `count` lines were read."""
        self._file.seek(start)
        self.position, self.count = start, count
        next(self)
