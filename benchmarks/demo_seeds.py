"""The demo from several seeds: does every run learn, by the judge and by the truth?

    python benchmarks/demo_seeds.py --seeds 0 1 2 3 4

A finished seed in the folder is not run again. The held-out prompts and their noise are the same for all seeds, so the
intervals within a run are over prompts and the spread between runs is over training.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from rewards.demo.run import run_demo
from rewards.errors import exit_cleanly


def gains(summary: dict) -> dict[str, tuple[float, float, float]]:
    """(gain, low, high) of the four held-out scores of one demo."""
    rows = {}
    for run, title, branches in (("nft", "TIFA", ("judge", "oracle")), ("grpo", "HarmonicEval", ("judge", "truth"))):
        for key, branch in zip(("reward", "audits"), branches):
            (parts,) = summary[run][key].values()
            rows[f"{title} {branch}"] = tuple(parts["overall"][name] for name in ("gain", "low", "high"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("runs/demo_seeds"))
    arguments = parser.parse_args()
    table: dict[str, list[tuple[float, float, float]]] = {}
    with exit_cleanly():
        for seed in arguments.seeds:
            folder = arguments.out / str(seed)
            done = folder / "report.html"
            summary = (
                json.loads((folder / "summary.json").read_text()) if done.exists() else run_demo(folder, seed, True)
            )
            for name, row in gains(summary).items():
                table.setdefault(name, []).append(row)
    print(
        f"{'gain on held-out prompts':<24}"
        + "".join(f"{f'seed {seed}':>26}" for seed in arguments.seeds)
        + f"{'mean':>10}"
    )
    for name, rows in table.items():
        cells = "".join(f"{gain:>+9.3f} [{low:+.3f}, {high:+.3f}]" for gain, low, high in rows)
        print(f"{name:<24}{cells}{np.mean([gain for gain, _, _ in rows]):>+10.3f}")


if __name__ == "__main__":
    main()
