"""What "none of these" does to the shapes judge: agreement with the oracle and gap, with and without the choice.

    python benchmarks/tifa_none_of_these.py [--prompts 256] [--guidance 1.0] [--json FILE]

Pictures are drawn by the shipped generator for held-out prompts, so that some lack what is asked about. For each way of
scoring: the share of questions on which judge and oracle agree, the share that the judge passes of those that the
oracle fails (the open ones apart), and the mean score less the oracle's (the gap that a policy can widen).

Measured (results/tifa_none_of_these.json): the choice changes nothing here, because the shapes judge was never taught
to give such an answer; the probability of the answer among all (`soft="mass"`) has the smallest gap and agrees best.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline

from rewards.build import open_judge
from rewards.rerank.generate import PRESETS
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.tifa.answers import AnswerRow
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.reward import TIFA

EXACT = AnswerMatcher(sentence_model=None)
WAYS: dict[str, dict[str, Any]] = {
    "free form": {"answer": "free_form"},
    "choices": {"answer": "choices"},
    "choices, none of these": {"answer": "choices", "none_of_these": True},
    "soft": {"soft": True},
    "soft, none of these": {"soft": True, "none_of_these": True},
    "soft, mass": {"soft": "mass"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--guidance", type=float, default=1.0)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    prompts = generator_prompts("test", options.prompts, seed=1)
    pictures = draw(prompts, options.guidance)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        store = question_store(Path(folder) / "questions.sqlite", sorted(set(prompts)))
        truth = TIFA(open_judge("shapes-oracle"), store, matcher=EXACT).score(pictures, prompts).answers
        judge = open_judge("shapes-vqa")
        for name, way in WAYS.items():
            results[name] = compare(TIFA(judge, store, matcher=EXACT, **way).score(pictures, prompts).answers, truth)
            print(f"{name:<24}", "  ".join(f"{key} {value:.3f}" for key, value in results[name].items()))
    if options.json:
        made = {"prompts": len(prompts), "guidance": options.guidance, "questions": len(truth), "results": results}
        options.json.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def draw(prompts: Sequence[str], guidance: float) -> list[Any]:
    """A picture a prompt, each from a seed of its own."""
    pipeline = DiffusionPipeline.from_pretrained(PRESETS["shapes-generator"])
    pipeline.set_progress_bar_config(disable=True)
    generators = [torch.Generator().manual_seed(seed) for seed in range(len(prompts))]
    return list(pipeline(list(prompts), guidance_scale=guidance, generator=generators, output_type="pil").images)


def compare(found: Sequence[AnswerRow], truth: Sequence[AnswerRow]) -> dict[str, float]:
    """Judge against oracle, a question a row."""
    pairs = list(zip(found, truth, strict=True))
    failed = [row for row, true in pairs if not true.right]
    open_ones = [row for row in failed if set(row.question.choices) != {"yes", "no"}]
    return {
        "agreement": sum(row.right == true.right for row, true in pairs) / len(pairs),
        "passed of failed": sum(bool(row.right) for row in failed) / max(len(failed), 1),
        "of open ones": sum(bool(row.right) for row in open_ones) / max(len(open_ones), 1),
        "mean": sum(row.score for row, _ in pairs) / len(pairs),
        "gap": sum(row.score - true.score for row, true in pairs) / len(pairs),
    }


if __name__ == "__main__":
    main()
