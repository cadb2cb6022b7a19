"""Single cells of people's tables; each bad one is named (files: :mod:`rewards.runs.files` and `csv_files`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rewards.errors import InputError


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
