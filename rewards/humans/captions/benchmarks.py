"""The five caption benchmarks by name: how each is read, which statistic its papers report, and what they printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from rewards.errors import InputError
from rewards.humans.captions.composite import read_composite
from rewards.humans.captions.fleur import read_flickr8k_json, read_pascal50s_json
from rewards.humans.captions.flickr8k import read_flickr8k_crowdflower, read_flickr8k_expert
from rewards.humans.captions.foil import read_foil
from rewards.humans.captions.pascal50s import read_pascal50s
from rewards.humans.captions.records import (
    CaptionPair,
    JudgedCaption,
    PairTies,
    Reading,
    caption_agreement,
    pair_accuracy,
)
from rewards.humans.metrics.base import TextItem
from rewards.humans.statistics.pair_counts import Array
from rewards.runs.intervals import Estimate

CaptionReading: TypeAlias = Reading[JudgedCaption] | Reading[CaptionPair]
CaptionRecords: TypeAlias = Sequence[JudgedCaption] | Sequence[CaptionPair]

# Name -> (number of files, the statistic that the papers report).
BENCHMARKS = {
    "flickr8k-ex": (2, "kendall_tau_c"),
    "flickr8k-cf": (2, "kendall_tau_b"),
    "composite": (1, "kendall_tau_c"),
    "pascal50s": (2, "accuracy"),
    "foil-1": (2, "accuracy"),
    "foil-4": (2, "accuracy"),
}

# HarmonicEval table 8 (x 100; PASCAL-50S: the mean of the four classes). BLEU is BLEU-4 of the COCO scripts.
PUBLISHED: dict[str, dict[str, float]] = {
    "flickr8k-ex": {"BLEU": 30.8, "ROUGE": 32.3, "METEOR": 41.8, "CIDEr": 43.9, "BERT-S": 39.2, "FLEUR smoothed": 53.0},
    "flickr8k-cf": {"BLEU": 16.9, "ROUGE": 19.9, "METEOR": 22.2, "CIDEr": 24.6, "BERT-S": 22.8, "FLEUR smoothed": 38.6},
    "composite": {"BLEU": 30.6, "ROUGE": 32.4, "METEOR": 38.9, "CIDEr": 37.7, "BERT-S": 30.1, "FLEUR smoothed": 63.5},
    "pascal50s": {"BLEU": 72.9, "ROUGE": 74.1, "METEOR": 78.0, "CIDEr": 76.8, "BERT-S": 79.1, "FLEUR smoothed": 83.2},
}


REFERENCE_NOTE = (
    "the published BLEU, ROUGE, METEOR and CIDEr stand on the COCO scripts: PTB tokens in lower case, BLEU-4 without "
    "smoothing, METEOR with synonyms (benchmarks/humans_captions.py runs them on the same captions)"
)


def read_benchmark(name: str, files: Sequence[str | Path]) -> CaptionReading:
    """Read a benchmark by name, from the published files or from one JSON of the FLEUR repository.

    Composite takes one to three files of the same question.

    Raises:
        InputError: an unknown name, another number of files, or a broken file.
    """
    if name not in BENCHMARKS:
        raise InputError(f"unknown benchmark {name!r}; one of {', '.join(BENCHMARKS)} is needed")
    if name == "composite":
        readings = [read_composite(file) for file in files]
        return Reading([r for reading in readings for r in reading.records], [n for r in readings for n in r.notes])
    if len(files) == 1 and Path(files[0]).suffix == ".json" and not name.startswith("foil"):
        return read_pascal50s_json(files[0]) if name == "pascal50s" else read_flickr8k_json(files[0])
    if len(files) != BENCHMARKS[name][0]:
        raise InputError(
            f"{name} needs {BENCHMARKS[name][0]} files, got {len(files)}; "
            "flickr8k-ex, flickr8k-cf and pascal50s are also read from one JSON of the FLEUR repository"
        )
    first, second = files
    if name == "flickr8k-ex":
        return read_flickr8k_expert(first, second)
    if name == "flickr8k-cf":
        return read_flickr8k_crowdflower(first, second)
    if name == "pascal50s":
        return read_pascal50s(first, second)
    return read_foil(first, second, references=int(name.removeprefix("foil-")))


def items_to_score(records: CaptionRecords) -> list[TextItem]:
    """What a metric has to score, in order; of a pair first a, then b."""
    items = []
    for record in records:
        texts = [record.caption] if isinstance(record, JudgedCaption) else [record.a, record.b]
        items += [TextItem(record.image, text, references=record.references) for text in texts]
    return items


def scores_once(items: Sequence[TextItem]) -> tuple[list[TextItem], list[int]]:
    """The different items, and for each item the place of its own among them: three judgments are scored once."""
    places: dict[tuple[object, str], int] = {}
    where = [places.setdefault((item.image, item.text), len(places)) for item in items]
    first = {place: item for item, place in zip(reversed(items), reversed(where), strict=True)}
    return [first[place] for place in range(len(places))], where


def compare(
    name: str,
    records: CaptionRecords,
    scores: Array,
    *,
    ties: PairTies = "half",
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """The statistics that the papers report, as fractions with intervals.

    Args:
        name: of the benchmark.
        records: from :func:`read_benchmark`.
        scores: one number an item of :func:`items_to_score`.
        ties: of a metric between the captions of a pair, see :data:`rewards.humans.captions.records.PAIR_TIES`.
        resamples, seed: of the bootstrap.

    Returns:
        tau-c and tau-b for judged captions, the papers' first; accuracy by class, of all pairs and its mean for pairs.

    Raises:
        InputError: another number of scores than items.
    """
    statistic = BENCHMARKS[name][1]
    judged = [record for record in records if isinstance(record, JudgedCaption)]
    pairs = [record for record in records if isinstance(record, CaptionPair)]
    needed = len(judged) + 2 * len(pairs)
    if len(scores) != needed:
        raise InputError(f"{len(scores)} scores for {needed} captions; one each, in the order of the list, is needed")
    if statistic == "accuracy":
        values = np.asarray(scores, dtype=np.float64)
        return pair_accuracy(pairs, values[::2], values[1::2], ties=ties, resamples=resamples, seed=seed)
    found = caption_agreement(judged, scores, resamples=resamples, seed=seed)
    both = dict.fromkeys([statistic, "kendall_tau_c", "kendall_tau_b"])
    return {variant: found[variant] for variant in both}


def headline(results: Mapping[str, Estimate]) -> Estimate:
    """The number that the papers print: the first tau, or the mean over the classes of pairs."""
    return results["mean"] if "mean" in results else next(iter(results.values()))
