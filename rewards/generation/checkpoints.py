"""Vision-language models that write, by name, directory or preset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, ProcessorMixin

from rewards.errors import InputError

PRESETS = {"shapes-captioner": str(Path(__file__).resolve().parents[1] / "shapes" / "weights" / "captioner")}
"""Models that ship with the package."""


def checkpoint_of(name: str) -> str:
    """Name or directory of the checkpoint that a name or preset stands for.

    Example:
        >>> checkpoint_of("org/model")
        'org/model'
    """
    return PRESETS.get(name, name)


def load_writer(
    name: str, *, dtype: torch.dtype | str, revision: str | None = None, attn_implementation: str | None = None
) -> tuple[Any, ProcessorMixin]:
    """A model and its processor.

    Args:
        name: Checkpoint name or directory, or one of :data:`PRESETS`.
        dtype: Of the weights.
        revision: Branch, tag or commit of a name on the Hub.
        attn_implementation: As in `from_pretrained`.

    Raises:
        InputError: No such checkpoint, or no vision-language model.
    """
    path = checkpoint_of(name)
    options: dict[str, str] = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
    try:
        processor: ProcessorMixin = AutoProcessor.from_pretrained(path, revision=revision, padding_side="left")
        model: Any = AutoModelForImageTextToText.from_pretrained(path, dtype=dtype, revision=revision, **options)
    except (OSError, ValueError) as error:
        raise _unloadable(name, error) from error
    return model, processor


def check_writer(name: str, revision: str | None = None) -> None:
    """Whether there is such a checkpoint, by its config alone: a name that is wrong is said before anything loads.

    Raises:
        InputError: As :func:`load_writer`.
    """
    try:
        AutoConfig.from_pretrained(checkpoint_of(name), revision=revision)
    except (OSError, ValueError) as error:
        raise _unloadable(name, error) from error


def _unloadable(name: str, error: Exception) -> InputError:
    first_line = str(error).strip().partition("\n")[0]
    return InputError(f"model {name!r} cannot be loaded: {first_line}")
