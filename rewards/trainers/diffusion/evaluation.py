"""Held-out evaluation with fixed prompts and fixed noise, so that two evaluations differ by the policy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from tqdm.auto import tqdm

from rewards.reward import Reward
from rewards.runs.intervals import clustered_error
from rewards.scores import Scores
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.rollout import Sampler, draw
from rewards.trainers.diffusion.scoring import Judged, gather, score_pictures


@dataclass(frozen=True)
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
    metadata: Sequence[Mapping[str, object]]
    images_per_prompt: int
    batch_size: int
    seed: int
    num_pictures: int


@dataclass
class Evaluation:
    """Scores of the held-out prompts from one pass of the judge.

    Attributes:
        judged: Scores of the P * S pictures, prompt by prompt.
        audited: The held-out judge's of the same pictures; None without one.
        images_per_prompt: S.
        metrics: Flat metrics under `eval/`.
        pictures: The first picture of each of the first prompts, float32 (3, H, W) in [0, 1], on the main process.
    """

    judged: Scores
    audited: Scores | None
    images_per_prompt: int
    metrics: dict[str, float]
    pictures: list[Tensor] = field(default_factory=list)

    @property
    def scores(self) -> np.ndarray:
        """Reward of each picture, (P, S) float32; NaN where not judged."""
        return self.judged.overall.float().numpy().reshape(-1, self.images_per_prompt)

    @property
    def audit(self) -> np.ndarray | None:
        """The held-out judge's scores, (P, S); None without one."""
        return None if self.audited is None else self.audited.overall.float().numpy().reshape(self.scores.shape)


def evaluate(
    policy: Policy,
    data: EvaluationSet,
    sampler: Sampler,
    reward: Reward,
    audit: Reward | None,
    accelerator: Accelerator,
) -> Evaluation:
    """Draw and score every held-out picture; each process takes its share, and no trajectory is kept.

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
    judged: list[Judged] = []
    audited: list[Judged] = []
    pictures: dict[int, Tensor] = {}
    starts = range(0, len(mine), data.batch_size)
    silent = not accelerator.is_main_process
    for start in tqdm(starts, desc="evaluation", unit="batch", leave=False, disable=silent):
        indices = mine[start : start + data.batch_size]
        rows = [index // data.images_per_prompt for index in indices]
        prompts = [data.prompts[row] for row in rows]
        metadata = [data.metadata[row] for row in rows]
        images = draw_pictures(policy, prompts, sampler, Noise(data.seed, "eval", indices, policy.latent_shape))
        judged.append(score_pictures(reward, images, prompts, metadata))
        if audit is not None:
            audited.append(score_pictures(audit, images, prompts, metadata))
        for index, row, image in zip(indices, rows, images, strict=True):
            if row < data.num_pictures and index % data.images_per_prompt == 0:
                pictures[row] = image.cpu()
    scores = gather(Judged.concatenate(judged), mine, with_details=True).scores
    metrics = _metrics(reward, scores, "rewards", data)
    audit_scores = None
    if audit is not None:
        audit_scores = gather(Judged.concatenate(audited), mine, with_details=True).scores
        metrics |= _metrics(audit, audit_scores, "audit", data)
        gaps = (scores.overall.float() - audit_scores.overall.float()).numpy()
        metrics["eval/audit/gap"] = float(gaps[np.isfinite(gaps)].mean()) if np.isfinite(gaps).any() else math.nan
    kept = dict(gather_object(list(pictures.items())))
    return Evaluation(scores, audit_scores, data.images_per_prompt, metrics, [kept[row] for row in sorted(kept)])


def draw_pictures(policy: Policy, prompts: Sequence[str], sampler: Sampler, noise: Noise) -> Tensor:
    """Pictures (N, 3, H, W), float32 in [0, 1] on the policy's device, without anything kept of how they came about."""
    return policy.pictures(draw(policy, prompts, sampler, noise).final)


def _metrics(reward: Reward, scores: Scores, branch: str, data: EvaluationSet) -> dict[str, float]:
    metrics = {f"eval/{branch}/{key.removeprefix('rewards/')}": value for key, value in reward.metrics(scores).items()}
    by_prompt = scores.overall.float().numpy().reshape(-1, data.images_per_prompt)
    clusters = [str(extra.get("cluster", row)) for row, extra in enumerate(data.metadata)]
    return metrics | {f"eval/{branch}/{reward.__name__}/{key}": v for key, v in summary(by_prompt, clusters).items()}


def summary(scores: np.ndarray, clusters: Sequence[str]) -> dict[str, float]:
    """Mean over prompts of each prompt's mean, its standard error over clusters of prompts, and counts.

    Args:
        scores: (P, S), NaN for pictures that could not be judged.
        clusters: P names; prompts of one name are not independent.
    """
    judged = np.isfinite(scores)
    means = np.array([row[valid].mean() if valid.any() else np.nan for row, valid in zip(scores, judged)], float)
    return {
        "overall/mean": float(np.nanmean(means)) if judged.any() else math.nan,
        "overall/standard_error": clustered_error(means, clusters),
        "overall/count": int(judged.sum()),
        "abstained": int((~judged).sum()),
    }
