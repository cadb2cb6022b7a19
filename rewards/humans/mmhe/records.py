"""MMHE, the multi-task multi-criteria human evaluation (HarmonicEval §3): records, validation, conversion.

The public files of the benchmark were not at hand when this was written. The reader takes JSON lines in the form below,
and :func:`records_from_ratings` makes it from one row a rating, the form in which annotation tools export; whoever has
the published files writes one function that yields such rows.

One line an instance::

    {"id": "vqa-17", "task": "vqa", "image": "images/17.jpg", "input": "What is on the table?", "box": null,
     "candidates": [{"text": "A red mug.", "model": "LLaVA-1.5-7B",
                     "ratings": {"correctness": [5, 4, 5], "completeness": [...], "clarity": [...],
                                 "fluency": [...], "conciseness": [...]}}, ... three in all],
     "choices": [0, 0, 2], "references": ["a mug"]}

`task` is captioning, vqa, document or referring; `input` is the question of vqa and document and null otherwise; `box`
is [left, top, right, bottom] in pixels for referring and null otherwise; `choices` holds, for each of three annotators,
the index of the best candidate; `references` may be missing. `image` is relative to the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rewards.errors import InputError
from rewards.runs.files import Row

CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")
TASKS = {"referring": "REG", "vqa": "VQA", "document": "VDU", "captioning": "IC"}
CANDIDATES = 3
ANNOTATORS = 3
PAPER_INSTANCES = 100


@dataclass(frozen=True)
class Candidate:
    """A text to be judged, with its ratings: one from 1 to 5 by criterion and annotator."""

    text: str
    ratings: dict[str, tuple[int, ...]]
    model: str | None = None


@dataclass(frozen=True)
class Instance:
    """One picture (and question or box) with three candidates and each annotator's best of three."""

    id: str
    task: str
    image: str
    candidates: tuple[Candidate, ...]
    choices: tuple[int, ...]
    input: str | None = None
    box: tuple[float, ...] | None = None
    references: tuple[str, ...] = ()

    @property
    def best(self) -> int | None:
        """The candidate that more than half of the annotators chose; None when there is no majority."""
        index, votes = Counter(self.choices).most_common(1)[0]
        return index if 2 * votes > len(self.choices) else None


class Deviation(NamedTuple):
    """Something in a file that is not as documented."""

    line: int
    field: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.field}: {self.reason}"


def read_mmhe(path: str | Path) -> list[Instance]:
    """Read a file of instances; any deviation is an error.

    Raises:
        InputError: the first deviation and the number of the others (:func:`validate_mmhe` lists them all).
    """
    instances, deviations = validate_mmhe(path)
    if deviations:
        others = f" (and {len(deviations) - 1} more deviations)" if len(deviations) > 1 else ""
        raise InputError(f"{path}, {deviations[0]}{others}")
    if not instances:
        raise InputError(f"{path} holds no instances")
    return instances


def validate_mmhe(path: str | Path) -> tuple[list[Instance], list[Deviation]]:
    """Read what is sound and list everything that is not; a line with a deviation gives no instance."""
    instances: list[Instance] = []
    deviations: list[Deviation] = []
    seen: dict[str, int] = {}
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            problems = _Problems(number)
            instance = _parse(line, problems)
            if instance is not None and instance.id in seen:
                problems.add("id", f"{instance.id!r} is also on line {seen[instance.id]}")
            if problems.found:
                deviations += problems.found
            elif instance is not None:
                seen[instance.id] = number
                instances.append(instance)
    return instances, deviations


def paper_deviations(instances: list[Instance]) -> list[str]:
    """What differs from the paper's 100 instances a task and 18,000 ratings (HarmonicEval §3.2)."""
    counts = Counter(instance.task for instance in instances)
    notes = [
        f"{task}: {counts[task]} instances, the paper has {PAPER_INSTANCES}"
        for task in TASKS
        if counts[task] != PAPER_INSTANCES
    ]
    ratings = sum(len(r) for i in instances for candidate in i.candidates for r in candidate.ratings.values())
    if ratings != 18_000:
        notes.append(f"{ratings} ratings, the paper has 18000")
    return notes


def records_from_ratings(rows: Iterable[Row]) -> list[Row]:
    """Converter: one row an annotator and candidate -> the documented records, ready to be written as JSON lines.

    Args:
        rows: mappings with `id`, `task`, `image`, `candidate` (index), `text`, `annotator`, the five criteria, and
            `best` (true on the candidate that this annotator chose); optional `input`, `box`, `model`, `references`.

    Returns:
        Records in the order in which their ids first occur; annotators in sorted order.

    Raises:
        InputError: a row that lacks a field or repeats an annotator and candidate, an annotator who did not rate all
            candidates or chose none or several.

    Example:
        >>> row = dict(id="a", task="captioning", image="a.png", text="a dog", **dict.fromkeys(CRITERIA, 5))
        >>> rows = [{**row, "candidate": c, "annotator": n, "best": c == 0} for c in range(3) for n in "xyz"]
        >>> records_from_ratings(rows)[0]["choices"]
        [0, 0, 0]
    """
    by_id: dict[str, dict[tuple[int, str], Row]] = {}
    for number, row in enumerate(rows):
        needed = ("id", "task", "image", "candidate", "text", "annotator", "best", *CRITERIA)
        if missing := [name for name in needed if name not in row]:
            raise InputError(f"rating row {number} lacks {', '.join(missing)}")
        cell = int(row["candidate"]), str(row["annotator"])
        cells = by_id.setdefault(str(row["id"]), {})
        if cell in cells:
            raise InputError(
                f"rating row {number}: annotator {cell[1]!r} rates candidate {cell[0]} of {row['id']!r} twice"
            )
        cells[cell] = row
    return [_record(id_, cells) for id_, cells in by_id.items()]


def _record(id_: str, cells: dict[tuple[int, str], Row]) -> Row:
    annotators = sorted({annotator for _, annotator in cells})
    indices = sorted({index for index, _ in cells})
    for annotator in annotators:
        if missing := [index for index in indices if (index, annotator) not in cells]:
            raise InputError(f"instance {id_!r}: annotator {annotator!r} did not rate candidates {missing}")
        chosen = [index for index in indices if cells[index, annotator]["best"]]
        if len(chosen) != 1:
            raise InputError(f"instance {id_!r}: annotator {annotator!r} chose {len(chosen)} candidates as best, not 1")
    first = cells[indices[0], annotators[0]]
    candidates = [
        {
            "text": cells[index, annotators[0]]["text"],
            "model": cells[index, annotators[0]].get("model"),
            "ratings": {name: [int(cells[index, annotator][name]) for annotator in annotators] for name in CRITERIA},
        }
        for index in indices
    ]
    return {
        "id": id_,
        "task": first["task"],
        "image": first["image"],
        "input": first.get("input"),
        "box": first.get("box"),
        "candidates": candidates,
        "choices": [next(k for k in indices if cells[k, annotator]["best"]) for annotator in annotators],
        "references": list(first.get("references") or []),
    }


class _Problems:
    """Collects the deviations of one line."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.found: list[Deviation] = []

    def add(self, field: str, reason: str) -> None:
        self.found.append(Deviation(self.line, field, reason))

    def text(self, row: Row, name: str, where: str = "") -> str:
        value = row.get(name)
        if not isinstance(value, str) or not value.strip():
            self.add(where + name, f"is {value!r}; text is needed")
        return str(value)


def _parse(line: bytes, problems: _Problems) -> Instance | None:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        problems.add("line", f"is not JSON: {error}")
        return None
    if not isinstance(row, dict):
        problems.add("line", f"is {type(row).__name__}; an object is needed")
        return None
    known = {"id", "task", "image", "input", "box", "candidates", "choices", "references"}
    for name in sorted(row.keys() - known):
        problems.add(name, "is not a documented field")
    task = row.get("task")
    if task not in TASKS:
        problems.add("task", f"is {task!r}; one of {', '.join(TASKS)} is needed")
    asks = task in ("vqa", "document")
    if asks and (not isinstance(row.get("input"), str) or not row["input"].strip()):
        problems.add("input", f"is {row.get('input')!r}; task {task} needs its question")
    box = _box(row.get("box"), task, problems)
    references = row.get("references") or []
    if not isinstance(references, list) or not all(isinstance(reference, str) for reference in references):
        problems.add("references", "is not a list of texts")
    candidates = _candidates(row.get("candidates"), problems)
    choices = row.get("choices")
    if not isinstance(choices, list) or len(choices) != ANNOTATORS:
        problems.add("choices", f"is {choices!r}; one choice for each of {ANNOTATORS} annotators is needed")
    else:
        for choice in choices:
            if not isinstance(choice, int) or isinstance(choice, bool) or not 0 <= choice < CANDIDATES:
                problems.add("choices", f"holds {choice!r}; an index from 0 to {CANDIDATES - 1} is needed")
    id_, image = problems.text(row, "id"), problems.text(row, "image")
    if problems.found:
        return None
    return Instance(id_, str(task), image, candidates, tuple(choices or ()), row.get("input"), box, tuple(references))


def _box(box: object, task: object, problems: _Problems) -> tuple[float, ...] | None:
    if box is None:
        if task == "referring":
            problems.add("box", "is missing; task referring needs [left, top, right, bottom]")
        return None
    if isinstance(box, list) and len(box) == 4 and all(isinstance(edge, int | float) for edge in box):
        left, top, right, bottom = map(float, box)
        if left < right and top < bottom:
            return left, top, right, bottom
    problems.add("box", f"is {box!r}; [left, top, right, bottom] with left < right and top < bottom is needed")
    return None


def _candidates(rows: object, problems: _Problems) -> tuple[Candidate, ...]:
    if not isinstance(rows, list) or len(rows) != CANDIDATES:
        found = len(rows) if isinstance(rows, list) else type(rows).__name__
        problems.add("candidates", f"are {found}; {CANDIDATES} are needed")
        return ()
    candidates = []
    for index, row in enumerate(rows):
        where = f"candidates[{index}]."
        if not isinstance(row, dict):
            problems.add(where[:-1], f"is {type(row).__name__}; an object is needed")
            continue
        text = problems.text(row, "text", where)
        given = row.get("ratings")
        if not isinstance(given, dict):
            problems.add(where + "ratings", f"is {type(given).__name__}; an object of criteria is needed")
            continue
        for name in sorted(given.keys() ^ set(CRITERIA)):
            problems.add(where + "ratings", f"{'has unknown' if name in given else 'lacks'} criterion {name!r}")
        for name, ratings in given.items():
            if not isinstance(ratings, list) or len(ratings) != ANNOTATORS:
                problems.add(f"{where}ratings.{name}", f"is {ratings!r}; {ANNOTATORS} ratings are needed")
            elif any(not isinstance(r, int) or isinstance(r, bool) or not 1 <= r <= 5 for r in ratings):
                problems.add(f"{where}ratings.{name}", f"is {ratings!r}; whole numbers from 1 to 5 are needed")
        if not problems.found:
            ratings_by_name = {name: tuple(given[name]) for name in CRITERIA}
            candidates.append(Candidate(text, ratings_by_name, row.get("model")))
    return tuple(candidates)
