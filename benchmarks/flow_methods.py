"""DiffusionNFT and Flow-GRPO on the packaged Stable Diffusion 3 (flow matching), from several seeds, by the truth.

    python benchmarks/flow_methods.py --seeds 0 1 2 3 4 --out runs/flow_methods       # about 3 minutes a run

Both methods as their configs say (`configs/nft_shapes_flow.yaml`, `configs/flow_grpo_shapes.yaml`). A seed draws its
own training and held-out prompts, none of which chose a setting. Each row has two 95% intervals: over meanings (all
seeds' held-out pictures, clustered by what the prompt means) and over seeds (t distribution), which also knows that
trainings differ. Finished runs are not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from rewards.errors import exit_cleanly
from rewards.runs.config import load_config
from rewards.runs.evaluations import EvaluationLog, HeldOutSample
from rewards.runs.intervals import mean_interval
from rewards.runs.metrics import read_metrics
from rewards.trainers.diffusion.run import run_diffusion
from rewards.trainers.diffusion.settings import DiffusionRunConfig

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "flow_methods.json"
CONFIGS = {"NFT": "nft_shapes_flow", "Flow-GRPO": "flow_grpo_shapes"}
PROMPTS = {"NFT": 3000, "Flow-GRPO": 4000}
"""First prompt seed. Flow-GRPO's is another: its first settings failed on the prompts of NFT, which led to these."""


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def judge(sample: HeldOutSample) -> float:
    """TIFA by the judge that trains."""
    return _number(sample.judgment.overall)


def oracle(sample: HeldOutSample) -> float:
    """TIFA by the truth."""
    return _number(sample.audits["oracle"].overall)


COLUMNS: dict[str, Callable[[HeldOutSample], float]] = {
    "oracle": oracle,
    "judge": judge,
    "gap": lambda sample: judge(sample) - oracle(sample),
    "counting": lambda sample: _number(sample.audits["oracle"].parts.get("counting")),
}
"""What is measured of a held-out picture; counting by the oracle, NaN where the prompt asks for no number."""


def train(method: str, seed: int, folder: Path) -> None:
    """One run, unless its folder holds it."""
    if (folder / "summary.json").exists():
        return
    overrides: dict[str, object] = {
        "prompt_seed": PROMPTS[method] + seed,
        "seed": seed,
        "trainer.eval_freq": 0,
        "trainer.save_freq": 0,
        "output_dir": str(folder),
        "overwrite": True,
    }
    run_diffusion(load_config(DiffusionRunConfig, ROOT / "configs" / f"{CONFIGS[method]}.yaml", overrides))


def measured(folder: Path, seed: int) -> dict[str, Any]:
    """A run's first and last evaluation with its own intervals, guidance 2, and the ratio before the first update."""
    first, last = EvaluationLog(folder).ends()
    summary = json.loads((folder / "summary.json").read_text())
    row: dict[str, Any] = {"seed": seed, "seconds": summary["seconds"], "guidance": summary["baselines"]}
    ratios = [metrics.get("policy/ratio_before_update") for metrics in read_metrics(folder)]
    row["ratio_before_first_update"] = next((ratio for ratio in ratios if ratio is not None), None)
    for name, of in COLUMNS.items():
        before, after = (np.array([of(sample) for sample in end.samples]) for end in (first, last))
        gain = mean_interval(after - before, [sample.cluster for sample in last.samples])
        row[name] = {"before": float(np.nanmean(before)), "after": float(np.nanmean(after)), "gain": asdict(gain)}
    return row


def pooled(folders: list[Path], rows: list[dict[str, Any]], column: str) -> dict[str, Any]:
    """The gain over all seeds with both intervals."""
    differences: list[float] = []
    meanings: list[str] = []
    of = COLUMNS[column]
    for folder in folders:
        first, last = EvaluationLog(folder).ends()
        differences += [of(new) - of(old) for old, new in zip(first.samples, last.samples, strict=True)]
        meanings += [sample.cluster for sample in last.samples]
    gains = [row[column]["gain"]["value"] for row in rows]
    half = math.nan
    if len(gains) > 1:
        half = float(student.ppf(0.975, len(gains) - 1) * np.std(gains, ddof=1) / math.sqrt(len(gains)))
    return {
        "before": float(np.mean([row[column]["before"] for row in rows])),
        "after": float(np.mean([row[column]["after"] for row in rows])),
        "gain": float(np.mean(gains)),
        "half_over_seeds": half,
        "over_meanings": asdict(mean_interval(differences, meanings)),
        "meanings": len(set(meanings)),
    }


def show(method: str, line: dict[str, dict[str, Any]]) -> None:
    """Print a method's lines of the table."""
    for column, cell in line.items():
        low, high = (cell["over_meanings"][end] for end in ("low", "high"))
        print(
            f"{method:<10} {column:<9} {cell['before']:.3f} -> {cell['after']:.3f}  {cell['gain']:+.3f} "
            f"± {cell['half_over_seeds']:.3f} over seeds, [{low:+.3f}, {high:+.3f}] over {cell['meanings']} meanings",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("runs/flow_methods"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with exit_cleanly():
        folders = {name: [arguments.out / f"{CONFIGS[name]}-{seed}" for seed in arguments.seeds] for name in CONFIGS}
        for number, seed in enumerate(arguments.seeds):
            for method in CONFIGS:
                train(method, seed, folders[method][number])
        runs, table = {}, {}
        for method, places in folders.items():
            runs[method] = [measured(folder, seed) for folder, seed in zip(places, arguments.seeds)]
            table[method] = {column: pooled(places, runs[method], column) for column in COLUMNS}
            show(method, table[method])
        record = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {"python": platform.python_version()}
            | {package: version(package) for package in ("torch", "diffusers", "transformers", "numpy")},
            "table": table,
            "runs": runs,
        }
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
