"""What a text trainer's run is made of, built from its settings: policy, prompts, rewards, held-out set."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, load_dataset
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoProcessor

from rewards.errors import InputError
from rewards.harmonic.reward import HarmonicEval
from rewards.judges.loading import load_judge
from rewards.trainers.language.held_out import HeldOut
from rewards.trainers.language.settings import DataSettings, EvaluationSettings, PolicySettings, RewardSettings
from rewards.trainers.language.trl_rewards import RewardFunction, abstain_together, function_name

PRESETS = {"shapes-captioner": Path(__file__).resolve().parents[2] / "shapes" / "weights" / "captioner"}
"""Policies that ship with the package."""


@dataclass
class TrainingRewards:
    """Reward functions with their weights, and HarmonicEval itself, which is what evaluations report."""

    harmonic: HarmonicEval
    functions: list[RewardFunction]
    weights: list[float]
    others: list[RewardFunction]

    def identity(self) -> dict[str, Any]:
        """What must be known to score again as this run did: HarmonicEval's identity and the weights, as JSON values.

        The weight of each function in the order of the trainer's; a criterion has one of its own only when trained on
        by itself.
        """
        weights = {function_name(function): weight for function, weight in zip(self.functions, self.weights)}
        return json.loads(json.dumps(self.harmonic.identity() | {"weights": weights}, default=str))


def import_function(path: str) -> Callable[..., Any]:
    """The function behind `package.module:function`.

    Raises:
        InputError: if there is none.

    Example:
        >>> import_function("json:dumps")([1])
        '[1]'
    """
    module, colon, name = path.partition(":")
    try:
        if not colon:
            raise ImportError("expected package.module:function")
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot import {path!r}: {error}") from error


def checkpoint_of(settings: PolicySettings) -> str:
    """Name or directory of the policy's checkpoint."""
    return str(PRESETS.get(settings.path, settings.path))


def load_policy(settings: PolicySettings) -> tuple[Any, Any, LoraConfig | None]:
    """Model, processor and adapter settings of the policy.

    Raises:
        InputError: if the checkpoint cannot be loaded.
    """
    path = checkpoint_of(settings)
    on_gpu = torch.cuda.is_available()
    dtype = getattr(torch, settings.dtype or ("bfloat16" if on_gpu else "float32"), None)
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"unknown dtype {settings.dtype!r}: expected one such as 'bfloat16' or 'float32'")
    options: dict[str, Any] = {"revision": settings.revision}
    if settings.attn_implementation is not None:
        options["attn_implementation"] = settings.attn_implementation
    try:
        processor = AutoProcessor.from_pretrained(path, revision=settings.revision, padding_side="left")
        model = AutoModelForImageTextToText.from_pretrained(path, dtype=dtype, **options)
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise InputError(f"cannot load the policy {settings.path!r}: {first_line}") from error
    if settings.lora_rank == 0:
        return model, processor, None
    lora = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha if settings.lora_alpha is not None else settings.lora_rank,
        lora_dropout=settings.lora_dropout,
        target_modules=settings.lora_target_modules,
        task_type="CAUSAL_LM",
    )
    return model, processor, lora


def load_prompts(settings: DataSettings, which: dict[str, Any]) -> Dataset:
    """Prompts with pictures, in TRL's columns.

    Args:
        settings: the source.
        which: arguments that choose the part (`settings.train` or `settings.held_out`).

    Returns:
        A dataset with a conversational `prompt` and `image` or `images`.

    Raises:
        InputError: if the source cannot be read or lacks these columns.
    """
    try:
        dataset = (
            import_function(settings.source)(**which)
            if ":" in settings.source and not Path(settings.source).exists()
            else load_dataset(settings.source, **which)
        )
    except (TypeError, ValueError, OSError) as error:
        raise InputError(f"data source {settings.source!r} with {which}: {error}") from error
    if not isinstance(dataset, Dataset):
        raise InputError(f"data source {settings.source!r} gave {type(dataset).__name__}: name a single split")
    if not len(dataset):
        raise InputError(f"data source {settings.source!r} with {which} gave no rows")
    if missing := [name for name in settings.rename if name not in dataset.column_names]:
        raise InputError(f"data source {settings.source!r} has no column {missing[0]!r}, only {dataset.column_names}")
    dataset = dataset.rename_columns(settings.rename)
    if settings.prompt is not None:
        if "prompt" in dataset.column_names:
            dataset = dataset.remove_columns("prompt")
        message = [{"role": "user", "content": settings.prompt}]
        dataset = dataset.add_column("prompt", [message] * len(dataset))
    if "prompt" not in dataset.column_names or not {"image", "images"} & set(dataset.column_names):
        raise InputError(
            f"data source {settings.source!r} has columns {dataset.column_names}: expected 'image' or 'images', and "
            "'prompt' (or set data.prompt)"
        )
    return dataset


def make_rewards(settings: RewardSettings) -> TrainingRewards:
    """The reward functions of a run; several of them abstain together.

    Raises:
        InputError: for an unknown judge, function or criterion.
    """
    harmonic = _harmonic(settings, settings.judge, settings.judge_options, "HarmonicEval")
    if settings.per_criterion:
        own: list[RewardFunction] = list(harmonic.per_criterion())
        chosen = settings.criterion_weights or {}
        if unknown := [name for name in chosen if name not in harmonic.criteria]:
            raise InputError(f"criterion_weights names {unknown[0]!r}; the criteria are {', '.join(harmonic.criteria)}")
        weights = [settings.weight * chosen.get(criterion, 1.0) for criterion in harmonic.criteria]
    else:
        if settings.criterion_weights:
            raise InputError("criterion_weights needs per_criterion: true")
        own, weights = [harmonic], [settings.weight]
    required = [other for other in settings.others if not other.optional]
    optional = [other for other in settings.others if other.optional]
    others = [import_function(other.function) for other in (*required, *optional)]
    weights += [other.weight for other in (*required, *optional)]
    functions = own
    if others:
        functions = abstain_together([*own, *others[: len(required)]], others[len(required) :])
    return TrainingRewards(harmonic, functions, weights, others)


def make_held_out(
    settings: EvaluationSettings,
    reward: RewardSettings,
    rewards: TrainingRewards,
    rows: Dataset,
    max_new_tokens: int,
    temperature: float,
) -> HeldOut:
    """The held-out set: judged by HarmonicEval as a whole, the other reward functions, and the audits."""
    audits: list[RewardFunction] = [
        import_function(audit.function)
        if audit.function is not None
        else _harmonic(reward, str(audit.judge), audit.judge_options, audit.name)
        for audit in settings.audits
    ]
    return HeldOut(
        rows=rows,
        rewards=[rewards.harmonic, *rewards.others],
        audits=audits,
        max_new_tokens=max_new_tokens,
        temperature=settings.temperature if settings.temperature is not None else temperature,
        batch_size=settings.batch_size,
        seed=settings.seed,
        num_samples=settings.num_samples,
        max_gap=settings.audit_max_gap,
    )


def _harmonic(settings: RewardSettings, judge: str, options: dict[str, Any], name: str) -> HarmonicEval:
    return HarmonicEval(
        load_judge(judge, **options),
        task=settings.task,
        criteria=settings.criteria,
        gamma=settings.gamma,
        normalize=settings.normalize,
        min_rating_mass=settings.min_rating_mass,
        prompts=settings.prompts,
        name=name,
    )
