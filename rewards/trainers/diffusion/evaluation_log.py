"""`evaluations.jsonl`: the scores of every held-out picture at each evaluation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from rewards.runs.files import append_line, keep_lines
from rewards.runs.metrics import read_steps
from rewards.trainers.diffusion.evaluation import Evaluation


class EvaluationLog:
    """`evaluations.jsonl`: the scores of every held-out picture at each evaluation, for paired comparisons.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "evaluations.jsonl"

    def append(self, step: int, evaluation: Evaluation) -> None:
        """Write one evaluation."""
        row = {"step": step, "scores": _rows(evaluation.scores)}
        if evaluation.audit is not None:
            row["audit"] = _rows(evaluation.audit)
        append_line(self.path, row)

    def keep_until(self, step: int) -> None:
        """Drop evaluations after `step`."""
        keep_lines(self.path, lambda row: int(row["step"]) <= step)

    def read(self) -> list[tuple[int, np.ndarray, np.ndarray | None]]:
        """(step, scores, audit scores or None) of each evaluation, oldest first."""
        rows = read_steps(self.path) if self.path.exists() else []
        return [(row["step"], _array(row["scores"]), _array(row["audit"]) if "audit" in row else None) for row in rows]


def _rows(scores: np.ndarray) -> list[list[float | None]]:
    return [[float(value) if math.isfinite(value) else None for value in row] for row in scores]


def _array(rows: list[list[float | None]]) -> np.ndarray:
    return np.array([[np.nan if value is None else value for value in row] for row in rows], dtype=np.float32)
