"""The policy of a language trainer: model, processor and adapter."""

from __future__ import annotations

import torch
from peft import LoraConfig
from transformers import PreTrainedModel, ProcessorMixin

from rewards.errors import InputError
from rewards.generation.checkpoints import check_writer, load_writer
from rewards.trainers.language.settings import PolicySettings


def check_policy(settings: PolicySettings) -> None:
    """Refuse settings that :func:`load_policy` would, without loading weights.

    Raises:
        InputError: as :func:`load_policy`.
    """
    _dtype(settings)
    check_writer(settings.path, settings.revision)


def load_policy(settings: PolicySettings) -> tuple[PreTrainedModel, ProcessorMixin, LoraConfig | None]:
    """Model, processor and adapter settings of the policy.

    Raises:
        InputError: if the checkpoint cannot be loaded.
    """
    model, processor = load_writer(
        settings.path,
        dtype=_dtype(settings),
        revision=settings.revision,
        attn_implementation=settings.attn_implementation,
    )
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


def _dtype(settings: PolicySettings) -> torch.dtype:
    dtype = getattr(torch, settings.dtype or ("bfloat16" if torch.cuda.is_available() else "float32"), None)
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"unknown dtype {settings.dtype!r}: expected one such as 'bfloat16' or 'float32'")
    return dtype
