"""TRL's config of a run: the user's `trainer:` settings, what suits this package, and what a resume may change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rewards.errors import InputError
from rewards.runs.config import check_number, load_config
from rewards.runs.files import Json
from rewards.runs.identity import as_json
from rewards.trainers.language.settings import OwnTrainerSettings

MAY_CHANGE = (
    "evaluation.every",
    "evaluation.num_samples",
    "trainer.max_steps",
    "trainer.num_train_epochs",
    "trainer.max_failure_rate",
    "trainer.max_skipped_steps",
    "trainer.max_idle_steps",
    "trainer.audit_max_gap",
    "trainer.log*",
    "trainer.save_*",
    "trainer.report_to",
    "trainer.run_name",
    "trainer.project",
    "trainer.disable_tqdm",
    "trainer.dataloader_*",
    "trainer.gradient_checkpointing*",
    "trainer.activation_checkpointing*",
    "trainer.num_completions_to_print",
)
"""What a resumed run may have otherwise: how long it goes on, what it logs and keeps, when it gives up, how it spends
memory. With more or fewer steps the learning rate goes on from where it was (`schedule.py`). The number of processes
may change where the texts of a step stay as many (`texts_per_step`)."""

_OF_THE_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
_OWN = tuple(field.name for field in dataclasses.fields(OwnTrainerSettings))


def own_settings(trainer: Mapping[str, object]) -> OwnTrainerSettings:
    """The part of the `trainer:` settings that is not TRL's.

    Raises:
        InputError: a value out of its range.
    """
    try:
        return load_config(OwnTrainerSettings, overrides={key: trainer[key] for key in _OWN if key in trainer})
    except InputError as error:
        raise InputError(f"trainer: {str(error).removeprefix('overrides: ')}") from error


def trainer_arguments(config_class: type, trainer: Mapping[str, object], checkpoints: Path, seed: int) -> Any:
    """TRL's config from the user's `trainer:` settings; everything else as suits this package.

    Args:
        config_class: `GRPOConfig` or a like.
        trainer: the user's settings; those of :class:`OwnTrainerSettings` are passed over.
        checkpoints: where checkpoints go.
        seed: of training.

    Raises:
        InputError: an argument that the class does not have, or of the wrong type, or checkpoints that could not be
            continued exactly.
    """
    chosen = {key: value for key, value in trainer.items() if key not in _OWN}
    settings = _current_names(config_class, {**_defaults(), **chosen, "output_dir": str(checkpoints), "seed": seed})
    try:
        arguments: Any = load_config(config_class, overrides=settings)
    except InputError as error:
        raise InputError(f"trainer: {str(error).removeprefix('overrides: ')}") from error
    check_number("trainer.learning_rate", arguments.learning_rate, at_least=0)
    check_number("trainer.temperature", arguments.temperature, above=0)
    check_number("trainer.num_iterations", arguments.num_iterations, above=0)
    _check_checkpoint_period(arguments)
    return arguments


def trainer_identity(trainer: Mapping[str, object], arguments: Any, own: OwnTrainerSettings) -> dict[str, Json]:
    """The settings of a trainer that its result depends on; a setting at its default is as if it was not set."""
    config_class = type(arguments)
    defaults = {field.name: field.default for field in dataclasses.fields(config_class)}
    chosen = _current_names(config_class, {**_defaults(), **{k: v for k, v in trainer.items() if k not in _OWN}})
    settings = {
        name: as_json(getattr(arguments, name)) for name in chosen if getattr(arguments, name) != defaults.get(name)
    }
    for name in _OF_THE_BATCH:
        settings.pop(name, None)
    unchanged = OwnTrainerSettings()
    settings |= {name: as_json(getattr(own, name)) for name in _OWN if getattr(own, name) != getattr(unchanged, name)}
    texts = arguments.per_device_train_batch_size * arguments.world_size
    settings["texts_per_step"] = texts * arguments.gradient_accumulation_steps
    settings["texts_per_generation"] = texts * arguments.steps_per_generation
    return settings


def _defaults() -> dict[str, object]:
    on_gpu = torch.cuda.is_available()
    return {
        "use_cpu": not on_gpu,
        "bf16": on_gpu and torch.cuda.is_bf16_supported(),
        "gradient_checkpointing": on_gpu,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "remove_unused_columns": False,  # rewards read the dataset's columns
    }


def _current_names(config_class: type, settings: Mapping[str, object]) -> dict[str, object]:
    """`gradient_checkpointing` under the name that transformers wants from 5.23 on; it warns of the other."""
    new = {"gradient_checkpointing": "activation_checkpointing"}
    new["gradient_checkpointing_kwargs"] = "activation_checkpointing_kwargs"
    known = {field.name for field in dataclasses.fields(config_class)}
    return {new[key] if new.get(key) in known else key: value for key, value in settings.items()}


def _check_checkpoint_period(arguments: Any) -> None:
    # A checkpoint between two generations cannot be continued exactly: completions that were already generated but not
    # yet trained on are not in it.
    if arguments.save_strategy != "steps":
        return
    batches = arguments.steps_per_generation * arguments.num_iterations
    if (arguments.save_steps * arguments.gradient_accumulation_steps) % batches:
        raise InputError(
            f"trainer.save_steps = {arguments.save_steps:g} falls between two generations: make save_steps x "
            f"gradient_accumulation_steps a multiple of steps_per_generation x num_iterations = {batches}"
        )
