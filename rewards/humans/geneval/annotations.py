"""GenEval's files of human answers (`annotations_<generator>.csv`) and its prompts (`evaluation_metadata.jsonl`).

A row is what one annotator said about one picture: for each of the prompt's objects how many there are (`task-count-0`,
-1; 5 stands for five or more) and in which colours (`task-color-0`, `red|white`), and where the second object is seen
from the first (`task-position-x`: left, right, neither_x; `-y`: above, below, neither_y). What an annotator could not
see is empty. `Input.prompt_id` is the line of the prompt in the metadata, from 0.

In `annotations_if-xl.csv` four rows are broken in two by a line break in a free text that was not quoted; they are put
together again, and noted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from rewards.errors import InputError
from rewards.runs.files import numbered_lines

COLORS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "gray")
COUNTS = ("0", "1", "2", "3", "4", "5")
AXES = {"x": ("left", "right", "neither"), "y": ("above", "below", "neither")}
_NAMES = ("Input.prompt_id", "Input.image_id", "Input.image_url", "Input.caption", "Input.object_0_name")
_ANSWERS = {
    "count-0": "Answer.task-count-0",
    "count-1": "Answer.task-count-1",
    "color-0": "Answer.task-color-0",
    "color-1": "Answer.task-color-1",
    "position-x": "Answer.task-position-x",
    "position-y": "Answer.task-position-y",
}
QUESTION_IDS = tuple(_ANSWERS)


@dataclass(frozen=True)
class AnnotatedPicture:
    """A picture and what each annotator answered.

    Attributes:
        generator: from the file's name.
        prompt_id: line of the prompt in the metadata, from 0.
        image_id: number among the prompt's pictures.
        image: path of the picture in GenEval's archive.
        caption: the prompt.
        objects: names of its one or two objects.
        plurals: their plurals.
        answers: question id -> one set of answers an annotator; empty where the annotator could not say.
    """

    generator: str
    prompt_id: int
    image_id: int
    image: str
    caption: str
    objects: tuple[str, ...]
    plurals: tuple[str, ...]
    answers: dict[str, list[frozenset[str]]] = field(compare=False)


@dataclass(frozen=True)
class Prompt:
    """A line of the metadata: its tag (skill), and of each object the class, count, colour and position wanted."""

    tag: str
    prompt: str
    include: tuple[dict[str, object], ...]


def read_annotations(path: str | Path) -> tuple[list[AnnotatedPicture], list[str]]:
    """Pictures in file order with all of their annotators, and notes on rows that were put together.

    Raises:
        InputError: a missing column, a row that cannot be put together, or an answer that is no answer of its question;
            with file and line. No rows.
    """
    generator = Path(path).stem.removeprefix("annotations_")
    pictures: dict[tuple[int, int], AnnotatedPicture] = {}
    notes: list[str] = []
    for line, row, mended in _rows(path):
        where = f"{path}, line {line}"
        if mended:
            notes.append(f"{where}: a line break in a free text had broken the row; it was put together")
        key = _whole(row["Input.prompt_id"], where), _whole(row["Input.image_id"], where)
        if key not in pictures:
            names = [row["Input.object_0_name"], row["Input.object_1_name"]]
            plurals = [row["Input.object_0_name_plural"], row["Input.object_1_name_plural"]]
            pictures[key] = AnnotatedPicture(
                generator,
                *key,
                urlsplit(row["Input.image_url"]).path.partition("/images/")[2],
                row["Input.caption"],
                tuple(name for name in names if name),
                tuple(name for name in plurals if name),
                {},
            )
        for id_, column in _ANSWERS.items():
            if len(pictures[key].objects) < 2 and (id_.endswith("-1") or id_.startswith("position")):
                continue
            answer = _answer(id_, row[column], f"{where}, {column}")
            pictures[key].answers.setdefault(id_, []).append(answer)
    if not pictures:
        raise InputError(f"{path} holds no rows")
    return list(pictures.values()), notes


def read_metadata(path: str | Path) -> list[Prompt]:
    """The prompts in order; `Input.prompt_id` is an index of this list.

    Raises:
        InputError: a line without tag, prompt or objects.
    """
    prompts = []
    for line, row in numbered_lines(path):
        tag, prompt, include = row.get("tag"), row.get("prompt"), row.get("include")
        if not isinstance(tag, str) or not isinstance(prompt, str) or not isinstance(include, list):
            raise InputError(f"{path}, line {line}: needs tag, prompt and include")
        prompts.append(Prompt(tag, prompt, tuple(dict(entry) for entry in include)))
    return prompts


def _rows(path: str | Path) -> Iterator[tuple[int, dict[str, str], bool]]:
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if missing := [name for name in (*_NAMES, *_ANSWERS.values()) if name not in header]:
            raise InputError(f"{path} has no column {', '.join(missing)}")
        held: list[str] = []
        start = 0
        for cells in reader:
            start = start if held else reader.line_num
            # The last cell of the first half and the first cell of the second are one text.
            joined = [*held[:-1], f"{held[-1]}\n{cells[0]}", *cells[1:]] if held and cells else held or cells
            if len(joined) > len(header):
                raise InputError(f"{path}, line {start}: has {len(joined)} cells and the header {len(header)}")
            if len(joined) < len(header):
                held = joined
                continue
            yield start, dict(zip(header, joined, strict=True)), bool(held)
            held = []
        if held:
            raise InputError(f"{path}, line {start}: has {len(held)} cells and the header {len(header)}")


def _answer(id_: str, cell: str, where: str) -> frozenset[str]:
    if id_.startswith("count"):
        parts = [cell.removesuffix(".0")] if cell.strip() else []
        allowed: tuple[str, ...] = COUNTS
    elif id_.startswith("color"):
        parts = [part for part in cell.split("|") if part]
        allowed = COLORS
    else:
        parts = [cell.partition("_")[0]] if cell.strip() else []
        allowed = AXES[id_[-1]]
    if unknown := [part for part in parts if part not in allowed]:
        raise InputError(f"{where}: {unknown[0]!r} is no answer; {', '.join(allowed)} are")
    return frozenset(parts)


def _whole(cell: str, where: str) -> int:
    if not cell.strip().isdecimal():
        raise InputError(f"{where}: {cell!r} is no whole number")
    return int(cell)
