"""How far does `shapes-vqa` agree with the oracle on pictures of a generator that it never saw?

    python benchmarks/judges_other_generator.py                      # about 3 minutes on one core

The judge's second stage of training had pictures of the shipped Stable Diffusion, labelled by the oracle
(`rewards/shapes/build/vqa_judge_generated.py`): what it says of that generator is a best case. The shipped Stable
Diffusion 3 was made later, by flow matching with another network; it shares the autoencoder, the text encoder and the
training scenes with the first, and no picture of it was in anybody's training. Held-out prompts in both:

- `agreement`: the share of questions on which judge and oracle agree;
- `passed of failed`: the share that the judge passes of those that the oracle fails;
- `oracle`, `gap`, `soft gap`: the mean by the oracle, and how far the judge is above it, right or wrong and soft.

Intervals are 95%, over meanings of prompts drawn again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clustered import Rows, intervals
from diffusers import DiffusionPipeline
from tifa_none_of_these import EXACT

from rewards.build import open_judge
from rewards.errors import exit_cleanly
from rewards.shapes.language import meaning
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.tifa.answers import TIFAScores
from rewards.tifa.reward import TIFA

WEIGHTS = Path(__file__).resolve().parents[1] / "rewards" / "shapes" / "weights"
RESULTS = Path(__file__).resolve().parent / "results" / "judges_other_generator.json"
SEEN, UNSEEN = "seen in training", "never seen"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    f"{SEEN}, guidance 1": ("stable_diffusion", {"num_inference_steps": 5, "eta": 1.0, "guidance_scale": 1.0}),
    f"{SEEN}, guidance 2": ("stable_diffusion", {"num_inference_steps": 5, "guidance_scale": 2.0}),
    f"{UNSEEN}, guidance 1": (
        "stable_diffusion_3",
        {"num_inference_steps": 10, "guidance_scale": 1.0, "max_sequence_length": 1},
    ),
    f"{UNSEEN}, guidance 2": (
        "stable_diffusion_3",
        {"num_inference_steps": 10, "guidance_scale": 2.0, "max_sequence_length": 1},
    ),
}
"""Folder of the weights and how they draw: the first two as pictures were drawn for the judge's training."""


def draw(folder: str, options: Mapping[str, Any], prompts: Sequence[str]) -> list[Any]:
    """A picture a prompt, each from a seed of its own."""
    pipeline = DiffusionPipeline.from_pretrained(WEIGHTS / folder)
    pipeline.set_progress_bar_config(disable=True)
    pictures: list[Any] = []
    for start in range(0, len(prompts), 64):
        part = list(prompts[start : start + 64])
        generators = [torch.Generator().manual_seed(start + row) for row in range(len(part))]
        pictures += pipeline(part, generator=generators, output_type="pil", **options).images
    return pictures


def by_picture(judged: TIFAScores, truth: TIFAScores) -> dict[str, np.ndarray]:
    """Sums over each picture's questions."""
    names = ("questions", "agree", "failed", "passed of failed", "judge", "oracle", "soft")
    table = {name: np.zeros(len(judged)) for name in names}
    for found, true in zip(judged.answers, truth.answers, strict=True):
        values = (1.0, found.right == true.right, not true.right, found.right and not true.right)
        for name, value in zip(names, (*values, found.right, true.right, found.score)):
            table[name][found.image] += float(value or 0)
    return table


FIGURES: dict[str, Callable[[Rows], float]] = {
    "agreement": lambda rows: rows["agree"].sum() / rows["questions"].sum(),
    "passed of failed": lambda rows: rows["passed of failed"].sum() / rows["failed"].sum(),
    "oracle": lambda rows: (rows["oracle"] / rows["questions"]).mean(),
    "gap": lambda rows: ((rows["judge"] - rows["oracle"]) / rows["questions"]).mean(),
    "soft gap": lambda rows: ((rows["soft"] - rows["oracle"]) / rows["questions"]).mean(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly(), tempfile.TemporaryDirectory() as folder:
        prompts = generator_prompts("test", arguments.prompts, seed=1)
        store = question_store(Path(folder) / "questions.sqlite", prompts)
        oracle = TIFA(open_judge("shapes-oracle"), store, matcher=EXACT)
        judge = TIFA(open_judge("shapes-vqa"), store, soft=True)
        table = {}
        for title, (name, options) in CASES.items():
            pictures = draw(name, options, prompts)
            rows = by_picture(judge.score(pictures, prompts), oracle.score(pictures, prompts))
            table[title] = intervals(FIGURES, rows, [meaning(prompt) for prompt in prompts])
            cells = "".join(f"  {k} {v:.3f} [{low:.3f}, {high:.3f}]" for k, (v, low, high) in table[title].items())
            print(f"{title:<32}{cells}", flush=True)
        record = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {package: version(package) for package in ("torch", "diffusers", "transformers", "numpy")},
            "prompts": len(prompts),
            "drawn": {title: {"weights": name} | options for title, (name, options) in CASES.items()},
            "results": table,
        }
        arguments.results.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
