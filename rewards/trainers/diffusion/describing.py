"""What a run tells about itself: samples with the judge's answers, pictures for trackers, the model card."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import yaml
from accelerate.tracking import GeneralTracker
from PIL import Image
from torch import Tensor

from rewards._version import __version__
from rewards.reward import Reward
from rewards.runs.card import base_model, commands
from rewards.runs.evaluations import Evaluation as Record
from rewards.runs.evaluations import HeldOutSample, Judgment
from rewards.runs.files import Json, write_whole
from rewards.runs.folder import RunFolder
from rewards.runs.samples import Phase, SampleLog
from rewards.scores import Scores
from rewards.trainers.diffusion.evaluation import Evaluation, EvaluationSet
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.stages import Stages


def write_samples(log: SampleLog, step: int, phase: Phase, data: EvaluationSet, evaluation: Evaluation) -> None:
    """Keep an evaluation's first pictures with their scores and what the judge told of them in the same pass.

    Args:
        log: Where.
        step: Finished epochs.
        phase: Before, during or after training.
        data: The held-out prompts.
        evaluation: Pictures and scores.
    """
    rows = [number * data.images_per_prompt for number in range(len(evaluation.pictures))]
    _write(log, step, phase, data.prompts, evaluation.pictures, evaluation.judged.take(rows))


def write_drawn(log: SampleLog, epoch: int, prompts: Sequence[str], pictures: Sequence[Tensor], judged: Scores) -> None:
    """Keep pictures of an epoch of training, for a run that has no held-out prompts.

    Args:
        log: Where; their step is `epoch` + 1, that of the epoch's metrics.
        epoch: From 0, whose pictures are those of the model before training.
        prompts, pictures, judged: N of each.
    """
    _write(log, epoch + 1, "during" if epoch else "before", prompts, pictures, judged)


def _write(
    log: SampleLog, step: int, phase: Phase, prompts: Sequence[str], pictures: Sequence[Tensor], judged: Scores
) -> None:
    if not pictures:
        return
    for prompt, array, record in zip(prompts, picture_grid_batch(pictures), judged.records()):
        told = {name: value for name, value in record.items() if name not in ("overall", "parts", "abstained")}
        log.append(
            step,
            phase,
            prompt,
            image=Image.fromarray(array),
            score=record["overall"],  # type: ignore[arg-type]
            parts=record["parts"],  # type: ignore[arg-type]
            details=_rows(told),
        )


def _rows(told: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Details as the rows of a small table: the answers where there are some, one row of values otherwise."""
    answers = told.get("answers")
    if isinstance(answers, list):
        return [answer for answer in answers if isinstance(answer, Mapping)]
    return [told] if told else []


def evaluation_record(
    step: int, data: EvaluationSet, evaluation: Evaluation, reward: Reward, audit: Reward | None
) -> Record:
    """An evaluation in the form that every trainer keeps (:mod:`rewards.runs.evaluations`).

    A prompt's metadata may hold its `id`, and a `cluster` for prompts that are not independent.
    """
    judged = [Judgment.from_record(record) for record in evaluation.judged.records()]
    audited = [] if evaluation.audited is None else evaluation.audited.records()
    samples = []
    for place, judgment in enumerate(judged):
        row, number = divmod(place, data.images_per_prompt)
        extra = data.metadata[row]
        samples.append(
            HeldOutSample(
                index=row,
                prompt=data.prompts[row],
                judgment=judgment,
                audits={audit.__name__: Judgment.from_record(audited[place])} if audit is not None else {},
                sample=number,
                id=str(extra.get("id", "")),
                cluster=str(extra.get("cluster", "")),
            )
        )
    return Record(step, reward.__name__, samples)


def track_pictures(trackers: Sequence[GeneralTracker], step: int, shown: Sequence[Tensor], name: str) -> None:
    """Send pictures to the trackers that show some (TensorBoard, W&B, trackio).

    Args:
        trackers: Accelerate's.
        step: Finished epochs.
        shown: The pictures, float32 (3, H, W) in [0, 1] each; nothing is sent where there are none.
        name: What they are called there.
    """
    if not shown:
        return
    pictures = picture_grid_batch(shown)
    for tracker in trackers:
        if tracker.name == "trackio":  # takes single pictures, and accelerate hands it none
            import trackio

            tracker.log({name: trackio.Image(_sheet(pictures))}, step=step)
        elif hasattr(tracker, "log_images"):
            extra = {"dataformats": "NHWC"} if tracker.name == "tensorboard" else {}
            tracker.log_images({name: pictures}, step=step, **extra)


def _sheet(pictures: np.ndarray) -> np.ndarray:
    """(N, H, W, 3) pictures side by side on one, about square, with black where the last row is short."""
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    cells = np.zeros((rows * columns, *pictures.shape[1:]), dtype=pictures.dtype)
    cells[: len(pictures)] = pictures
    _, height, width, channels = cells.shape
    cells = cells.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    return cells.reshape(rows * height, columns * width, channels)


@dataclass(frozen=True)
class CardFacts:
    """What a model card tells beside the settings.

    Attributes:
        step: Finished epochs.
        failure_rate: Share of all sampled pictures that could not be judged; NaN where none was sampled.
        processes: How many trained.
        identity: What the result depends on.
    """

    step: int
    failure_rate: float
    processes: int
    identity: Mapping[str, Json]


def write_model_card(folder: RunFolder, stages: Stages, policy: Policy, facts: CardFacts) -> None:
    """Write a run's `README.md`, a model card in the Hub's form.

    Args:
        folder: Of the run.
        stages: Methods and their settings.
        policy: Names the base model.
        facts: What happened.
    """
    args = stages.run_args
    names = [method.name for method in stages]
    path = getattr(policy.pipeline.config, "_name_or_path", None) or type(policy.pipeline).__name__
    base, setup, expression = base_model(str(path))
    header = {
        "library_name": "diffusers",
        "pipeline_tag": "text-to-image",
        "tags": ["text-to-image", "diffusers", *names, "reinforcement-learning", *(["lora"] if args.use_lora else [])],
        "base_model": base,
    }
    code = "\n".join(_loading(folder.adapter.name, policy, setup, expression))
    record = {name: facts.identity[name] for name in ("reward", "audit", "prompts")}
    lines = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n",
        f"# {args.run_name or folder.path.name}\n",
        f"Fine-tuned with {', then '.join(names)} for {facts.step} epochs by rewards {__version__}.\n",
        f"## Use\n\n```python\n{code}\n```\n",
        f"Sample as it was trained: {args.sample_num_steps} steps, guidance {args.sample_guidance_scale}"
        + (f", {args.resolution} x {args.resolution} pixels" if args.resolution else "")
        + ".\n",
        f"## Reward\n\n```yaml\n{_yaml(record)}```\n",
        f"Pictures that could not be judged, and took no part in the training: {_share(facts.failure_rate)}.\n",
        commands(args.output_dir, facts.processes),
        "## Training\n\nAll settings are in `config.yaml`. A reward model is not a person: look at pictures, and at a "
        "judge that did not train, before trusting a gain.\n",
    ]
    write_whole(folder.card, "\n".join(lines))


def _loading(weights: str, policy: Policy, setup: Sequence[str], expression: str) -> list[str]:
    """Lines of code that load the trained model in plain diffusers."""
    if policy.args.use_lora:
        lines = ["from diffusers import DiffusionPipeline", *setup]
        lines += [f"pipeline = DiffusionPipeline.from_pretrained({expression})"]
        return [*lines, f'pipeline.load_lora_weights("{weights}")']
    name, kind = policy.network_name, type(policy.network).__name__
    lines = [f"from diffusers import DiffusionPipeline, {kind}", *setup]
    lines += [f'{name} = {kind}.from_pretrained("{weights}", subfolder="{name}")']
    return [*lines, f"pipeline = DiffusionPipeline.from_pretrained({expression}, {name}={name})"]


def _yaml(value: object) -> str:
    return yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False, allow_unicode=True)


def _share(rate: float) -> str:
    return "unknown" if math.isnan(rate) else f"{rate:.2%}"


def picture_grid_batch(pictures: Sequence[Tensor]) -> np.ndarray:
    """Pictures as uint8 (N, H, W, 3), the form that trackers take."""
    stacked = torch.stack([picture.nan_to_num() for picture in pictures])
    return (stacked.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
