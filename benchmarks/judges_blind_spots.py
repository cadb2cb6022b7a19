"""What do the shipped judges overlook? Pairs of texts that differ in one false detail, by kind, against the truth.

    python benchmarks/judges_blind_spots.py                                  # about 3 minutes on one free core
    python benchmarks/judges_blind_spots.py --judges tests/fixtures/old_rater --out runs/old_rater.json

A pair is won when the judge scores the truer text strictly higher. Three tables: pairs of the full true caption and one
false detail; pairs of what the untrained captioner wrote and one further false detail (or of the texts in
``--texts``, a run's `evaluations.jsonl`, last evaluation); and what texts get that say nothing true. Raters are asked
by HarmonicEval, answerers by soft TIFA with the questions of the text. Intervals: 95%, bootstrap over meanings of
scenes.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rewards import TIFA, HarmonicEval, load_judge
from rewards.errors import exit_cleanly
from rewards.generation.texts import write_batches
from rewards.runs.intervals import cluster_numbers, share
from rewards.shapes.datasets import caption_prompts, sample_scenes, scene_from_json
from rewards.shapes.false_details import KINDS, criterion_of, false_detail
from rewards.shapes.language import describe
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.shapes.scenes import Scene
from rewards.shapes.truth import CRITERIA, caption_truth
from rewards.trainers.language.held_out import conversation
from rewards.trainers.language.policy import load_policy
from rewards.trainers.language.settings import PolicySettings

RESULTS = Path(__file__).resolve().parent / "results" / "judges_blind_spots.json"
Scorer = Callable[[Sequence[Image.Image], Sequence[str]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Pair:
    """A scene, the truer text and the one with a false detail more."""

    scene: Scene
    kind: str
    true: str
    false: str


def scorer(judge_name: str) -> Scorer:
    """A judge's scores of texts about pictures: `overall`, and `correctness` and so on where it rates."""
    judge = load_judge(judge_name)
    if "vqa" in judge_name:

        def ask(images: Sequence[Image.Image], texts: Sequence[str]) -> dict[str, np.ndarray]:
            with tempfile.TemporaryDirectory() as folder:
                store = question_store(Path(folder) / "questions.sqlite", sorted(set(texts)))
                scores = TIFA(judge, store, soft=True).score(list(images), list(texts))
            return {"overall": scores.overall.numpy().astype(float)}

        return ask
    reward = HarmonicEval(judge)

    def rate(images: Sequence[Image.Image], texts: Sequence[str]) -> dict[str, np.ndarray]:
        scores = reward.score(list(images), list(texts))
        columns = {name: scores.criteria[:, k].numpy() for k, name in enumerate(scores.criterion_names)}
        return {"overall": scores.overall.numpy()} | columns

    return rate


def pairs_of(scenes: Sequence[Scene], texts: Sequence[str], seed: int) -> list[Pair]:
    """One pair of every kind for each text that allows it."""
    rng = random.Random(seed)
    made = [(s, kind, t, false_detail(s, t, kind, rng)) for kind in KINDS for s, t in zip(scenes, texts)]
    return [Pair(s, kind, t, false) for s, kind, t, false in made if false is not None]


def interval(values: np.ndarray, meanings: Sequence[str]) -> list[float]:
    """95% interval of the mean, whole meanings drawn again."""
    found = share(values, np.ones(len(values)), cluster_numbers(meanings)).estimate()
    return [found.low, found.high]


def pair_rows(pairs: Sequence[Pair], score: Scorer) -> list[dict[str, Any]]:
    """By kind: shares of pairs won and mean drops, by the criterion that should see it and overall."""
    images = [render(p.scene) for p in pairs]
    true, false = score(images, [p.true for p in pairs]), score(images, [p.false for p in pairs])
    rows = []
    for kind in KINDS:
        at = [i for i, p in enumerate(pairs) if p.kind == kind]
        if not at:
            continue
        criterion = criterion_of(kind)
        meanings = [describe(pairs[i].scene).key() for i in at]
        row: dict[str, Any] = {"kind": kind, "pairs": len(at), "meanings": len(set(meanings))}
        for name in ("overall", criterion):
            if name not in true:
                continue
            drop = (true[name] - false[name])[at]
            part = "overall" if name == "overall" else "criterion"
            row[f"{part}_wins"] = float((drop > 0).mean())
            row[f"{part}_wins_interval"] = interval((drop > 0).astype(float), meanings)
            row[f"{part}_drop"] = float(drop.mean())
            row[f"{part}_drop_interval"] = interval(drop, meanings)
        truths = [
            (caption_truth(pairs[i].scene, pairs[i].true), caption_truth(pairs[i].scene, pairs[i].false)) for i in at
        ]
        row["truth_drop"] = float(np.mean([before[criterion] - after[criterion] for before, after in truths]))
        rows.append(row)
    return rows


def level_rows(scenes: Sequence[Scene], score: Scorer) -> list[dict[str, Any]]:
    """Mean scores of texts that fit, and of texts that nothing is true of."""
    drawn = [render(scene) for scene in scenes]
    true = [str(describe(scene)) for scene in scenes]
    noise = [
        Image.fromarray(np.random.default_rng(row).integers(0, 256, (32, 32, 3), dtype=np.uint8))
        for row in range(len(scenes))
    ]
    rng = random.Random(1)
    blank = [Scene((), rng.choice([s.background for s in scenes])) for _ in scenes]
    cases: list[tuple[str, list[Image.Image], list[str], Sequence[Scene] | None]] = [
        ("true caption", drawn, true, scenes),
        ("another picture's caption", drawn, true[1:] + true[:1], scenes),
        ("true caption, noise for a picture", noise, true, None),
        ("true caption, an empty picture", [render(s) for s in blank], true, blank),
        ("one background for all", drawn, [f"{t.split(' on a ')[0]} on a black background" for t in true], scenes),
    ]
    rows = []
    for name, images, texts, of in cases:
        row: dict[str, Any] = {"text": name, "texts": len(texts)}
        row |= {f"judge_{part}": float(np.nanmean(values)) for part, values in score(images, texts).items()}
        truths = [caption_truth(s, t) for s, t in zip(of, texts)] if of is not None else []
        row |= {f"truth_{c}": float(np.mean([t[c] for t in truths])) for c in CRITERIA if truths}
        row |= {"truth_overall": float(np.mean([list(t.values()) for t in truths]))} if truths else {}
        rows.append(row)
    return rows


def written(count: int, texts_file: Path | None) -> tuple[list[Scene], list[str]]:
    """What the untrained captioner writes about held-out pictures, or what a run wrote at its last evaluation."""
    if texts_file is not None:
        texts: list[str] = json.loads(texts_file.read_text().splitlines()[-1])["texts"]
        return [scene_from_json(s) for s in caption_prompts("test", len(texts), seed=1)["scene"]], texts
    data = caption_prompts("test", count, seed=9)
    model, processor, _ = load_policy(PolicySettings(path="shapes-captioner"))
    made = write_batches(model, processor, list(map(conversation, data)), max_new_tokens=24, seed=0, batch_size=64)
    return [scene_from_json(s) for s in data["scene"]], [g.text for g in made]


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print one table."""

    def cell(row: dict[str, Any], name: str, digits: int) -> str:
        if name not in row:
            return f"{'':>24}"
        low, high = row[f"{name}_interval"]
        return f"{row[name]:>8.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]".rjust(24)

    print(f"\n{title}\n{'kind':<12}{'pairs':>6}{'won by criterion':>24}{'won overall':>24}{'drop, criterion':>24}"
          f"{'drop, overall':>24}{'truth drop':>12}")  # fmt: skip
    for row in rows:
        names = (("criterion_wins", 3), ("overall_wins", 3), ("criterion_drop", 2), ("overall_drop", 2))
        cells = "".join(cell(row, name, digits) for name, digits in names)
        print(f"{row['kind']:<12}{row['pairs']:>6}{cells}{row['truth_drop']:>12.2f}", flush=True)


def show_levels(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print the table of levels."""
    columns = [f"{who}_{c}" for c in ("overall", "correctness", "completeness") for who in ("judge", "truth")]
    print(f"\n{title}\n{'text':<36}" + "".join(f"{c.replace('_', ' '):>20}" for c in columns))
    for row in rows:
        cells = "".join(f"{row[c]:>20.2f}" if c in row else f"{'':>20}" for c in columns)
        print(f"{row['text']:<36}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judges", nargs="+", default=["shapes-rater", "shapes-vqa"], help="names or folders")
    parser.add_argument("--scenes", type=int, default=600)
    parser.add_argument("--texts", type=Path, help="evaluations.jsonl of a run on caption_prompts('test', n, seed=1)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly():
        scenes = sample_scenes("test", arguments.scenes, seed=9)
        policy = written(arguments.scenes, arguments.texts)
        judges: dict[str, Any] = {}
        for name in arguments.judges:
            score = scorer(name)
            tables: dict[str, list[dict[str, Any]]] = {}
            tables["true captions"] = pair_rows(pairs_of(scenes, [str(describe(s)) for s in scenes], seed=0), score)
            show(f"{name}: true captions, one detail made false", tables["true captions"])
            if "vqa" not in name:  # TIFA's questions need a text of the grammar
                tables["policy's captions"] = pair_rows(pairs_of(*policy, seed=1), score)
                show(f"{name}: captions that a policy wrote, one more detail made false", tables["policy's captions"])
            tables["levels"] = level_rows(scenes[:256], score)
            show_levels(f"{name}: mean scores", tables["levels"])
            judges[name] = tables
        versions = {package: version(package) for package in ("torch", "transformers", "numpy")}
        record = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {"python": platform.python_version(), **versions},
            "scenes": arguments.scenes,
            "judges": judges,
        }
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
