"""Composite (Aditya et al. 2018): captions of Flickr8k, Flickr30k and COCO pictures rated from 1 to 5 for correctness.

The published files (`8k_correctness.csv`, `30k_correctness.csv`, `coco_correctness.csv`, and the same three for
thoroughness) are exports of a crowd-sourcing site, separated by semicolons: `Input.image_url`, `Input.text1` and on,
`Answer.Q1Answer` and on, beside columns that are not needed. They end in rows without a picture, which are noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from rewards.errors import InputError
from rewards.humans.captions.records import JudgedCaption, Reading
from rewards.runs.csv_files import csv_rows

_IMAGE = "Input.image_url"


def read_composite(path: str | Path, references: Mapping[str, list[str]] | None = None) -> Reading[JudgedCaption]:
    """Read one of the files; a record for each caption (tau-c).

    Args:
        path: the CSV file.
        references: captions by picture name (with suffix); a candidate that is one of them is left out and noted, as
            the published scripts do for Flickr8k.

    Raises:
        InputError: missing columns, a row with another number of cells, a text without rating or the reverse, a rating
            outside 1..5, or a row without a picture in the middle of the file.
    """
    rows = list(csv_rows(path, delimiter=";", columns=[_IMAGE]))
    header = list(rows[0][1]) if rows else []
    texts = sorted((name for name in header if re.fullmatch(r"Input\.text\d+", name)), key=_trailing_number)
    answers = [f"Answer.Q{_trailing_number(name)}Answer" for name in texts]
    if missing := [name for name in answers if name not in header] if texts else ["Input.text1"]:
        raise InputError(f"{path} has no columns {', '.join(missing)}; its header is {header}")
    needed = [_IMAGE, *texts, *answers]
    end = len(rows)
    while end and not any(rows[end - 1][1][name].strip() for name in needed):
        end -= 1
    notes = [f"{len(rows) - end} rows at the end without picture and rating left out"] if end < len(rows) else []
    records: list[JudgedCaption] = []
    own = 0
    for line, row in rows[:end]:
        where = f"{path}, line {line}"
        url = row[_IMAGE].strip()
        if not url:
            raise InputError(f"{where}: has no {_IMAGE}")
        image = PurePosixPath(unquote(urlsplit(url).path)).name
        of_image = tuple((references or {}).get(image, ()))
        for text, answer in zip(texts, answers, strict=True):
            caption, rating = " ".join(row[text].split()), row[answer].strip()
            if not caption or rating not in ("1", "2", "3", "4", "5"):
                raise InputError(
                    f"{where}: {text} is {caption!r} and {answer} is {rating!r}; text and 1 to 5 are needed"
                )
            if caption in of_image:
                own += 1
            else:
                records.append(JudgedCaption(image, caption, float(rating), of_image))
    if not records:
        raise InputError(f"{path} holds no judgments")
    if own:
        notes.append(f"{own} captions left out: among the references of their own picture")
    return Reading(records, notes)


def _trailing_number(name: str) -> int:
    return int(re.findall(r"\d+", name)[-1])
