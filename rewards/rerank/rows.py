"""A row of a file -> an item to rank, or the reason why it cannot be ranked.

Two forms. Inline, one row an item::

    {"id": "17", "image": "a.png", "question": null, "candidates": ["a red circle", "a circle"]}      texts
    {"id": "17", "prompt": "a red circle", "candidates": ["0.png", "1.png"]}                          pictures
    {"id": "17", "prompt": "a red circle", "folder": "pictures/17"}                                   pictures, by name

or one row a candidate, grouped by a key::

    {"prompt_id": "17", "image": "a.png", "candidate": "a red circle"}

`box` belongs to the task `referring`. Pictures are paths relative to the file (or to `images`), or encoded pictures as
`datasets` stores them. Other columns travel along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewards.rerank.items import Item

FIELDS = ("id", "image", "prompt", "question", "box", "candidates", "candidate", "folder")
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


class Parsed(NamedTuple):
    """An item, or None; and everything about the row that must be reported.

    Attributes:
        item: what is ranked, None when the row cannot be.
        notes: reasons; with an item they concern single candidates or a choice that is none.
        blocked: index of a candidate -> why it must not be judged.
    """

    item: Item | None
    notes: list[str]
    blocked: dict[int, str]


def parse_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    id: str,
    folder: Path,
    columns: Mapping[str, str],
    max_text: int,
) -> Parsed:
    """Make an item of one inline row, or of the grouped rows of one key.

    Args:
        rows: one row, or several with a `candidate` each; shared columns are taken from the first.
        id: the item's name, for a row that has none.
        folder: what relative paths are relative to.
        columns: name here -> name in the file, for files with other names.
        max_text: longest text in characters that is given to a judge.
    """
    row = {name: rows[0].get(columns.get(name, name)) for name in FIELDS}
    used = {columns.get(name, name) for name in FIELDS}
    extra = {name: value for name, value in rows[0].items() if name not in used}
    candidates, problem = _candidates(rows, row, folder, columns)
    if problem is not None:
        return Parsed(None, [problem], {})
    image, problem = _image(row["image"], folder)
    if problem is not None:
        return Parsed(None, [problem], {})
    for name in ("prompt", "question"):
        value = row[name]
        if isinstance(value, str) and len(value) > max_text:
            return Parsed(None, [f"{name} has {len(value)} characters; at most {max_text} are judged"], {})
    if image is None and not isinstance(row["prompt"], str | int):
        return Parsed(None, ["has neither a picture (for texts) nor a prompt (for pictures)"], {})
    box = row["box"]
    if box is not None and not (isinstance(box, list) and len(box) == 4 and all(_is_number(edge) for edge in box)):
        return Parsed(None, [f"box is {box!r}; [left, top, right, bottom] is needed"], {})
    if image is None:
        candidates = [_resolve(candidate, folder) for candidate in candidates]
    blocked = {n: reason for n, candidate in enumerate(candidates) if (reason := _unusable(candidate, image, max_text))}
    notes = [f"candidate {n}: {reason}" for n, reason in blocked.items()]
    if len(candidates) == 1:
        notes.append("has one candidate only: nothing to choose from")
    identity = str(row["id"]) if row["id"] is not None else id
    edges = tuple(float(edge) for edge in box) if box is not None else None
    return Parsed(
        Item(tuple(candidates), image, row["prompt"], row["question"], edges, identity, extra), notes, blocked
    )


def _candidates(
    rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any], folder: Path, columns: Mapping[str, str]
) -> tuple[list[Any], str | None]:
    if row["candidate"] is not None:
        return [one.get(columns.get("candidate", "candidate")) for one in rows], None
    if row["folder"] is not None:
        place = folder / str(row["folder"])
        if not place.is_dir():
            return [], f"folder {str(place)!r} does not exist"
        found = sorted(path for path in place.iterdir() if path.suffix.lower() in PICTURE_SUFFIXES)
        return ([str(path) for path in found], None) if found else ([], f"folder {str(place)!r} holds no pictures")
    given = row["candidates"]
    if not isinstance(given, list) or not given:
        return [], f"candidates are {_short(given)}; a list with at least one is needed"
    return list(given), None


def _image(value: Any, folder: Path) -> tuple[Any, str | None]:
    if value is None:
        return None, None
    entries = value if isinstance(value, list) else [value]
    resolved = []
    for entry in entries:
        if isinstance(entry, str):
            path = folder / entry
            if not path.is_file():
                return None, f"lacks its picture: no file {str(path)!r}"
            entry = str(path)
        elif not isinstance(entry, dict):
            return None, f"image is {_short(entry)}; a path or an encoded picture is needed"
        resolved.append(entry)
    if not resolved:
        return None, "lacks its picture: the list is empty"
    return (resolved if isinstance(value, list) else resolved[0]), None


def _resolve(candidate: Any, folder: Path) -> Any:
    return str(folder / candidate) if isinstance(candidate, str) else candidate


def _unusable(candidate: Any, image: Any, max_text: int) -> str | None:
    if image is None:
        if isinstance(candidate, str):
            return None if Path(candidate).is_file() else f"no file {candidate!r}"
        return (
            None if isinstance(candidate, dict) else f"is {_short(candidate)}; a path or an encoded picture is needed"
        )
    if not isinstance(candidate, str):
        return f"is {_short(candidate)}; text is needed"
    if len(candidate) > max_text:
        return f"has {len(candidate)} characters; at most {max_text} are judged"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
