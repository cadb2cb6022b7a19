"""`python -m rewards.shapes.build PART`: train one part of the shapes world from scratch, in the order of ``PARTS``."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import torch

from rewards.shapes.build.common import BuildConfig

WEIGHTS = Path(__file__).resolve().parents[1] / "weights"
STAGES = ("_generated", "_unsure", "_false_details")  # second stages: they go on in the folder of the first
PARTS: dict[str, dict[str, float]] = {
    "vae": {"steps": 6000, "batch_size": 16, "learning_rate": 2e-3},
    "vqa_judge": {"steps": 4000, "batch_size": 32, "learning_rate": 1e-3},
    "stable_diffusion": {"steps": 3872, "batch_size": 32, "learning_rate": 1e-3},
    "stable_diffusion_unsure": {"steps": 700, "batch_size": 32, "learning_rate": 5e-4},
    "stable_diffusion_3": {"steps": 4000, "batch_size": 64, "learning_rate": 1.5e-3},
    "vqa_judge_generated": {"steps": 1000, "batch_size": 32, "learning_rate": 5e-4},
    "rater": {"steps": 6000, "batch_size": 16, "learning_rate": 1e-3},
    "captioner": {"steps": 4000, "batch_size": 32, "learning_rate": 1e-3},
    "rater_false_details": {"steps": 500, "batch_size": 12, "learning_rate": 5e-4},
}


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m rewards.shapes.build", description=__doc__)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder of the parts built before")
    parser.add_argument("--out", type=Path, help="default: WEIGHTS/PART")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the recorded logs are those of one thread
    settings = {k: getattr(arguments, k) or v for k, v in PARTS[arguments.part].items()}
    folder = arguments.part
    for stage in STAGES:
        folder = folder.removesuffix(stage)
    config = BuildConfig(
        out=arguments.out or arguments.weights / folder,
        seed=arguments.seed,
        weights=arguments.weights,
        **settings,
    )
    import_module(f"rewards.shapes.build.{arguments.part}").build(config)


if __name__ == "__main__":
    main()
