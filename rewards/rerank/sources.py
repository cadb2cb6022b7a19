"""Files of candidates: JSON lines, Parquet, or a Hugging Face dataset on disk.

A source is scanned once, in order, for the keys of its rows, and then read by position: a shard of work knows where its
rows are, so that nobody holds the whole file, and a cluster ships positions instead of pictures.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rewards.errors import InputError


class Scanned(NamedTuple):
    """A row as the scan sees it: where it is, its key, or why it is unusable."""

    position: int
    line: int
    key: str | None
    problem: str | None


class Source(Protocol):
    """What every kind of file offers."""

    path: Path

    def scan(self, key: str, required: bool) -> Iterator[Scanned]:
        """All rows in order with their value of column `key`; a row without it is a problem only where `required`."""

    def read(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """The rows at some positions, in the order asked for."""

    def fingerprint(self) -> str:
        """Changes when the file does."""


def open_source(path: str | Path) -> Source:
    """The source for a path, by its kind.

    Raises:
        InputError: neither a `.jsonl` or `.parquet` file nor a folder written by `Dataset.save_to_disk`.
        OSError: no such file.

    Example:
        >>> open_source("candidates.csv")
        Traceback (most recent call last):
        ...
        FileNotFoundError: candidates.csv
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(str(path))
    if path.is_dir():
        if not (path / "dataset_info.json").exists():
            raise InputError(
                f"{path} is a folder without dataset_info.json; one written by Dataset.save_to_disk is needed"
            )
        return DatasetSource(path)
    if path.suffix.lower() == ".jsonl":
        return JsonLinesSource(path)
    if path.suffix.lower() == ".parquet":
        return ParquetSource(path)
    raise InputError(f"{path} is neither .jsonl nor .parquet nor a dataset folder")


class JsonLinesSource:
    """An object a line; positions are byte offsets, lines count from 1. Blank lines are not rows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def scan(self, key: str, required: bool) -> Iterator[Scanned]:
        position = 0
        with self.path.open("rb") as file:
            for line, content in enumerate(file, start=1):
                if content.strip():
                    yield self._scanned(content, position, line, key, required)
                position += len(content)

    def _scanned(self, content: bytes, position: int, line: int, key: str, required: bool) -> Scanned:
        try:
            row = json.loads(content)
            if b"\\ud" in content or b"\\uD" in content:
                json.dumps(row, ensure_ascii=False).encode()  # half a character, which no file can hold, fails here
        except (ValueError, RecursionError) as error:
            return Scanned(position, line, None, f"is not JSON: {error}")
        if not isinstance(row, dict):
            return Scanned(position, line, None, f"is {type(row).__name__}; an object is needed")
        return _with_key(row, position, line, key, required)

    def read(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        rows = []
        with self.path.open("rb") as file:
            for position in positions:
                file.seek(position)
                rows.append(json.loads(file.readline()))
        return rows

    def fingerprint(self) -> str:
        # The whole content: the scan reads and parses all of it anyway.
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


class ParquetSource:
    """Positions are row numbers from 0, lines count from 1. Row groups are read one at a time."""

    def __init__(self, path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        self.path = path
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"{path} is not a Parquet file: {error}") from error
        sizes = [self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)]
        self._starts = list(itertools.accumulate(sizes, initial=0))[:-1]
        self._cached: tuple[int, Any] | None = None
        self._lock = threading.Lock()  # a job has a thread for each local device

    def scan(self, key: str, required: bool) -> Iterator[Scanned]:
        if not _has_column(self.path, self._file.schema_arrow.names, key, required):
            for position in range(self._file.metadata.num_rows):
                yield Scanned(position, position + 1, None, None)
            return
        position = 0
        try:
            for batch in self._file.iter_batches(batch_size=4096, columns=[key]):
                for row in batch.to_pylist():
                    yield _with_key(row, position, position + 1, key, required)
                    position += 1
        except (ValueError, OSError) as error:  # pyarrow's own errors are of these kinds too
            if getattr(error, "errno", None) is not None:
                raise
            raise InputError(f"{self.path}, column {key!r}, row {position + 1} or after: {error}") from error

    def read(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        rows = []
        for position in positions:
            group = bisect.bisect_right(self._starts, position) - 1
            rows.append(self._group(group).slice(position - self._starts[group], 1).to_pylist()[0])
        return rows

    def _group(self, group: int) -> Any:
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

    def fingerprint(self) -> str:
        return _file_fingerprint([self.path])


class DatasetSource:
    """A folder written by `Dataset.save_to_disk`; positions are row numbers from 0, lines count from 1.

    Pictures stay encoded (`{"bytes", "path"}`) until they are judged.
    """

    def __init__(self, path: Path) -> None:
        import datasets

        self.path = path
        dataset = datasets.load_from_disk(str(path))
        if not isinstance(dataset, datasets.Dataset):
            raise InputError(f"{path} holds splits ({', '.join(dataset)}); give the folder of one of them")
        self._dataset = dataset.with_format("arrow")

    def scan(self, key: str, required: bool) -> Iterator[Scanned]:
        if not _has_column(self.path, self._dataset.column_names, key, required):
            for position in range(len(self._dataset)):
                yield Scanned(position, position + 1, None, None)
            return
        position = 0
        for table in self._dataset.select_columns([key]).iter(batch_size=4096):
            for row in table.to_pylist():
                yield _with_key(row, position, position + 1, key, required)
                position += 1

    def read(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        return list(self._dataset[list(positions)].to_pylist())

    def fingerprint(self) -> str:
        return _file_fingerprint(sorted(self.path.glob("*.arrow")))


def _has_column(path: Path, names: Sequence[str], key: str, required: bool) -> bool:
    if required and key not in names:
        raise InputError(f"{path} has no column {key!r}; it has {', '.join(names)}")
    return key in names


def _with_key(row: dict[str, Any], position: int, line: int, key: str, required: bool) -> Scanned:
    value = row.get(key)
    if value is None and not required:
        return Scanned(position, line, None, None)
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        return Scanned(position, line, None, f"has {key} {value!r}; text or a whole number is needed")
    return Scanned(position, line, str(value), None)


def _file_fingerprint(paths: Sequence[Path]) -> str:
    """Size, first and last mebibyte of each file: cheap for terabytes, and not fooled by a copy with a new date."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(2**20))
            file.seek(max(0, size - 2**20))
            digest.update(file.read(2**20))
    return digest.hexdigest()
