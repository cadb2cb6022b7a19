"""What every training script here shares: steps, the learning rate, the log beside the weights."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """One training run: where to, how long, from which seed, and where finished parts lie."""

    out: Path
    steps: int
    batch_size: int
    learning_rate: float
    seed: int
    weights: Path  # holds the parts that were built before (vae, vqa_judge, ...)


class BuildLog:
    """Prints progress and keeps it in ``build.jsonl`` beside the weights, first line the settings."""

    def __init__(self, part: str, config: BuildConfig, continues: bool = False) -> None:
        config.out.mkdir(parents=True, exist_ok=True)
        self.path = config.out / "build.jsonl"
        if not continues:
            self.path.unlink(missing_ok=True)
        self.started, self.cpu = time.time(), time.process_time()
        settings = {k: v for k, v in asdict(config).items() if k not in ("out", "weights")}
        command = f"python -m rewards.shapes.build {part} --steps {config.steps} --seed {config.seed}"
        self._write({"part": part, "command": command, "torch": torch.__version__, **settings})

    def __call__(self, **values: float) -> None:
        row = {k: round(v, 5) if isinstance(v, float) else v for k, v in values.items()}
        row["cpu_seconds"] = round(time.process_time() - self.cpu)
        self._write(row)

    def _write(self, row: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


def cosine_after(step: int, steps: int, peak: float, flat: float, warmup: int = 100, floor: float = 0.02) -> float:
    """Warm up, stay at the peak for the share ``flat`` of the steps, then fall along a cosine to ``floor`` of it."""
    progress = step / steps
    fall = 1.0 if progress < flat else 0.5 * (1 + math.cos(math.pi * (progress - flat) / (1 - flat)))
    return peak * min(1.0, (step + 1) / warmup) * (floor + (1 - floor) * fall)


def steps_with_rate(
    optimizer: torch.optim.Optimizer, config: BuildConfig, flat: float, warmup: int = 100
) -> Iterator[int]:
    """Yield the step numbers with the optimiser's rate set for each."""
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = cosine_after(step, config.steps, config.learning_rate, flat, warmup)
        yield step


def update(loss: torch.Tensor, optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> None:
    """One optimiser step with the gradient clipped to norm 1."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


def to_tensor(pictures: np.ndarray) -> torch.Tensor:
    """NHWC float array to a contiguous NCHW tensor."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()
