"""Values of a row as a reward takes them: pictures, texts, names."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeGuard

from rewards.errors import InputError
from rewards.jobs.sources.base import short
from rewards.runs.files import Json


def picture(row: Mapping[str, object], column: str, folder: Path) -> object:
    """The picture (or pictures) of a row: bytes, a `datasets` dict, or a path in full.

    Args:
        row: of a source.
        column: of the picture.
        folder: what relative paths are relative to.

    Raises:
        InputError: the row has none, or names a file that does not exist.
    """
    value = row.get(column)
    if value is None or value == "" or value == []:
        raise InputError(f"has no picture in column {column!r}")
    if isinstance(value, list):
        return [_located(entry, column, folder) for entry in value]
    return _located(value, column, folder)


def text(row: Mapping[str, object], column: str) -> str:
    """The text of a row.

    Raises:
        InputError: there is none, or something else.
    """
    value = row.get(column)
    if value is None:
        raise InputError(f"has no text in column {column!r}")
    if not isinstance(value, str):
        raise InputError(f"{column} is {short(value)}; text is needed")
    return value


def prompt(row: Mapping[str, object], column: str) -> str | int:
    """The prompt of a row, or its id.

    Raises:
        InputError: neither a text nor a whole number.
    """
    value = row.get(column)
    if value is None or value == "":
        raise InputError(f"has no prompt in column {column!r}")
    if not is_prompt(value):
        raise InputError(f"{column} is {short(value)}; text or a whole number of 64 bits is needed")
    return value


def is_prompt(value: object) -> TypeGuard[str | int]:
    """Whether a value can be a prompt or its id, as a question store keeps them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**63
    return isinstance(value, str)


def name(value: object) -> Json:
    """The id of a row as JSON has it: NaN, which a table uses for no value, is None; what JSON lacks is its text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return short(value)


def is_at(path: Path, what: Callable[[Path], bool]) -> bool:
    """Whether a path is a file or folder; what can never be one is none. A failing disk is no verdict on the row."""
    try:
        return what(path)
    except ValueError:  # a null byte
        return False
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EACCES):
            return False
        raise


def _located(value: object, column: str, folder: Path) -> object:
    if isinstance(value, dict) and value.get("bytes") is None and value.get("path"):
        value = str(value["path"])
    if not isinstance(value, str):
        if isinstance(value, dict | bytes):
            return value
        raise InputError(f"{column} is {short(value)}; a path or an encoded picture is needed")
    path = folder / value  # an absolute path stays what it is
    if not is_at(path, Path.is_file):
        raise InputError(f"lacks its picture: no file {short(str(path))}")
    return path


def box(value: object) -> object:
    """A box of a row: a list, or the JSON of one (a CSV cell).

    Raises:
        InputError: a text that is no JSON.
    """
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InputError(f"box is {short(value)}; [left, top, right, bottom] is needed") from error
