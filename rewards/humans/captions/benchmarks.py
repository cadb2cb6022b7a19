"""The five caption benchmarks by name: how each is read, and which statistic its papers report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards.errors import InputError
from rewards.humans.captions.composite import read_composite
from rewards.humans.captions.flickr8k import read_flickr8k_crowdflower, read_flickr8k_expert
from rewards.humans.captions.foil import read_foil
from rewards.humans.captions.pascal50s import read_pascal50s
from rewards.humans.captions.records import CaptionPair, JudgedCaption, Reading, caption_agreement, pair_accuracy

# Name -> (number of files, the statistic that the papers report).
BENCHMARKS = {
    "flickr8k-ex": (2, "kendall_tau_c"),
    "flickr8k-cf": (2, "kendall_tau_b"),
    "composite": (1, "kendall_tau_c"),
    "pascal50s": (2, "accuracy"),
    "foil-1": (2, "accuracy"),
    "foil-4": (2, "accuracy"),
}


def read_benchmark(name: str, files: Sequence[str | Path]) -> Reading[Any]:
    """Read a benchmark by name; Composite takes one to three files of the same question.

    Raises:
        InputError: an unknown name, another number of files, or a broken file.
    """
    if name not in BENCHMARKS:
        raise InputError(f"unknown benchmark {name!r}; one of {', '.join(BENCHMARKS)} is needed")
    if name == "composite":
        readings = [read_composite(file) for file in files]
        return Reading([r for reading in readings for r in reading.records], [n for r in readings for n in r.notes])
    if len(files) != BENCHMARKS[name][0]:
        raise InputError(f"{name} needs {BENCHMARKS[name][0]} files, got {len(files)}")
    first, second = files
    if name == "flickr8k-ex":
        return read_flickr8k_expert(first, second)
    if name == "flickr8k-cf":
        return read_flickr8k_crowdflower(first, second)
    if name == "pascal50s":
        return read_pascal50s(first, second)
    return read_foil(first, second, references=int(name.removeprefix("foil-")))


def items_to_score(records: Sequence[JudgedCaption | CaptionPair]) -> list[dict[str, Any]]:
    """What a metric has to score, in order: image, caption and references; of a pair first a, then b."""
    items = []
    for record in records:
        texts = [record.caption] if isinstance(record, JudgedCaption) else [record.a, record.b]
        items += [{"image": record.image, "caption": text, "references": list(record.references)} for text in texts]
    return items


def compare(
    name: str, records: Sequence[Any], scores: NDArray[Any], *, resamples: int = 2000, seed: int = 0
) -> dict[str, str]:
    """The statistics that the papers report, each x 100 with its interval.

    Args:
        name: of the benchmark.
        records: from :func:`read_benchmark`.
        scores: one number an item of :func:`items_to_score`.

    Raises:
        InputError: another number of scores than items.
    """
    statistic = BENCHMARKS[name][1]
    needed = len(records) if statistic != "accuracy" else 2 * len(records)
    if len(scores) != needed:
        raise InputError(f"{len(scores)} scores for {needed} captions; one each, in the order of the list, is needed")
    if statistic == "accuracy":
        scores = np.asarray(scores, dtype=float)
        estimates = pair_accuracy(records, scores[::2], scores[1::2], resamples=resamples, seed=seed)
        return {category: str(estimate) for category, estimate in estimates.items()}
    return {statistic: str(caption_agreement(records, scores, resamples=resamples, seed=seed)[statistic])}
