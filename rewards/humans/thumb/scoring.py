"""What metrics are given of THumB's captions, and scores that were computed elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rewards.humans.columns import read_columns
from rewards.humans.metrics.base import MetricScores, TextItem
from rewards.humans.mmhe.records import CRITERIA as OUR_CRITERIA
from rewards.humans.thumb.records import RatedCaption, coco_references
from rewards.runs.csv_files import csv_rows
from rewards.runs.files import numbered_lines


def as_items(captions: Sequence[RatedCaption], images: Path, references: Path | None = None) -> list[TextItem]:
    """The captions with their pictures in a folder and, from COCO's file, their references.

    A human caption is itself one of COCO's: it is left out of its own references.
    """
    texts = coco_references(references) if references is not None else {}
    return [
        TextItem(
            str(images / caption.picture),
            caption.caption,
            references=tuple(
                text for text in texts.get(caption.coco_id, ()) if text.strip() != caption.caption.strip()
            ),
        )
        for caption in captions
    ]


def word_counts(captions: Sequence[RatedCaption]) -> MetricScores:
    """The number of words: what a metric must beat, for longer captions recall more."""
    return MetricScores(np.array([float(len(caption.caption.split())) for caption in captions]))


def read_thumb_scores(path: Path) -> MetricScores:
    """A column `score`, and columns named by our five criteria where the file has all of them, in THumB's order.

    Raises:
        InputError: no column `score`, or something that is no number; with the line.
    """
    rows = numbered_lines(path) if path.suffix == ".jsonl" else csv_rows(path)
    header = next((row for _, row in rows), {})
    criteria = list(OUR_CRITERIA) if all(name in header for name in OUR_CRITERIA) else []
    columns = read_columns(path, numbers=["score", *criteria]).numbers
    return MetricScores(columns["score"], np.stack([columns[name] for name in criteria], axis=1) if criteria else None)
