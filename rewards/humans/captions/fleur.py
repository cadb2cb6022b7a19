"""The files of the FLEUR repository (Lee et al. 2024, github.com/Yebin46/FLEUR): benchmarks as JSON, scores as text.

- `flickr8k.json`: picture -> `human_judgement` (caption, rating from 1 to 4, three in a row of each caption) and
  `ground_truth` (five references). The picture's own captions are left out already.
- `pascal_50s.json`: HC, HI, HM, MM -> 1,000 pairs each: `captions` (two), `label` (0 or 1: the caption that people
  prefer), `references` (five of the 48 or so). Where the votes tie, the label was drawn.
- `fleur_*.txt`: FLEUR's released results, a block a caption: `model score` is the number that the judge wrote, `our
  score` the smoothed one. In those of PASCAL-50S two captions follow a `label`, which was drawn anew where votes tie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rewards.errors import InputError
from rewards.humans.captions.records import CaptionPair, JudgedCaption, Reading
from rewards.humans.files import number, text
from rewards.humans.statistics.pair_counts import Array
from rewards.runs.files import read_json

CATEGORIES = ("HC", "HI", "HM", "MM")
_FIELDS = {"image file": "image", "image": "image", "caption": "caption", "label": "label"}
_SCORES = {"model score": "raw", "our score": "smoothed"}


@dataclass(frozen=True)
class ScoredCaption:
    """One block of a result file: the number that the judge wrote and the smoothed one; `label` of pairs only."""

    image: str
    caption: str
    raw: float
    smoothed: float
    label: int | None
    line: int


class FleurScores(NamedTuple):
    """FLEUR's results for the captions of records, NaN where the files have none, and what they lack."""

    raw: Array
    smoothed: Array
    notes: list[str]


def read_flickr8k_json(path: str | Path) -> Reading[JudgedCaption]:
    """Flickr8k-Expert from `flickr8k.json` (or CrowdFlower from its sister file): a record a judgment, in file order.

    Raises:
        InputError: not an object of pictures, or a judgment without caption, picture or rating, or outside 0..4.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path} is no object with one entry a picture")
    records: list[JudgedCaption] = []
    for key, entry in content.items():
        where = f"{path}, picture {key!r}"
        references = tuple(_texts(_field(entry, "ground_truth", where), f"{where}, ground_truth"))
        for n, judgment in enumerate(_list(_field(entry, "human_judgement", where), where)):
            here = f"{where}, judgment {n}"
            if not isinstance(judgment, dict):
                raise InputError(f"{here}: is {type(judgment).__name__}; an object is needed")
            rating = number(judgment.get("rating"), here)
            if not 0 <= rating <= 4:
                raise InputError(f"{here}: rating is {judgment.get('rating')!r}; a number from 0 to 4 is needed")
            caption = " ".join(text(judgment, "caption", here).split())
            records.append(JudgedCaption(text(judgment, "image_path", here), caption, rating, references))
    return Reading(records, [])


def read_pascal50s_json(path: str | Path) -> Reading[CaptionPair]:
    """PASCAL-50S from `pascal_50s.json`; label 0 prefers a, label 1 prefers b.

    Raises:
        InputError: not an object of the four classes, or a pair without two captions or with another label.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not set(content) & set(CATEGORIES):
        raise InputError(f"{path} is no object with pairs under {', '.join(CATEGORIES)}")
    records: list[CaptionPair] = []
    for category in (name for name in CATEGORIES if name in content):
        for n, row in enumerate(_list(content[category], f"{path}, {category}")):
            where = f"{path}, {category} {n}"
            image, label = _field(row, "image", where), _field(row, "label", where)
            captions = _texts(_field(row, "captions", where), f"{where}, captions")
            references = tuple(_texts(_field(row, "references", where), f"{where}, references"))
            if len(captions) != 2 or label not in (0, 1) or not isinstance(image, str):
                raise InputError(f"{where}: {len(captions)} captions and label {label!r}; two and 0 or 1 are needed")
            preference = 1 if label == 0 else -1
            records.append(CaptionPair(image, captions[0], captions[1], preference, category, references))
    return Reading(records, ["labels of tied votes were drawn at random: the JSON does not say which"])


def read_fleur_scores(path: str | Path) -> list[ScoredCaption]:
    """The blocks of a result file, in file order.

    Raises:
        InputError: a line that is none of the known fields, a score without a caption before it, or a score that is no
            number; with its line. No blocks at all.
    """
    blocks: list[ScoredCaption] = []
    seen: dict[str, str] = {}
    raw = math.nan
    for line, name, value in _fields_of(path):
        where = f"{path}, line {line}"
        if name in _FIELDS:
            seen[_FIELDS[name]] = value
            if name.startswith("image"):
                seen = {"image": value}
        elif name == "model score":
            raw = number(value, where)
        elif name == "our score":
            if "image" not in seen or "caption" not in seen:
                raise InputError(f"{where}: a score without a picture and a caption before it")
            label = int(number(seen["label"], where)) if "label" in seen else None
            smoothed = number(value, where)
            blocks.append(ScoredCaption(seen["image"], seen.pop("caption"), raw, smoothed, label, line))
            raw = math.nan
    if not blocks:
        raise InputError(f"{path} holds no scores")
    return blocks


def scores_of_captions(records: Sequence[JudgedCaption], blocks: Sequence[ScoredCaption]) -> FleurScores:
    """FLEUR's scores of n judged captions, joined by picture and caption."""
    found = {(block.image, " ".join(block.caption.split())): block for block in blocks}
    matched = [found.get((record.image, " ".join(record.caption.split()))) for record in records]
    return _scores(matched, "judgments")


def scores_of_pairs(records: Sequence[CaptionPair], blocks: Sequence[ScoredCaption]) -> FleurScores:
    """FLEUR's scores of n pairs, a then b: 2n numbers, joined by picture and both captions.

    A caption can stand in several pairs, so that blocks are joined two by two, as they stand in the files.
    """
    found = {(a.image, a.caption, b.caption): (a, b) for a, b in _pairs(blocks)}
    matched: list[ScoredCaption | None] = []
    for record in records:
        matched += found.get((record.image, record.a, record.b), (None, None))
    return _scores(matched, "captions of pairs")


def labelled_by_results(records: Sequence[CaptionPair], blocks: Sequence[ScoredCaption]) -> list[CaptionPair]:
    """The pairs with the labels of the result files in the place of the JSON's; pairs without a result keep theirs."""
    labels = {(a.image, a.caption, b.caption): a.label for a, b in _pairs(blocks)}
    result = []
    for record in records:
        label = labels.get((record.image, record.a, record.b))
        preference = record.preference if label is None else (1 if label == 0 else -1)
        result.append(replace(record, preference=preference))
    return result


def _pairs(blocks: Sequence[ScoredCaption]) -> Iterator[tuple[ScoredCaption, ScoredCaption]]:
    if len(blocks) % 2:
        raise InputError(f"{len(blocks)} scores of pairs; an even number is needed")
    for a, b in zip(blocks[::2], blocks[1::2], strict=True):
        if a.image != b.image or a.label != b.label:
            raise InputError(f"line {b.line}: the second caption of a pair is of another picture or label")
        yield a, b


def _scores(matched: Sequence[ScoredCaption | None], what: str) -> FleurScores:
    missing = sum(block is None for block in matched)
    raw, smoothed = (
        np.array([math.nan if block is None else getattr(block, name) for block in matched], dtype=np.float64)
        for name in ("raw", "smoothed")
    )
    notes = [f"{missing} of {len(matched)} {what} have no score in the files"] if missing else []
    return FleurScores(raw, smoothed, notes)


def _fields_of(path: str | Path) -> Iterator[tuple[int, str, str]]:
    with Path(path).open(encoding="utf-8") as file:
        for line, content in enumerate(file, start=1):
            name, colon, value = content.rstrip("\n").partition(" : ")
            if not content.strip() or name in ("true count", "tie count"):
                continue
            if not colon or name not in (*_FIELDS, *_SCORES):
                raise InputError(f"{path}, line {line}: {content.strip()[:60]!r} is none of FLEUR's fields")
            yield line, name, value


def _field(row: object, name: str, where: str) -> object:
    if not isinstance(row, dict) or name not in row:
        raise InputError(f"{where}: lacks {name}")
    return row[name]


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise InputError(f"{where}: is {type(value).__name__}; a list is needed")
    return value


def _texts(value: object, where: str) -> list[str]:
    texts = [" ".join(entry.split()) for entry in _list(value, where) if isinstance(entry, str) and entry.strip()]
    if len(texts) != len(_list(value, where)):
        raise InputError(f"{where}: holds something that is not a text")
    return texts
