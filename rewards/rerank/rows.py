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

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewards.errors import InputError
from rewards.jobs.cells import is_at
from rewards.jobs.sources.base import short
from rewards.rerank.items import Item
from rewards.rerank.ranking import Ranking
from rewards.runs.files import is_whole_text

FIELDS = ("id", "image", "prompt", "question", "box", "candidates", "candidate", "folder")
_LARGEST = 1e9  # pixels of a box's edge; also keeps NaN, infinities and numbers beyond float out
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


class Parsed(NamedTuple):
    """An item, or None; and everything about the row that must be reported.

    Attributes:
        item: what is ranked, None when the row cannot be.
        notes: why there is no item, or why there is nothing to choose.
        blocked: index of a candidate -> why it must not be judged.
    """

    item: Item | None
    notes: list[str]
    blocked: dict[int, str]


def parse_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    id: str | int,
    folder: Path,
    columns: Mapping[str, str],
    max_text: int,
    kind: str | None = None,
) -> Parsed:
    """Make an item of one inline row, or of the grouped rows of one key.

    Args:
        rows: one row, or several with a `candidate` each; shared columns are taken from the first.
        id: the item's name, for a row that has none.
        folder: what relative paths are relative to.
        columns: name here -> name in the file, for files with other names.
        max_text: longest text in characters that is given to a judge.
        kind: "texts" or "pictures" where the reward judges nothing else; None: texts where there is a picture.
    """
    row = {name: rows[0].get(columns.get(name, name)) for name in FIELDS}
    used = {columns.get(name, name) for name in FIELDS}
    extra = {name: value for name, value in rows[0].items() if name not in used}
    candidates, problem = _candidates(rows, row, folder, columns)
    if problem is not None:
        return Parsed(None, [problem], {})
    image, problem = _image(row["image"], folder)
    problem = problem or _unusable_row(row, image, kind, max_text, f". The row has {', '.join(map(str, rows[0]))}")
    if problem is not None:
        return Parsed(None, [problem], {})
    box = _edges(row["box"])
    if row["box"] is not None and box is None:
        return Parsed(None, [f"box is {short(row['box'])}; [left, top, right, bottom] is needed"], {})
    if image is None:
        candidates = [_resolve(candidate, folder) for candidate in candidates]
    blocked = {n: reason for n, candidate in enumerate(candidates) if (reason := _unusable(candidate, image, max_text))}
    notes = ["has one candidate only: nothing to choose from"] if len(candidates) == 1 else []
    own = row["id"]
    name = own if isinstance(own, str | int) and not isinstance(own, bool) else id
    return Parsed(Item(tuple(candidates), image, row["prompt"], row["question"], box, name, extra), notes, blocked)


def _unusable_row(row: Mapping[str, object], image: object, kind: str | None, max_text: int, seen: str) -> str | None:
    """Why a row's prompt, question or picture cannot be used, or None; `seen` tells the keys that it has."""
    for name, types in (("prompt", (str, int)), ("question", (str,))):
        value = row[name]
        if value is not None and (not isinstance(value, types) or isinstance(value, bool)):
            return f"{name} is {short(value)}; text is needed"
        if isinstance(value, str) and len(value) > max_text:
            return f"{name} has {len(value)} characters; at most {max_text} are judged"
    if image is None and kind == "texts":
        return f"lacks its picture: there is no image{seen}"
    if image is not None and kind == "pictures":
        return "has an image, which makes its candidates texts; the reward ranks pictures of a prompt"
    if image is None and row["prompt"] is None:
        return f"has neither a picture (for texts) nor a prompt (for pictures){seen}"
    return None


def _candidates(
    rows: Sequence[Mapping[str, object]], row: Mapping[str, object], folder: Path, columns: Mapping[str, str]
) -> tuple[list[object], str | None]:
    each = [one.get(columns.get("candidate", "candidate")) for one in rows]
    if any(candidate is not None for candidate in each):
        return each, None
    if len(rows) > 1:
        return [], f"has {len(rows)} rows of one key without a candidate; each needs one"
    if row["folder"] is not None:
        return _pictures_in(folder / str(row["folder"]))
    given = row["candidates"]
    if given is None:
        return (
            [],
            f"candidates are None; a list with at least one is needed. The row has {', '.join(map(str, rows[0]))}",
        )
    if not isinstance(given, list) or not given:
        return [], f"candidates are {short(given)}; a list with at least one is needed"
    return list(given), None


def _pictures_in(place: Path) -> tuple[list[Any], str | None]:
    """Paths of the pictures in a folder, by name. Hidden files (such as macOS's ._1.png) and folders are none."""
    if not is_at(place, Path.is_dir):
        return [], f"folder {short(str(place))} does not exist"
    found = sorted(str(path) for path in place.iterdir() if _names_picture(path) and path.is_file())
    for path in found:
        if not is_whole_text(path):
            return [], f"folder {short(str(place))} holds a file whose name is not UTF-8: {short(Path(path).name)}"
    return (found, None) if found else ([], f"folder {short(str(place))} holds no pictures")


def _names_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".")


def _image(value: object, folder: Path) -> tuple[object, str | None]:
    if value is None:
        return None, None
    entries = value if isinstance(value, list) else [value]
    resolved = []
    for entry in entries:
        if isinstance(entry, str):
            path = folder / entry
            if not is_at(path, Path.is_file):
                return None, f"lacks its picture: no file {short(str(path))}"
            entry = str(path)
        elif not isinstance(entry, dict):
            return None, f"image is {short(entry)}; a path or an encoded picture is needed"
        resolved.append(entry)
    if not resolved:
        return None, "lacks its picture: the list is empty"
    return (resolved if isinstance(value, list) else resolved[0]), None


def _resolve(candidate: object, folder: Path) -> object:
    return str(folder / candidate) if isinstance(candidate, str) else candidate


def _unusable(candidate: object, image: object, max_text: int) -> str | None:
    if image is None:
        if isinstance(candidate, str):
            return None if is_at(Path(candidate), Path.is_file) else f"no file {short(candidate)}"
        return None if isinstance(candidate, dict) else f"is {short(candidate)}; a path or an encoded picture is needed"
    if not isinstance(candidate, str):
        return f"is {short(candidate)}; text is needed"
    if len(candidate) > max_text:
        return f"has {len(candidate)} characters; at most {max_text} are judged"
    return None


def _edges(box: object) -> tuple[float, ...] | None:
    """(left, top, right, bottom), or None for what is no box."""
    if not isinstance(box, list) or len(box) != 4:
        return None
    if not all(isinstance(edge, int | float) and not isinstance(edge, bool) and abs(edge) < _LARGEST for edge in box):
        return None
    return tuple(float(edge) for edge in box)


def unjudged(ranking: Ranking, blocked: Mapping[int, str]) -> Iterator[tuple[int | None, str]]:
    """(index of the candidate, or None for the item, reason) of abstentions that the data are to blame for.

    Reported are items of which no candidate could be judged (a broken picture, a prompt without questions), and
    pictures that are none. A judge that is unsure about one of several candidates is no fault of the row. Only what was
    abstained on is opened: to look into every picture beforehand would decode all of them twice.
    """
    from rewards.images import to_pil

    item = ranking.item
    abstained = {r.index: r.score.reason for r in ranking.candidates if r.score.overall is None}
    open_to_judge = [index for index in sorted(abstained) if index not in blocked]
    if not ranking.judged and open_to_judge:
        yield None, f"no candidate could be judged: {abstained[open_to_judge[0]]}"
    if item.kind == "pictures":
        for index in open_to_judge:
            try:
                to_pil(item.candidates[index])
            except (InputError, OSError) as error:
                yield index, f"candidate {index}: {error}"
