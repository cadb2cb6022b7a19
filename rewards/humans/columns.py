"""Columns of numbers and labels from JSONL or CSV, each bad cell named by its line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards.errors import InputError
from rewards.humans.files import csv_rows, number
from rewards.runs.files import numbered_lines


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
    if Path(path).suffix.lower() not in (".jsonl", ".csv"):
        raise InputError(f"{path} is neither .jsonl nor .csv")
    rows = numbered_lines(path) if Path(path).suffix.lower() == ".jsonl" else csv_rows(path)
    columns: dict[str, list[Any]] = {name: [] for name in [*numbers, *labels]}
    for line, row in rows:
        for name in columns:
            if name not in row:
                raise InputError(f"{path}, line {line}: has no column {name!r}; it has {', '.join(map(str, row))}")
        for name in numbers:
            columns[name].append(number(row[name], f"{path}, line {line}, column {name!r}"))
        for name in labels:
            columns[name].append(str(row[name]))
    if not columns[numbers[0]]:
        raise InputError(f"{path} holds no rows")
    return {name: np.array(values, dtype=np.float64 if name in numbers else object) for name, values in columns.items()}
