"""What a DDPO run tells about itself: samples with the judge's answers, the reward's identity, the model card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from rewards._version import __version__
from rewards.runs.card import base_model, commands
from rewards.runs.config import save_config
from rewards.runs.samples import Phase, SampleLog
from rewards.tifa.reward import TIFA, AnswerRow
from rewards.trainers.diffusion.config import DDPOConfig
from rewards.trainers.diffusion.evaluation import Evaluation, picture_grid_batch
from rewards.trainers.diffusion.policy import DiffusionPolicy
from rewards.trainers.diffusion.scoring import Reward, reward_name


def write_samples(
    log: SampleLog, step: int, phase: Phase, prompts: Sequence[str], evaluation: Evaluation, reward: Reward
) -> None:
    """Keep an evaluation's pictures with their scores and, for TIFA, every question and answer.

    Args:
        log: Where.
        step: Finished epochs.
        phase: Before, during or after training.
        prompts: One a picture.
        evaluation: Pictures and scores.
        reward: What scored them.
    """
    if not evaluation.pictures:
        return
    answers = _answers(reward, evaluation, prompts)
    for row, (prompt, array) in enumerate(zip(prompts, picture_grid_batch(evaluation.pictures))):
        parts: dict[str, list[float]] = {}
        for answer in answers[row]:
            parts.setdefault(answer.question.element_type or "other", []).append(answer.score)
        log.append(
            step,
            phase,
            prompt,
            image=Image.fromarray(array),
            score=float(evaluation.scores[row, 0]),
            parts={name: sum(values) / len(values) for name, values in parts.items()},
            details=[_detail(answer) for answer in answers[row]],
        )


def track_pictures(trackers: Sequence[Any], step: int, evaluation: Evaluation) -> None:
    """Send an evaluation's pictures to the trackers that show pictures (TensorBoard, W&B, trackio).

    Args:
        trackers: Accelerate's.
        step: Finished epochs.
        evaluation: With pictures, or nothing is sent.
    """
    if not evaluation.pictures:
        return
    pictures = picture_grid_batch(evaluation.pictures)
    for tracker in trackers:
        if tracker.name == "trackio":  # takes single pictures, and accelerate hands it none
            import trackio

            tracker.log({"eval/pictures": trackio.Image(_sheet(pictures))}, step=step)
        elif hasattr(tracker, "log_images"):
            extra = {"dataformats": "NHWC"} if tracker.name == "tensorboard" else {}
            tracker.log_images({"eval/pictures": pictures}, step=step, **extra)


def _sheet(pictures: np.ndarray) -> np.ndarray:
    """(N, H, W, 3) pictures side by side on one, about square, with black where the last row is short."""
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    cells = np.zeros((rows * columns, *pictures.shape[1:]), dtype=pictures.dtype)
    cells[: len(pictures)] = pictures
    _, height, width, channels = cells.shape
    cells = cells.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    return cells.reshape(rows * height, columns * width, channels)


def _answers(reward: Reward, evaluation: Evaluation, prompts: Sequence[str]) -> list[list[AnswerRow]]:
    by_picture: list[list[AnswerRow]] = [[] for _ in prompts]
    tifa = next((part for part in getattr(reward, "rewards", [reward]) if isinstance(part, TIFA)), None)
    if tifa is not None:
        for answer in tifa.score(list(evaluation.pictures), list(prompts)).answers:
            by_picture[answer.image].append(answer)
    return by_picture


def _detail(row: AnswerRow) -> dict[str, Any]:
    return {
        "question": row.question.text,
        "type": row.question.element_type,
        "answer": row.choice if row.choice is not None else row.free_form,
        "expected": row.question.answer,
        "right": row.right,
    }


def reward_record(reward: Reward, audit: Reward | None, prompts: Sequence[str]) -> dict[str, Any]:
    """What must be known to score again as this run did: judges, revisions, weights, the questions' fingerprint.

    Returns:
        Plain JSON values: ``reward`` and ``audit`` (name and identity) and ``questions`` (fingerprint, or None).
    """
    parts = getattr(reward, "rewards", [reward])
    store = next((part.questions for part in parts if isinstance(part, TIFA)), None)
    return {
        "reward": _describe(reward),
        "audit": _describe(audit) if audit is not None else None,
        "questions": store.fingerprint(list(dict.fromkeys(prompts))) if store is not None else None,
    }


def _describe(reward: Reward) -> dict[str, Any]:
    identity = reward.identity() if hasattr(reward, "identity") else None
    return {"name": reward_name(reward), "identity": identity}


def write_model_card(
    folder: Path,
    args: DDPOConfig,
    policy: DiffusionPolicy,
    record: dict[str, Any],
    step: int,
    failure_rate: float,
    processes: int = 1,
) -> None:
    """Write ``README.md`` (a model card in the Hub's form) and ``ddpo_config.yaml`` beside the weights.

    Args:
        folder: Where the weights are.
        args: The settings.
        policy: Names the base model.
        record: From :func:`reward_record`.
        step: Finished epochs.
        failure_rate: Share of all sampled pictures that could not be judged.
        processes: How many trained.
    """
    path = getattr(policy.pipeline.config, "_name_or_path", None) or type(policy.pipeline).__name__
    base, setup, expression = base_model(str(path))
    header = {
        "library_name": "diffusers",
        "pipeline_tag": "text-to-image",
        "tags": ["text-to-image", "diffusers", "ddpo", "reinforcement-learning", *(["lora"] if args.use_lora else [])],
        "base_model": base,
    }
    if args.use_lora:
        load = ["from diffusers import DiffusionPipeline", *setup]
        load += [f"pipeline = DiffusionPipeline.from_pretrained({expression})"]
        load += [f'pipeline.load_lora_weights("{folder.name}")']
    else:
        load = ["from diffusers import DiffusionPipeline, UNet2DConditionModel", *setup]
        load += [f'unet = UNet2DConditionModel.from_pretrained("{folder.name}", subfolder="unet")']
        load += [f"pipeline = DiffusionPipeline.from_pretrained({expression}, unet=unet)"]
    code = "\n".join(load)
    share = "unknown" if math.isnan(failure_rate) else f"{failure_rate:.2%}"
    lines = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n",
        f"# {args.run_name or Path(args.logdir).name}\n",
        f"Fine-tuned with DDPO (Black et al. 2023) for {step} epochs by rewards {__version__}.\n",
        f"## Use\n\n```python\n{code}\n```\n",
        "Sample as it was trained: DDIM, "
        f"{args.sample_num_steps} steps, eta {args.sample_eta}, guidance {args.sample_guidance_scale}.\n",
        f"## Reward\n\n```yaml\n{yaml.safe_dump(record, sort_keys=False, allow_unicode=True)}```\n",
        f"Pictures that could not be judged, and took no part in the training: {share}.\n",
        commands(args.logdir, processes),
        "## Training\n\nAll settings are in `ddpo_config.yaml`. A reward model is not a person: look at pictures, "
        "and at a judge that did not train, before trusting a gain.\n",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")
    save_config(args, folder / "ddpo_config.yaml")
