"""Columns of numbers and labels from JSONL or CSV, each bad cell named by its line."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards.errors import InputError


def read_columns(path: str | Path, numbers: Sequence[str], labels: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read some columns of a table.

    Args:
        path: `.jsonl` (an object a line) or `.csv` (with a header).
        numbers: columns of numbers; null, an empty cell or "nan" is NaN: not judged.
        labels: columns of labels, kept as text.

    Returns:
        (n,) float64 arrays for numbers, object arrays for labels, by name.

    Raises:
        InputError: an unknown suffix, an empty file, or a row that lacks a column or holds something else than a
            number; with file and line.
    """
    rows = {".jsonl": _jsonl_rows, ".csv": _csv_rows}.get(Path(path).suffix.lower())
    if rows is None:
        raise InputError(f"{path} is neither .jsonl nor .csv")
    columns: dict[str, list[Any]] = {name: [] for name in [*numbers, *labels]}
    for line, row in rows(Path(path)):
        for name in columns:
            if name not in row:
                raise InputError(f"{path}, line {line}: has no column {name!r}; it has {', '.join(map(str, row))}")
        for name in numbers:
            columns[name].append(_number(row[name], f"{path}, line {line}, column {name!r}"))
        for name in labels:
            columns[name].append(str(row[name]))
    if not columns[numbers[0]]:
        raise InputError(f"{path} holds no rows")
    return {name: np.array(values, dtype=np.float64 if name in numbers else object) for name, values in columns.items()}


def _number(cell: Any, where: str) -> float:
    if cell is None or cell == "":
        return math.nan
    if isinstance(cell, bool):
        raise InputError(f"{where}: {cell!r} is not a number")
    try:
        return float(cell)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {cell!r} is not a number") from error


def _jsonl_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}, line {number}: is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: is {type(row).__name__}; an object is needed")
            yield number, row


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            if None in row or None in row.values():
                raise InputError(f"{path}, line {reader.line_num}: has another number of cells than the header")
            yield reader.line_num, row
