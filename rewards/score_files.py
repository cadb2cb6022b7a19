"""Scoring what is in a file: rows in (JSONL, CSV or Parquet), one record with every part a row out, resumable.

The output is JSON lines in the order of the input. A run that was killed leaves whole records and perhaps one cut-off
line; the next run drops that line and goes on with the first row that has no record.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rewards.errors import InputError

Record = dict[str, Any]


def read_rows(path: Path) -> Iterator[Record]:
    """The rows of a `.jsonl`, `.csv` or `.parquet` file, in order.

    Raises:
        InputError: Another kind of file, or a row that cannot be read; the message names its line.
        OSError: The file cannot be opened.
    """
    kind = path.suffix.lower()
    if kind == ".jsonl":
        yield from _json_lines(path)
    elif kind == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file)
    elif kind == ".parquet":
        import pyarrow
        import pyarrow.parquet

        try:
            for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=64):
                yield from batch.to_pylist()
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"{path} is not a Parquet file: {error}") from error
    else:
        raise InputError(f"{path} is a {kind or 'nameless'} file; expected .jsonl, .csv or .parquet")


def picture_of(row: Record, column: str, folder: Path) -> Any:
    """The picture (or pictures) of a row: bytes, a `datasets` dict, or a path relative to the file's folder.

    Raises:
        InputError: The row has none.
    """
    value = row.get(column)
    if value is None or value == "" or value == []:
        raise InputError(f"has no picture in column {column!r}")
    if isinstance(value, list):
        return [_located(entry, folder) for entry in value]
    return _located(value, folder)


def run(
    rows: Iterator[Record],
    output: Path,
    settings: Record,
    score: Callable[[Sequence[Record]], list[Record]],
    batch_size: int,
    total: int | None,
) -> int:
    """Score the rows that the output does not hold yet, batch by batch, and append their records.

    Args:
        rows: All rows, from the first one on.
        output: JSON lines; `output` + `.settings.json` is written beside it.
        settings: What the scores depend on. An output that was begun with other settings is not continued.
        score: Records of a batch of rows.
        batch_size: Rows a batch: what a killed run loses at most.
        total: Number of rows, for the progress bar.

    Returns:
        Number of rows scored by this run.

    Raises:
        InputError: The output was begun with other settings.
    """
    from tqdm import tqdm

    _same_settings(output.with_name(output.name + ".settings.json"), settings, output)
    done = drop_cut_off_line(output)
    new = 0
    with (
        output.open("a", encoding="utf-8") as file,
        tqdm(total=total, initial=done, unit="row", desc=output.name) as bar,
    ):
        remaining = itertools.islice(rows, done, None)
        while batch := list(itertools.islice(remaining, batch_size)):
            for offset, record in enumerate(score(batch)):
                file.write(json.dumps({"row": done + new + offset, **record}, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
            new += len(batch)
            bar.update(len(batch))
    return new


def drop_cut_off_line(path: Path) -> int:
    """Number of whole records in a file of JSON lines; a last line that was cut off is removed from it."""
    if not path.exists():
        return 0
    whole = count = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            count += 1
    if whole < path.stat().st_size:
        os.truncate(path, whole)
    return count


def file_hash(path: Path) -> str:
    """16 hexadecimal digits of a file's BLAKE2b."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def _json_lines(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number} is not an object")
            yield row


def _located(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return folder / value  # an absolute path stays what it is
    if isinstance(value, dict) and value.get("bytes") is None and value.get("path"):
        return folder / str(value["path"])
    return value


def _same_settings(path: Path, settings: Record, output: Path) -> None:
    text = json.dumps(settings, indent=1, sort_keys=True, ensure_ascii=False, default=str)
    if path.exists() and output.exists():
        begun = path.read_text("utf-8")
        if begun != text:
            old, new = json.loads(begun), json.loads(text)
            changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
            raise InputError(
                f"{output} was begun with another {', '.join(changed)}: choose another output, or remove it"
            )
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
