"""GRPO, RLOO and PPO on the shapes world from several seeds: does every run learn, by the judge and by the truth?

    python benchmarks/harmonic_seeds.py --seeds 0 1 2 3 4            # about 1 minute a run on one free core
    python benchmarks/harmonic_seeds.py --algorithms grpo --seeds 0 --results runs/lr.json trainer.learning_rate=5e-4

A finished run in the folder is not repeated. Held-out prompts and their noise are the same for all runs: the spread
between seeds is over training. Beside them, what texts that say nothing get from the same judge and the same truth (an
empty text, a text about another picture), what the judge says of true captions on pictures of noise, and the held-out
captions before and after counted by claims: without a false claim, fully right and complete, right backgrounds,
different texts, the policy's entropy. Everything that is printed, and every evaluation between, is in the results file.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.stats import t as student

from rewards.errors import exit_cleanly
from rewards.harmonic.reward import HarmonicEval
from rewards.judges.loading import load_judge
from rewards.runs.config import load_config
from rewards.runs.evaluations import EvaluationLog
from rewards.scores import number_or_none
from rewards.shapes.claims import claim_shares
from rewards.shapes.datasets import caption_prompts, scene_from_json
from rewards.shapes.language import describe
from rewards.shapes.truth import CRITERIA, caption_truth
from rewards.shapes.truth_reward import CaptionTruth
from rewards.trainers.language.run import run_language
from rewards.trainers.language.settings import LanguageRunConfig

RESULTS = Path(__file__).resolve().parent / "results" / "harmonic_seeds.json"
SHOWN = (
    "captions_right", "captions_complete", "captions_right_and_complete", "backgrounds_stated", "backgrounds_right",
    "backgrounds_same", "texts_distinct", "words",
)  # fmt: skip
CONFIGS = Path(__file__).resolve().parents[1] / "configs"
SCORES = {"HarmonicEval": "judge", "caption_truth_reward": "truth"}


def train(algorithm: str, seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """One run's summary, from its folder where it is finished."""
    if (folder / "summary.json").exists():
        return json.loads((folder / "summary.json").read_text())
    chosen = [f"algorithm={algorithm}", f"output_dir={folder}", f"seed={seed}", "overwrite=true", *overrides]
    config = CONFIGS / f"{'ppo' if algorithm == 'ppo' else 'grpo'}_shapes.yaml"
    return run_language(load_config(LanguageRunConfig, config, chosen))


def baselines(rows: int) -> dict[str, dict[str, float]]:
    """Judge's and truth's mean over held-out pictures for texts that no policy wrote."""
    data = caption_prompts("test", rows, seed=1)
    true = [str(describe(scene_from_json(scene))) for scene in data["scene"]]
    noise = [
        Image.fromarray(np.random.default_rng(row).integers(0, 256, (32, 32, 3), dtype=np.uint8)) for row in range(rows)
    ]
    reward = HarmonicEval(load_judge("shapes-rater"))
    cases = {
        "true caption": (list(data["image"]), true),
        "empty text": (list(data["image"]), [""] * rows),
        "another picture's caption": (list(data["image"]), true[1:] + true[:1]),
        "true caption, noise for a picture": (noise, true),
    }
    table = {}
    for name, (images, texts) in cases.items():
        truth = CaptionTruth().score(images, texts, scene=data["scene"]).overall if images is not noise else None
        table[name] = {
            "judge": float(reward.score(images, texts).overall.nanmean()),
            "truth": math.nan if truth is None else float(truth.mean()),
        }
    return table


def by_claims(folder: Path) -> list[dict[str, float]]:
    """A run's evaluations, first to last: the step, the held-out captions by claims, the truth by criterion."""
    rows = []
    for evaluation in EvaluationLog(folder).read():
        texts = [sample.text or "" for sample in evaluation.samples]
        scenes = [scene_from_json(scene) for scene in caption_prompts("test", len(texts), seed=1)["scene"]]
        truths = [caption_truth(scene, text) for scene, text in zip(scenes, texts)]
        row = {"step": evaluation.step} | claim_shares(scenes, texts)
        rows.append(row | {f"truth_{c}": float(np.mean([truth[c] for truth in truths])) for c in CRITERIA})
    return rows


def entropies(folder: Path) -> dict[int, float]:
    """The policy's entropy a token at each training step."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["policy/entropy"] for row in rows if "policy/entropy" in row}


def show_claims(algorithm: str, runs: list[dict[str, Any]]) -> None:
    """Print the captions by claims: before, and after by seed, with the mean over seeds."""
    print(
        f"\n{algorithm + ', by claims':<30}{'before':>9}"
        + "".join(f"{run['seed']:>9}" for run in runs)
        + f"{'mean':>9}"
    )
    for name in (*SHOWN, "claims_false"):
        after = [run["evaluations"][-1][name] for run in runs]
        cells = "".join(f"{value:>9.3f}" for value in (runs[0]["evaluations"][0][name], *after, float(np.mean(after))))
        print(f"{name:<30}{cells}")
    for name, at in (("entropy, first step", 0), ("entropy, last step", -1)):
        values = [list(run["entropy"].values())[at] for run in runs if run["entropy"]]
        if values:
            print(f"{name:<39}" + "".join(f"{value:>9.3f}" for value in (*values, float(np.mean(values)))))
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=["grpo", "rloo", "ppo"], choices=["grpo", "rloo", "ppo"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("runs/harmonic_seeds"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="where everything is written")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that win over the configs'")
    arguments = parser.parse_args()
    with exit_cleanly():
        print(f"{'held-out mean, no policy':<36}{'judge':>8}{'truth':>8}")
        levels = baselines(256)
        for name, row in levels.items():
            print(f"{name:<36}{row['judge']:>8.3f}{row['truth']:>8.3f}", flush=True)
        print(
            f"\n{'gain':<14}{'':<7}"
            + "".join(f"{f'seed {s}':>25}" for s in arguments.seeds)
            + f"{'mean and 95% interval':>24}"
        )
        recorded: list[dict[str, Any]] = []
        for algorithm in arguments.algorithms:
            folders = [arguments.out / f"{algorithm}-{seed}" for seed in arguments.seeds]
            runs = [
                train(algorithm, seed, folder, arguments.overrides) for seed, folder in zip(arguments.seeds, folders)
            ]
            for name, title in SCORES.items():
                rows = [(run["reward"] | run["audits"])[name]["overall"] for run in runs]
                cells = "".join(f"{row['gain']:>+9.3f} [{row['low']:+.2f}, {row['high']:+.2f}]" for row in rows)
                gains = [row["gain"] for row in rows]
                error = np.std(gains, ddof=1) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
                half = student.ppf(0.975, max(1, len(gains) - 1)) * error
                print(f"{algorithm:<14}{title:<7}{cells}{np.mean(gains):>+15.3f} ± {half:.3f}", flush=True)
            recorded += [
                {
                    "algorithm": algorithm,
                    "seed": seed,
                    "gains": run["reward"] | run["audits"],
                    "evaluations": by_claims(folder),
                    "entropy": entropies(folder),
                }
                for seed, folder, run in zip(arguments.seeds, folders, runs)
            ]
            show_claims(algorithm, recorded[-len(runs) :])
        record = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {package: version(package) for package in ("torch", "transformers", "trl", "numpy")},
            "levels": {name: {k: number_or_none(v) for k, v in row.items()} for name, row in levels.items()},
            "runs": recorded,
        }
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
