"""Held-out evaluation with fixed prompts and fixed noise, so that two evaluations differ by the policy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from rewards.runs.files import append_line, keep_lines
from rewards.runs.metrics import read_steps
from rewards.trainers.diffusion.policy import DiffusionPolicy, Sampler
from rewards.trainers.diffusion.sampling import batch_noise, sample
from rewards.trainers.diffusion.scoring import Reward, Scored, merge_info, raise_if_fatal, reward_name, score_pictures


@dataclass
class Evaluation:
    """Scores of the held-out prompts.

    Attributes:
        scores: Reward of each picture, (P, S) float32: prompts by pictures of a prompt; NaN where not judged.
        audit: The held-out judge's, (P, S); None without one.
        metrics: Flat metrics under ``eval/``.
        pictures: The first pictures of the first prompts, float32 (3, H, W) in [0, 1], on the main process.
    """

    scores: np.ndarray
    audit: np.ndarray | None
    metrics: dict[str, float]
    pictures: list[Tensor] = field(default_factory=list)


@dataclass
class EvaluationSet:
    """What is evaluated on.

    Attributes:
        prompts: P texts.
        metadata: P mappings for the reward.
        images_per_prompt: S.
        batch_size: Pictures at a time, a process.
        seed: Of the fixed noise.
        num_pictures: Pictures kept for the report.
    """

    prompts: Sequence[str]
    metadata: Sequence[Mapping[str, Any]]
    images_per_prompt: int
    batch_size: int
    seed: int
    num_pictures: int


def evaluate(
    policy: DiffusionPolicy,
    data: EvaluationSet,
    sampler: Sampler,
    reward: Reward,
    audit: Reward | None,
    accelerator: Accelerator,
) -> Evaluation:
    """Draw and score every held-out picture; each process takes its share.

    Args:
        policy: The model.
        data: Prompts and noise.
        sampler: How to draw.
        reward: Gives the scores.
        audit: A second judge, or None.
        accelerator: Knows the processes.

    Returns:
        The same scores and metrics on every process.

    Raises:
        RewardsError: The reward refused its input on some process.
    """
    total = len(data.prompts) * data.images_per_prompt
    mine = range(accelerator.process_index, total, accelerator.num_processes)
    scored: list[Scored] = []
    audited: list[Scored] = []
    pictures: dict[int, Tensor] = {}
    for start in range(0, len(mine), data.batch_size):
        indices = mine[start : start + data.batch_size]
        rows = [index // data.images_per_prompt for index in indices]
        prompts = [data.prompts[row] for row in rows]
        metadata = [data.metadata[row] for row in rows]
        noise = batch_noise(data.seed, "eval", indices, len(sampler.schedule.timesteps), policy.latent_shape)
        images = policy.decode(sample(policy, prompts, sampler, noise).latents[:, -1])
        scored.append(score_pictures(reward, images, prompts, metadata))
        if audit is not None:
            audited.append(score_pictures(audit, images, prompts, metadata))
        for index, row, image in zip(indices, rows, images):
            if row < data.num_pictures and index % data.images_per_prompt == 0:
                pictures[row] = image
    shape = (len(data.prompts), data.images_per_prompt)
    scores, metrics = _gather(mine, Scored.concatenate(scored), shape, f"eval/rewards/{reward_name(reward)}")
    audit_scores = None
    if audit is not None:
        audit_scores, extra = _gather(mine, Scored.concatenate(audited), shape, f"eval/audit/{reward_name(audit)}")
        metrics |= extra
        both = np.isfinite(scores) & np.isfinite(audit_scores)
        metrics["eval/audit/gap"] = float((scores - audit_scores)[both].mean()) if both.any() else math.nan
    kept = dict(gather_object(list(pictures.items())))
    return Evaluation(scores, audit_scores, metrics, [kept[row] for row in sorted(kept)])


def _gather(
    indices: Sequence[int], scored: Scored, shape: tuple[int, int], prefix: str
) -> tuple[np.ndarray, dict[str, float]]:
    parts = gather_object([(list(indices), scored)])
    raise_if_fatal([(part.error, part.fatal) for _, part in parts])
    scores = np.full(shape[0] * shape[1], np.nan, dtype=np.float32)
    for rows, part in parts:
        scores[rows] = part.values
    scores = scores.reshape(shape)
    branch = prefix.removeprefix("eval/").split("/")[0]
    info = merge_info([row for _, part in parts for row in part.info])
    metrics = {f"eval/{branch}/{key.removeprefix('rewards/')}": value for key, value in info.items()}
    metrics |= {f"{prefix}/{key}": value for key, value in summary(scores).items()}
    return scores, metrics


def summary(scores: np.ndarray) -> dict[str, float]:
    """Mean over prompts of each prompt's mean, its standard error clustered by prompt, and counts.

    Args:
        scores: (P, S), NaN for pictures that could not be judged.
    """
    judged = np.isfinite(scores)
    means = np.array([row[valid].mean() for row, valid in zip(scores, judged) if valid.any()], dtype=np.float64)
    return {
        "overall/mean": float(means.mean()) if len(means) else math.nan,
        "overall/standard_error": float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else math.nan,
        "overall/count": int(judged.sum()),
        "abstained": int((~judged).sum()),
    }


class EvaluationLog:
    """``evaluations.jsonl``: the scores of every held-out picture at each evaluation, for paired comparisons.

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
        """Drop evaluations after ``step``."""
        keep_lines(self.path, lambda row: int(row["step"]) <= step)

    def read(self) -> list[tuple[int, np.ndarray, np.ndarray | None]]:
        """(step, scores, audit scores or None) of each evaluation, oldest first."""
        rows = read_steps(self.path) if self.path.exists() else []
        return [(row["step"], _array(row["scores"]), _array(row["audit"]) if "audit" in row else None) for row in rows]


def _rows(scores: np.ndarray) -> list[list[float | None]]:
    return [[float(value) if math.isfinite(value) else None for value in row] for row in scores]


def _array(rows: list[list[float | None]]) -> np.ndarray:
    return np.array([[np.nan if value is None else value for value in row] for row in rows], dtype=np.float32)


def picture_grid_batch(pictures: Sequence[Tensor]) -> np.ndarray:
    """Pictures as uint8 (N, H, W, 3), the form that trackers take."""
    stacked = torch.stack([picture.nan_to_num() for picture in pictures])
    return (stacked.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
