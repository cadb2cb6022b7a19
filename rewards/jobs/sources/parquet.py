"""Parquet files, a row group at a time."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet

from rewards.errors import InputError
from rewards.jobs.sources.base import Entry, Row, Source, ends_fingerprint


class Parquet(Source):
    """Positions are row numbers from 0, lines count from 1.

    Raises:
        InputError: not a Parquet file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"{path} is not a Parquet file: {error}") from error
        sizes = [self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)]
        self._starts = list(itertools.accumulate(sizes, initial=0))[:-1]
        self._cached: tuple[int, pyarrow.Table] | None = None
        self._lock = threading.Lock()  # a job has a thread for each local device

    def entries(self, column: str | None) -> Iterator[Entry]:
        """See :meth:`Source.entries`."""
        if column not in self.columns():
            for position in range(self._file.metadata.num_rows):
                yield Entry(position, position + 1, None, None)
            return
        position = 0
        try:
            for batch in self._file.iter_batches(batch_size=4096, columns=[column]):
                for row in batch.to_pylist():
                    yield Entry(position, position + 1, row[column], None)
                    position += 1
        except (ValueError, OSError) as error:  # pyarrow's own errors are of these kinds too
            if getattr(error, "errno", None) is not None:
                raise
            raise InputError(f"{self.path}, column {column!r}, row {position + 1} or after: {error}") from error

    def read(self, positions: Sequence[int]) -> list[Row]:
        """See :meth:`Source.read`."""
        rows = []
        for position in positions:
            group = bisect.bisect_right(self._starts, position) - 1
            rows.append(self._group(group).slice(position - self._starts[group], 1).to_pylist()[0])
        return rows

    def _group(self, group: int) -> pyarrow.Table:
        """A row group, the last one kept; damaged data is a ValueError, as broken JSON is."""
        with self._lock:
            if self._cached is None or self._cached[0] != group:
                try:
                    self._cached = (group, self._file.read_row_group(group))
                except OSError as error:
                    if error.errno is not None:
                        raise
                    raise ValueError(str(error)) from error
            return self._cached[1]

    def columns(self, wanted: Sequence[Collection[str]] = ()) -> list[str]:
        """See :meth:`Source.columns`."""
        return list(self._file.schema_arrow.names)

    def fingerprint(self) -> str:
        """See :meth:`Source.fingerprint`."""
        return ends_fingerprint([self.path])
