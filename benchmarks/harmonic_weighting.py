"""How should criteria weigh in training? HarmonicEval's gamma, a floor, contrast within the group, by the truth.

    python benchmarks/harmonic_weighting.py --seeds 0 1 2 3 4         # about 1 minute a run on one free core

GRPO in the shapes world (`configs/grpo_shapes.yaml`) with each weighting of the same ratings:

- `gamma 0.5`, `gamma 0.75` (the paper's), `gamma 1` (uniform);
- `floor`: gamma 0.75, correctness and completeness with at least 0.2 each;
- `contrast`: a criterion weighs by its spread among the captions of the same picture (`rewards.rubric`).

By the truth: captions without a false claim, fully right and complete ones, the true overall rating. Then what the
criteria weigh on held-out captions before and after, for each gamma, and what another picture's caption is rated.
Differences to gamma 0.75 are paired by seed; intervals are 95%, t distribution over seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student

from rewards.errors import exit_cleanly
from rewards.harmonic.reward import HarmonicEval
from rewards.harmonic.scores import HarmonicScores
from rewards.harmonic.weighting import harmonic_weights
from rewards.judges.loading import load_judge
from rewards.reward import Reward
from rewards.rubric.aggregation import contrast_weights
from rewards.runs.config import load_config
from rewards.runs.evaluations import Evaluation, EvaluationLog
from rewards.runs.files import Json
from rewards.shapes.claims import claim_shares
from rewards.shapes.datasets import caption_prompts, scene_from_json
from rewards.shapes.language import describe
from rewards.shapes.truth import CRITERIA, caption_truth
from rewards.trainers.language.run import run_language
from rewards.trainers.language.settings import LanguageRunConfig

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "harmonic_weighting.json"
CONFIG = HERE.parent / "configs" / "grpo_shapes.yaml"
FLOOR = {"correctness": 0.2, "completeness": 0.2}
GAMMAS = (0.5, 0.75, 1.0)
PAPER = "gamma 0.75"


class Reweighted(HarmonicEval):
    """HarmonicEval of the shapes rater with other weights in training; evaluations are the paper's."""

    def __init__(self) -> None:
        super().__init__(load_judge("shapes-rater"))

    def weigh(self, scores: HarmonicScores, images: Sequence[object]) -> torch.Tensor:
        """Weights `(N, C)` of the criteria."""
        raise NotImplementedError

    def score(  # type: ignore[override]
        self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Any
    ) -> HarmonicScores:
        """Rate N texts, and weigh the criteria anew."""
        scores = super().score(images, texts, **columns)
        scores.overall = (self.weigh(scores, images) * scores.criteria).sum(-1)
        return scores

    def for_evaluation(self) -> Reward:
        """The paper's weights."""
        return HarmonicEval(self.judge)

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """HarmonicEval's, with the weighting's name."""
        return super().identity(texts) | {"weighting": type(self).__name__}


class Floor(Reweighted):
    """The paper's weights, those of :data:`FLOOR` at least as large as stated."""

    def weigh(self, scores: HarmonicScores, images: Sequence[object]) -> torch.Tensor:
        """Raised weights; the other criteria share what is left."""
        least = torch.tensor([FLOOR.get(name, 0.0) for name in self.criteria])
        raised = torch.maximum(scores.weights, least)
        free = scores.weights > least
        rest = 1 - torch.where(free, 0.0, raised).sum(-1, keepdim=True)
        kept = torch.where(free, scores.weights, 0.0)
        return torch.where(free, kept * rest / kept.sum(-1, keepdim=True), raised)


class Contrast(Reweighted):
    """Weights by the spread of each criterion among the texts about the same picture."""

    def weigh(self, scores: HarmonicScores, images: Sequence[object]) -> torch.Tensor:
        """Weights of each picture's group."""
        pictures = [image.tobytes() for image in images]  # type: ignore[attr-defined]
        weights = torch.empty_like(scores.weights)
        for picture in set(pictures):
            rows = [row for row, other in enumerate(pictures) if other == picture]
            weights[rows] = torch.tensor(contrast_weights([1.0] * len(self.criteria), scores.criteria[rows]))
        return weights


WEIGHTINGS: dict[str, dict[str, object]] = {
    PAPER: {},
    "gamma 0.5": {"reward.gamma": 0.5},
    "gamma 1": {"reward.gamma": 1.0},
    "floor": {"reward.kind": "function", "reward.judge": None, "reward.function": "harmonic_weighting:Floor"},
    "contrast": {"reward.kind": "function", "reward.judge": None, "reward.function": "harmonic_weighting:Contrast"},
}
"""Settings of the reward that trains, by name."""


def train(name: str, seed: int, folder: Path) -> None:
    """One run, unless its folder holds it."""
    if (folder / "summary.json").exists():
        return
    common: dict[str, object] = {"output_dir": str(folder), "seed": seed, "overwrite": True, "evaluation.every": 0}
    run_language(load_config(LanguageRunConfig, CONFIG, common | WEIGHTINGS[name]))


def by_truth(evaluation: Evaluation) -> dict[str, float]:
    """Held-out captions of one evaluation, by the truth."""
    texts = [sample.text or "" for sample in evaluation.samples]
    scenes = [scene_from_json(scene) for scene in caption_prompts("test", len(texts), seed=1)["scene"]]
    truths = [caption_truth(scene, text) for scene, text in zip(scenes, texts)]
    row = {k: float(v) for k, v in claim_shares(scenes, texts).items()}
    row |= {f"truth {c}": float(np.mean([truth[c] for truth in truths])) for c in CRITERIA}
    return row | {"truth": float(np.mean([row[f"truth {c}"] for c in CRITERIA]))}


def shares(reward: HarmonicEval, texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean weight of each criterion on held-out captions, and the overall score, for each gamma."""
    images = list(caption_prompts("test", len(texts), seed=1)["image"])
    scores = reward.score(images, texts)
    table = {}
    for gamma in GAMMAS:
        weights = harmonic_weights(scores.sigma, gamma)
        row = dict(zip(reward.criteria, weights.mean(0).tolist()))
        table[f"gamma {gamma:g}"] = row | {"overall": float((weights * scores.criteria).sum(-1).mean())}
    return table


def interval(values: Sequence[float]) -> dict[str, float | list[float] | None]:
    """Mean, half of the 95% interval (None for one seed), and the seeds' values."""
    spread = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    half = float(student.ppf(0.975, max(1, len(values) - 1)) * spread)
    return {"mean": float(np.mean(values)), "half": half if math.isfinite(half) else None, "seeds": list(values)}


def cell(row: dict[str, Any]) -> str:
    """Mean and interval for the table."""
    return f"{row['mean']:>12.3f} ± {row['half'] or math.nan:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--weightings", nargs="+", default=list(WEIGHTINGS), choices=list(WEIGHTINGS), help=f"{PAPER} first"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/harmonic_weighting"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly():
        reward = HarmonicEval(load_judge("shapes-rater"))
        true = [str(describe(scene_from_json(s))) for s in caption_prompts("test", 256, seed=1)["scene"]]
        record: dict[str, Any] = {"runs": {}, "table": {}, "weights": {}}
        record["weights"]["another picture's caption"] = shares(reward, true[1:] + true[:1])
        shown = ("captions_right", "captions_right_and_complete", "truth", "words", "texts_distinct")
        for name in arguments.weightings:
            runs = []
            for seed in arguments.seeds:
                folder = arguments.out / f"{name.replace(' ', '_')}-{seed}"
                train(name, seed, folder)
                first, *_, last = EvaluationLog(folder).read()
                after = [sample.text or "" for sample in last.samples]
                runs.append(
                    {"seed": seed, "before": by_truth(first), "after": by_truth(last), "weights": shares(reward, after)}
                )
                if not record["weights"].get("before"):
                    record["weights"]["before"] = shares(reward, [sample.text or "" for sample in first.samples])
            record["runs"][name] = runs
            paper = record["runs"].get(PAPER, runs)
            row: dict[str, Any] = {c: interval([run["after"][c] for run in runs]) for c in shown}
            row |= {f"{c} before": runs[0]["before"][c] for c in shown}
            row |= {
                f"{c} against {PAPER}": interval([a["after"][c] - b["after"][c] for a, b in zip(runs, paper)])
                for c in shown
            }
            row["weights after"] = {
                gamma: {
                    part: float(np.mean([run["weights"][gamma][part] for run in runs]))
                    for part in (*reward.criteria, "overall")
                }
                for gamma in runs[0]["weights"]
            }
            record["table"][name] = row
            print(f"{name:<12}" + "".join(f"  {c} {cell(row[c])}" for c in shown), flush=True)
        for title, table in record["weights"].items():
            print(f"\n{title}: mean weight of each criterion, and the overall score")
            for gamma, row in table.items():
                print(f"{gamma:<12}" + "".join(f"{part:>15} {value:.3f}" for part, value in row.items()))
        record |= {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {"python": platform.python_version()}
            | {package: version(package) for package in ("torch", "transformers", "trl", "numpy")},
        }
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
