"""Columns of numbers and labels from JSONL or CSV, each bad cell named by its line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rewards.errors import InputError
from rewards.humans.files import number
from rewards.humans.statistics.pair_counts import Array
from rewards.runs.csv_files import csv_rows
from rewards.runs.files import numbered_lines


class Columns(NamedTuple):
    """Columns by name: (n,) float64 arrays of numbers, and n texts of labels."""

    numbers: dict[str, Array]
    labels: dict[str, list[str]]


def read_columns(path: str | Path, numbers: Sequence[str], labels: Sequence[str] = ()) -> Columns:
    """Read some columns of a table.

    Args:
        path: `.jsonl` (an object a line) or `.csv` (with a header).
        numbers: columns of numbers; null, an empty cell or "nan" is NaN: not judged.
        labels: columns of labels, kept as text.

    Raises:
        InputError: an unknown suffix, an empty file, or a row that lacks a column or holds something else than a
            number; with file and line.
    """
    if Path(path).suffix.lower() not in (".jsonl", ".csv"):
        raise InputError(f"{path} is neither .jsonl nor .csv")
    rows = numbered_lines(path) if Path(path).suffix.lower() == ".jsonl" else csv_rows(path)
    found: dict[str, list[float]] = {name: [] for name in numbers}
    texts: dict[str, list[str]] = {name: [] for name in labels}
    for line, row in rows:
        for name in (*numbers, *labels):
            if name not in row:
                raise InputError(f"{path}, line {line}: has no column {name!r}; it has {', '.join(map(str, row))}")
        for name, values in found.items():
            values.append(number(row[name], f"{path}, line {line}, column {name!r}"))
        for name, cells in texts.items():
            cells.append(str(row[name]))
    if not found[numbers[0]]:
        raise InputError(f"{path} holds no rows")
    return Columns({name: np.array(values, dtype=np.float64) for name, values in found.items()}, texts)
