"""The LoRA adapter of a denoising network: added once, saved and loaded under diffusers' names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers.loaders.lora_pipeline import LORA_WEIGHT_NAME_SAFE
from peft import LoraConfig, set_peft_model_state_dict
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor, nn

from rewards.errors import InputError
from rewards.runs.files import Json
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.randomness import derived_seed

ADAPTER = "default"


def add_adapter(network: Any, args: DiffusionConfig) -> None:
    """Give a network its adapter, initialised from the run's seed alone.

    Raises:
        InputError: It already has one, or the targets name no layer.
    """
    if getattr(network, "peft_config", None):
        raise InputError("the pipeline already carries a LoRA: fuse it first (fuse_lora(), then unload_lora_weights())")
    config = LoraConfig(
        r=args.lora_rank,
        lora_alpha=args.lora_rank if args.lora_alpha is None else args.lora_alpha,  # type: ignore[arg-type]
        init_lora_weights="gaussian",
        target_modules=list(args.lora_target_modules),
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(args.seed, "adapter"))
            network.add_adapter(config, adapter_name=ADAPTER)
    except ValueError as error:
        raise InputError(f"lora_target_modules {args.lora_target_modules}: {error}") from error


def adapter_layers(network: Any) -> dict[str, nn.Module | Tensor]:
    """The adapter's weights by name, for diffusers' `save_lora_weights`.

    Not through `convert_state_dict_to_diffusers()`: it renames the attention layers only, and a file with both kinds of
    names loads without them.
    """
    return get_peft_model_state_dict(network, adapter_name=ADAPTER)


def adapter_metadata(network: Any) -> dict[str, Json]:
    """The adapter's configuration (rank, alpha, targets), for diffusers' `save_lora_weights`."""
    return network.peft_config[ADAPTER].to_dict()


def load_adapter(network: Any, folder: Path, prefix: str) -> None:
    """Take over an adapter that diffusers saved, bit by bit.

    Args:
        network: With an adapter of the same settings.
        folder: Where it was saved.
        prefix: What the file puts before the network's names.

    Raises:
        InputError: The file does not fit this network.
    """
    state = {name.removeprefix(prefix): value for name, value in load_file(folder / LORA_WEIGHT_NAME_SAFE).items()}
    result: Any = set_peft_model_state_dict(network, state, adapter_name=ADAPTER)
    if result.unexpected_keys:
        raise InputError(f"{folder}: the adapter does not fit: unexpected {result.unexpected_keys[0]!r}")
