"""Candidates of the shapes world, and their ranks by a plain sort of `reward.score`: without `rewards.rerank`."""

import json
import math
import random
from dataclasses import dataclass
from itertools import pairwise

from rewards.harmonic.reward import HarmonicEval
from rewards.judges.loading import load_judge
from rewards.shapes.build.corruption import corrupt_scene, flawed_caption
from rewards.shapes.language import describe
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.shapes.scenes import sample_scene
from rewards.tifa.reward import TIFA
from rewards.tifa.store.store import QuestionStore

CANDIDATES = 8
# A judge's float32 score moves by up to this with its batch; candidates that close may change places.
TOLERANCE = 1e-5


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def text_rows(folder, count, seed=0):
    """Items of 8 captions, right and wrong, some equal; the pictures are written to `folder`."""
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        scene = sample_scene(rng)
        render(scene).save(folder / f"{n:05d}.png")
        captions = [flawed_caption(scene, rng) for _ in range(CANDIDATES)]
        rows.append({"id": f"t{n}", "image": f"{n:05d}.png", "candidates": captions})
    return rows


def picture_rows(folder, count, seed=1, cut_every=50):
    """Items of 8 pictures, one of them right, in any order; every `cut_every`-th item has a file that breaks off.

    The questions are written to `questions.sqlite` in `folder`.
    """
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        scene = sample_scene(rng)
        names = [f"p{n:05d}_{k}.png" for k in range(CANDIDATES)]
        for k, name in enumerate(names):
            render(scene if k == 0 else corrupt_scene(scene, rng)).save(folder / name)
        if n % cut_every == 0:
            (folder / names[1]).write_bytes((folder / names[1]).read_bytes()[:60])
        rows.append({"id": f"p{n}", "prompt": str(describe(scene)), "candidates": rng.sample(names, CANDIDATES)})
    question_store(folder / "questions.sqlite", sorted({row["prompt"] for row in rows})).close()
    return rows


def text_scores(folder, rows):
    """id -> the score of each caption, from one call of `HarmonicEval.score`."""
    flat = [(str(folder / row["image"]), text) for row in rows for text in row["candidates"]]
    reward = HarmonicEval(load_judge("shapes-rater"))
    return _by_item(rows, reward.score([image for image, _ in flat], [text for _, text in flat]))


def picture_scores(folder, rows):
    """id -> the score of each picture, from one call of `TIFA.score`."""
    flat = [(str(folder / name), row["prompt"]) for row in rows for name in row["candidates"]]
    reward = TIFA(load_judge("shapes-vqa"), QuestionStore(folder / "questions.sqlite"), soft=True)
    return _by_item(rows, reward.score([image for image, _ in flat], [prompt for _, prompt in flat]))


def _by_item(rows, scores):
    overall = iter(scores.overall.tolist())
    return {row["id"]: [next(overall) for _ in row["candidates"]] for row in rows}


@dataclass
class Comparison:
    """Of ranked rows with brute force.

    Attributes:
        items: ranked.
        wrong: ids whose order, scores, abstentions or order of equal candidates are not those of the plain sort.
        exchanged: items in which candidates closer than the tolerance changed places.
        largest: largest difference of a score.
        abstained: candidates.
    """

    items: int
    wrong: list
    exchanged: int
    largest: float
    abstained: int


def compare(ranked, scores, candidates):
    """Compare rows of `ranked.jsonl` with the scores of the same items.

    Args:
        ranked: rows.
        scores: id -> scores in the order of the candidates, NaN for an abstention.
        candidates: id -> candidates.
    """
    wrong, exchanged, largest, abstained = [], 0, 0.0, 0
    for row in ranked:
        own, order = scores[row["id"]], [entry["index"] for entry in row["candidates"]]
        plain = sorted(range(len(own)), key=lambda k: (math.isnan(own[k]), -own[k] if own[k] == own[k] else 0, k))
        exchanged += order != plain
        abstained += sum(map(math.isnan, own))
        found = {entry["index"]: entry["overall"] for entry in row["candidates"]}
        gaps = [abs(found[k] - own[k]) for k in order if found[k] is not None and not math.isnan(own[k])]
        largest = max([largest, *gaps])
        sound = (
            sorted(order) == list(range(len(own)))
            and all((found[k] is None) == math.isnan(own[k]) for k in order)
            and max(gaps, default=0) <= TOLERANCE
            and all(_in_order(a, b, own, candidates[row["id"]]) for a, b in pairwise(order))
        )
        if not sound:
            wrong.append(row["id"])
    return Comparison(len(ranked), wrong, exchanged, largest, abstained)


def _in_order(first, second, scores, candidates):
    """Whether `first` may stand directly before `second`."""
    a, b = scores[first], scores[second]
    if math.isnan(a) or math.isnan(b):
        return math.isnan(b) and (not math.isnan(a) or first < second)
    if candidates[first] == candidates[second]:
        return first < second
    return a >= b - TOLERANCE
