"""THumB's file (github.com/jungokasai/THumB, `mscoco_THumB-1.0.jsonl`): one caption a line with its human scores.

P(recision) and R(ecall) are from 1 to 5. Fl(uency), Inc(lusive language) and Con(ciseness) are penalties, 0 where there
is no fault and below 0 otherwise; in all of them higher is better. The total is (P + R) / 2 + Fl + Inc + Con.

HarmonicEval's criteria in THumB's terms: correctness is P (is what is said true?), completeness is R (is what matters
said?), fluency is Fl, conciseness is Con. Clarity has no counterpart (THumB folds it into fluency), and Inc has none
among the five.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rewards.errors import InputError
from rewards.humans.files import number, text
from rewards.runs.files import numbered_lines, read_json

CRITERIA = ("P", "R", "Fl", "Inc", "Con")
TOTAL = "total"
COUNTERPART: dict[str, str] = {"correctness": "P", "completeness": "R", "fluency": "Fl", "conciseness": "Con"}
HUMAN = "Human"
_PENALTIES = ("Fl", "Inc", "Con")


@dataclass(frozen=True)
class RatedCaption:
    """A caption by a system, with its scores by criterion and in total."""

    system: str
    picture: str
    caption: str
    scores: dict[str, float]

    @property
    def coco_id(self) -> int:
        """Number of the picture in COCO: the last part of its file name."""
        return int(Path(self.picture).stem.rpartition("_")[2])


def read_thumb(path: str | Path) -> list[RatedCaption]:
    """Read and check every line.

    Raises:
        InputError: a field that is missing or no number, P or R outside 1..5, a penalty above 0, or a total that is not
            (P + R) / 2 + Fl + Inc + Con; with the line. No lines.
    """
    captions = []
    for line, row in numbered_lines(path):
        where = f"{path}, line {line}"
        scores = {name: _score(row.get(name), f"{where}, {name}") for name in CRITERIA}
        for name, value in scores.items():
            if (value > 0) if name in _PENALTIES else not 1 <= value <= 5:
                allowed = "0 or below" if name in _PENALTIES else "1 to 5"
                raise InputError(f"{where}: {name} is {value}; {allowed} is needed")
        total = _score(row.get("human_score"), f"{where}, human_score")
        expected = (scores["P"] + scores["R"]) / 2 + scores["Fl"] + scores["Inc"] + scores["Con"]
        if abs(total - expected) > 1e-6:
            raise InputError(f"{where}: human_score is {total}, and (P + R) / 2 + Fl + Inc + Con is {expected}")
        system, picture, caption = (text(row, name, where) for name in ("SYS", "image", "hyp"))
        captions.append(RatedCaption(system, picture, caption, {**scores, TOTAL: total}))
    if not captions:
        raise InputError(f"{path} holds no captions")
    return captions


def coco_references(path: str | Path) -> dict[int, tuple[str, ...]]:
    """Reference captions by COCO number, from COCO's `captions_val2014.json`.

    Raises:
        InputError: not JSON, or no list `annotations` of objects with `image_id` and `caption`.
    """
    content = read_json(path)
    annotations = content.get("annotations") if isinstance(content, dict) else None
    if not isinstance(annotations, list):
        raise InputError(f"{path} has no list 'annotations'")
    references: dict[int, list[str]] = {}
    for n, row in enumerate(annotations):
        where = f"{path}, annotation {n}"
        if not isinstance(row, dict) or not isinstance(row.get("image_id"), int):
            raise InputError(f"{where}: needs image_id and caption")
        references.setdefault(row["image_id"], []).append(text(row, "caption", where))
    return {picture: tuple(texts) for picture, texts in references.items()}


def _score(value: object, where: str) -> float:
    found = number(value, where)
    if found != found:
        raise InputError(f"{where}: is {value!r}; a number is needed")
    return found
