"""What stops a run whose judge is gamed? GRPO with the rater before the present one, from several seeds, to its end.

    python benchmarks/gamed_judge.py --seeds 0 1 2 3 4                # about 1 minute a run on one free core

The judge (`tests/fixtures/old_rater`) does not see backgrounds. `configs/grpo_shapes.yaml` with its gap stop off, so
that the whole course is known; where the shipped `audit_max_gap` stops the run, and which policy `best/` holds there
and at the end, follows from the evaluations, which the stop does not change. Every evaluation of every seed is printed:
judge, truth, true correctness, right backgrounds, and the weight of the criteria that are not about content. A finished
run in the folder is not repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rewards.errors import exit_cleanly
from rewards.runs.best import BestByAudit
from rewards.runs.config import load_config
from rewards.runs.evaluations import Evaluation, EvaluationLog
from rewards.shapes.claims import claim_shares
from rewards.shapes.datasets import caption_prompts, scene_from_json
from rewards.shapes.truth import caption_truth
from rewards.trainers.audit import AuditGap
from rewards.trainers.language.run import run_language
from rewards.trainers.language.settings import LanguageRunConfig

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "grpo_old_rater.json"
CONFIG = ROOT / "configs" / "grpo_shapes.yaml"
CONTENT = ("correctness", "completeness")
TRUTH = "caption_truth_reward"


def train(seed: int, folder: Path) -> list[Evaluation]:
    """A run's evaluations, from its folder where it is finished."""
    if not (folder / "summary.json").exists():
        judge = str(ROOT / "tests" / "fixtures" / "old_rater")
        own = {"reward.judge": judge, "trainer.audit_max_gap": None, "seed": seed}
        run_language(load_config(LanguageRunConfig, CONFIG, own | {"output_dir": str(folder), "overwrite": True}))
    return EvaluationLog(folder).read()


def row(evaluation: Evaluation) -> dict[str, float]:
    """An evaluation by the judge and by the truth."""
    texts = [sample.text or "" for sample in evaluation.samples]
    scenes = [scene_from_json(scene) for scene in caption_prompts("test", len(texts), seed=1)["scene"]]
    shown: Any = [found.details for found in evaluation.judgments()]
    return {
        "step": evaluation.step,
        "judge": _mean([found.overall for found in evaluation.judgments()]),
        "truth": _mean([found.overall for found in evaluation.judgments(TRUTH)]),
        "correctness": float(np.mean([caption_truth(*pair)["correctness"] for pair in zip(scenes, texts)])),
        "backgrounds_right": float(claim_shares(scenes, texts)["backgrounds_right"]),
        "weight_of_style": 1 - _mean([sum(sample["weights"][c] for c in CONTENT) for sample in shown]),
    }


def _mean(values: Sequence[float | None]) -> float:
    return float(np.mean([value for value in values if value is not None]))


def stop(evaluations: Sequence[Evaluation], rows: Sequence[dict[str, float]], max_gap: float) -> dict[str, Any]:
    """Where the gap stop ends the run (None: nowhere), and the step of the policy in `best/` there."""
    gap = AuditGap()
    growth = []
    for found in rows:
        gap.update(found["judge"], found["truth"])
        growth.append(gap.growth)
    at = next((place for place, grown in enumerate(growth) if grown > max_gap), None)
    seen = evaluations if at is None else evaluations[: at + 1]
    return {
        "stopped_at": None if at is None else rows[at]["step"],
        "kept": BestByAudit().read(seen).step,
        "best_step": BestByAudit().read(evaluations).step,
    }


def show(run: dict[str, Any]) -> None:
    """Print a run."""
    print(f"\nseed {run['seed']}: the stop ends the run at step {run['stopped_at']}, best/ holds step {run['kept']}")
    names = list(run["evaluations"][0])
    print("".join(f"{name:>19}" for name in names))
    for found in run["evaluations"]:
        print(f"{found['step']:>19}" + "".join(f"{found[name]:>19.3f}" for name in names[1:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("runs/gamed_judge"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly():
        max_gap = load_config(LanguageRunConfig, CONFIG, {}).trainer["audit_max_gap"]
        runs = []
        for seed in arguments.seeds:
            evaluations = train(seed, arguments.out / f"grpo-{seed}")
            rows = [row(evaluation) for evaluation in evaluations]
            runs.append({"seed": seed} | stop(evaluations, rows, max_gap) | {"evaluations": rows})
            show(runs[-1])
        record = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {package: version(package) for package in ("torch", "transformers", "trl", "numpy")},
            "audit_max_gap": max_gap,
            "runs": runs,
        }
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
