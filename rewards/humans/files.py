"""People's tables as CSV, and single cells; each bad one is named (JSON: :mod:`rewards.runs.files`)."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rewards.errors import InputError


def csv_rows(
    path: str | Path, columns: Sequence[str] = (), *, delimiter: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, cells by column) for every row of a CSV file with a header; a byte order mark is left out.

    Args:
        path: the file.
        columns: what its header must have.
        delimiter: between the cells.

    Raises:
        InputError: a missing column, or a row with another number of cells than the header.
    """
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        header = list(reader.fieldnames or [])
        if missing := [name for name in columns if name not in header]:
            raise InputError(f"{path} has no column {', '.join(missing)}; it has {', '.join(header)}")
        for row in reader:
            if None in row or None in row.values():
                raise InputError(f"{path}, line {reader.line_num}: has another number of cells than the header")
            yield reader.line_num, row


def column_of(header: Mapping[str, object] | Sequence[str], names: Sequence[str]) -> str | None:
    """The first of several names for a column that a header has; None if it has none of them.

    Example:
        >>> column_of(["item", "proposition_id"], ["question_id", "proposition_id"])
        'proposition_id'
    """
    return next((name for name in names if name in header), None)


def number(cell: object, where: str) -> float:
    """A cell as a number; null, an empty cell and "nan" are NaN: not judged.

    Raises:
        InputError: anything else; `where` names the cell.

    Example:
        >>> number("0.5", "line 2"), number("", "line 3")
        (0.5, nan)
    """
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return math.nan
    if isinstance(cell, int | float | str) and not isinstance(cell, bool):
        try:
            return float(cell)
        except ValueError:
            pass
    raise InputError(f"{where}: {cell!r} is not a number")


def text(row: Mapping[str, object], name: str, where: str) -> str:
    """A field that must hold text.

    Raises:
        InputError: it is missing, empty or something else.
    """
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: {name} is {value!r}; text is needed")
    return value
