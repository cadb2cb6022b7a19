"""Which form of TIFA should train? Hard, soft, Soft-TIFA's two means, "all right", surplus questions, by the truth.

    python benchmarks/tifa_training.py --seeds 0 1 2 3 4 --out runs/tifa_training       # about 3 minutes a run

DiffusionNFT (`configs/nft_shapes.yaml`, half of its epochs) trains the packaged Stable Diffusion with each form of the
same judge's answers. A seed draws its own training and held-out prompts, none of which chose a setting, and all forms
of a seed share them and the noise of the evaluation. The table is by the oracle: the share of right answers (AM) and
the share of pictures with every answer right, which a reward by GM or "all" aims at, and the share of pictures with a
surplus object, about which only `soft, surplus` asks. Differences to the first form are paired by seed; intervals are
95%, t distribution over seeds. Finished runs are not made again.
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
from scipy.stats import t as student

from rewards.errors import exit_cleanly
from rewards.runs.config import load_config
from rewards.runs.evaluations import EvaluationLog
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.trainers.diffusion.run import run_diffusion
from rewards.trainers.diffusion.settings import DiffusionRunConfig

RESULTS = Path(__file__).resolve().parent / "results" / "tifa_training.json"
CONFIG = Path(__file__).resolve().parents[1] / "configs" / "nft_shapes.yaml"
FORMS: dict[str, dict[str, object]] = {
    "hard": {"reward.soft": False, "reward.answer": "choices"},
    "soft": {"reward.soft": True},
    "soft, surplus": {"reward.soft": True},
    "mass AM": {"reward.soft": "mass"},
    "mass GM": {"reward.soft": "mass", "reward.aggregate": "geometric"},
    "all right": {"reward.soft": False, "reward.answer": "choices", "reward.aggregate": "all"},
}
"""Settings of the reward that trains, by the name of the form."""


def train(form: str, seed: int, epochs: int, folder: Path) -> None:
    """One run, unless its folder holds it."""
    if (folder / "summary.json").exists():
        return
    common: dict[str, object] = {
        "prompt_seed": 1000 + seed,
        "seed": seed,
        "baseline_guidance_scales": [],
        "trainer.num_epochs": epochs,
        "trainer.eval_freq": 0,
        "trainer.save_freq": 0,
        "output_dir": str(folder),
        "overwrite": True,
    }
    if form == "soft, surplus":
        config = load_config(DiffusionRunConfig, CONFIG, common)
        prompts = generator_prompts("train", config.num_train_prompts or 2000, config.prompt_seed)
        prompts += generator_prompts("test", config.num_eval_prompts, config.prompt_seed)
        path = folder.parent / f"questions-{seed}.sqlite"
        question_store(path, prompts, surplus=True).close()
        common["reward.questions"] = str(path)
    run_diffusion(load_config(DiffusionRunConfig, CONFIG, common | FORMS[form]))


def measured(folder: Path) -> dict[str, float]:
    """First and last evaluation of a run: the reward, and the oracle's mean, share of all right, and element types."""
    first, *_, last = EvaluationLog(folder).read()
    row: dict[str, float] = {}
    for when, evaluation in (("before", first), ("after", last)):
        row[f"reward {when}"] = _mean([sample.judgment.overall for sample in evaluation.samples])
        oracle = [judgment for sample in evaluation.samples for judgment in sample.audits.values()]
        row[f"oracle {when}"] = _mean([judgment.overall for judgment in oracle])
        row[f"all right {when}"] = _mean([float(j.overall > 1 - 1e-9) for j in oracle if j.overall is not None])
        row[f"surplus {when}"] = _mean(
            [float(float(str(j.details["surplus"])) > 0) for j in oracle if j.overall is not None]
        )
        for part in sorted({name for judgment in oracle for name in judgment.parts}):
            row[f"{part} {when}"] = _mean([judgment.parts.get(part) for judgment in oracle])
    return row


def _mean(values: Sequence[float | None]) -> float:
    return float(np.mean([value for value in values if value is not None]))


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half of the 95% interval."""
    half = math.nan
    if len(values) > 1:
        half = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return float(np.mean(values)), half


def show(rows: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Print the table, and return its lines."""
    columns = ("oracle", "all right", "counting", "surplus")
    base = next(iter(rows))
    print(f"{'form':<14}" + "".join(f"{f'{c}, gain':>22}{f'against {base}':>22}" for c in columns))
    lines = []
    for form, runs in rows.items():
        line: dict[str, Any] = {"form": form}
        cells = ""
        for column in columns:
            gains = [run[f"{column} after"] - run[f"{column} before"] for run in runs]
            against = [run[f"{column} after"] - other[f"{column} after"] for run, other in zip(runs, rows[base])]
            for name, values in ((f"{column} gain", gains), (f"{column} against {base}", against)):
                mean, half = interval(values)
                line[name] = {"mean": mean, "half": half, "seeds": values}
                cells += f"{mean:>+14.3f} ± {half:.3f}"
        print(f"{form:<14}{cells}", flush=True)
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--out", type=Path, default=Path("runs/tifa_training"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly():
        rows: dict[str, list[dict[str, float]]] = {form: [] for form in arguments.forms}
        for seed in arguments.seeds:
            for form in arguments.forms:
                folder = arguments.out / f"{form.replace(',', '').replace(' ', '_')}-{seed}"
                train(form, seed, arguments.epochs, folder)
                rows[form].append(measured(folder))
        lines = show(rows)
        record = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {"python": platform.python_version()}
            | {package: version(package) for package in ("torch", "diffusers", "transformers", "numpy")},
            "epochs": arguments.epochs,
            "seeds": arguments.seeds,
            "table": lines,
            "runs": rows,
        }
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
