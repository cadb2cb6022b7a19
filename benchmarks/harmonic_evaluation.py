"""Which gamma for evaluation? The overall rating by each gamma beside the truth, on the same captions.

    python benchmarks/harmonic_evaluation.py --run runs/harmonic_weighting/gamma_0.75-0      # under a minute

Held-out captions of the untrained and of the trained policy (a folder of `benchmarks/harmonic_weighting.py`), and true
captions with another picture's among them, rated once by `shapes-rater` and weighed by gamma .5, .75 and 1:

- `tau-b`: Kendall's, between the overall rating and the true one: does it order captions as the truth does?
- `distance`: mean distance of the overall rating from the true one, in rating points.

Intervals are 95%, over meanings of scenes drawn again; differences to gamma 1 are on the same draws.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from clustered import Rows, intervals
from scipy.stats import kendalltau

from rewards.errors import exit_cleanly
from rewards.harmonic.reward import HarmonicEval
from rewards.harmonic.weighting import harmonic_weights
from rewards.judges.loading import load_judge
from rewards.runs.evaluations import EvaluationLog
from rewards.shapes.datasets import caption_prompts, scene_from_json
from rewards.shapes.language import describe
from rewards.shapes.truth import CRITERIA, caption_truth

RESULTS = Path(__file__).resolve().parent / "results" / "harmonic_evaluation.json"
GAMMAS = (0.5, 0.75, 1.0)


def _tau(gamma: float) -> Callable[[Rows], float]:
    return lambda rows: float(kendalltau(rows[f"gamma {gamma:g}"], rows["truth"]).statistic)


def _distance(gamma: float) -> Callable[[Rows], float]:
    return lambda rows: float(np.abs(rows[f"gamma {gamma:g}"] - rows["truth"]).mean())


def _less(figure: Callable[[Rows], float], other: Callable[[Rows], float]) -> Callable[[Rows], float]:
    return lambda rows: figure(rows) - other(rows)


def beside_the_truth(reward: HarmonicEval, texts: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Each gamma's overall rating of texts about the held-out pictures: value, low, high."""
    prompts = caption_prompts("test", len(texts), seed=1)
    scenes = [scene_from_json(scene) for scene in prompts["scene"]]
    scores = reward.score(list(prompts["image"]), texts)
    rows = {"truth": np.array([np.mean([caption_truth(*pair)[c] for c in CRITERIA]) for pair in zip(scenes, texts)])}
    for gamma in GAMMAS:
        weights = harmonic_weights(scores.sigma, gamma)
        rows[f"gamma {gamma:g}"] = (weights * scores.criteria).sum(-1).double().numpy()
    meanings = [describe(scene).key() for scene in scenes]
    table = {}
    for gamma in GAMMAS:
        figures = {"tau-b": _tau(gamma), "distance": _distance(gamma)}
        if gamma != 1:
            figures |= {"tau-b against gamma 1": _less(_tau(gamma), _tau(1.0))}
            figures |= {"distance against gamma 1": _less(_distance(gamma), _distance(1.0))}
        table[f"gamma {gamma:g}"] = intervals(figures, rows, meanings)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/harmonic_weighting/gamma_0.75-0"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly():
        first, *_, last = EvaluationLog(arguments.run).read()
        true = [str(describe(scene_from_json(s))) for s in caption_prompts("test", 256, seed=1)["scene"]]
        cases = {
            "untrained policy": [sample.text or "" for sample in first.samples],
            "trained policy": [sample.text or "" for sample in last.samples],
            "true captions, half of them of another picture": [
                text if row % 2 else true[row - 1] for row, text in enumerate(true)
            ],
        }
        reward = HarmonicEval(load_judge("shapes-rater"))
        tables = {}
        for title, texts in cases.items():
            tables[title] = beside_the_truth(reward, texts)
            print(f"\n{title}")
            for gamma, row in tables[title].items():
                cells = "".join(f"  {name} {v:.3f} [{low:.3f}, {high:.3f}]" for name, (v, low, high) in row.items())
                print(f"{gamma:<12}{cells}", flush=True)
        record = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {package: version(package) for package in ("torch", "transformers", "numpy")},
            "captions": 256,
            "tables": tables,
        }
        arguments.results.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
