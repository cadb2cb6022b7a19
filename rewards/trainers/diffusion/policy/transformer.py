"""What pipelines of flow matching share: the scheduler's sigmas and steps, and the adapter's file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3 import calculate_shift
from torch import Tensor

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.policy.adapter import adapter_layers, adapter_metadata
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.steppers.flow import Flow

SHIFT = {"base_image_seq_len": 256, "max_image_seq_len": 4096, "base_shift": 0.5, "max_shift": 1.15}
"""How far sigmas are shifted by a picture's size, where a scheduler that does so does not say it."""


class TransformerPolicy(Policy):
    """A pipeline of flow matching with a transformer over patches of 2 x 2 latents; its scheduler stays as it is.

    Args:
        pipeline: The pipeline.
        args: The settings.
        device: Where it lives.
        keep_base: See :class:`Policy`.

    Attributes:
        equal_steps: Whether the pipeline hands its scheduler equal steps, as all but Stable Diffusion 3 do.

    Raises:
        InputError: A pipeline without flow matching, and as :class:`Policy`.
    """

    network_name = "transformer"
    equal_steps: ClassVar[bool] = True

    def __init__(self, pipeline: Any, args: DiffusionConfig, device: torch.device, keep_base: bool) -> None:
        if not isinstance(pipeline.scheduler, FlowMatchEulerDiscreteScheduler):
            raise InputError(f"{type(pipeline.scheduler).__name__}: FlowMatchEulerDiscreteScheduler is needed")
        super().__init__(pipeline, pipeline.transformer, args, device, keep_base)

    def schedule(self, num_steps: int) -> tuple[Tensor, Tensor]:
        """Timesteps (T,) and sigmas (T + 1,) of the scheduler, shifted by the picture's size where it says so."""
        scheduler: Any = copy.copy(self.pipeline.scheduler)  # set_timesteps gives it new tensors
        options: dict[str, Any] = {"num_inference_steps": num_steps}
        if self.equal_steps and not scheduler.config.get("use_flow_sigmas", False):
            options = {"sigmas": np.linspace(1.0, 1 / num_steps, num_steps)}
        if scheduler.config.use_dynamic_shifting:
            _, height, width = self.latent_shape
            bounds = [scheduler.config.get(name, usual) for name, usual in SHIFT.items()]
            options["mu"] = calculate_shift((height // 2) * (width // 2), *bounds)
        scheduler.set_timesteps(**options)
        return scheduler.timesteps, scheduler.sigmas

    def stepper(self, num_steps: int, noise: float) -> Flow:
        """Euler's steps, or Flow-SDE where `noise` (its `a`) is above 0."""
        return Flow(*self.schedule(num_steps), noise)

    def _save_adapter(self, folder: Path) -> None:
        type(self.pipeline).save_lora_weights(
            folder,
            transformer_lora_layers=adapter_layers(self.network),
            transformer_lora_adapter_metadata=adapter_metadata(self.network),
            safe_serialization=True,
        )


class PackedPolicy(TransformerPolicy):
    """A pipeline whose network takes its latents as tokens of 2 x 2 patches (:func:`pack`)."""

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one sample's latents, unpacked."""
        side = self.latent_side(self.pipeline.default_sample_size)
        return self.network.config.in_channels // 4, side, side


def pack(latents: Tensor) -> Tensor:
    """Latents (N, C, H, W) as tokens of 2 x 2 patches, (N, H / 2 * W / 2, 4 C), as FLUX and Qwen-Image take them."""
    patches = latents.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))  # (N, C, H / 2, 2, W / 2, 2)
    return patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def unpack(tokens: Tensor, height: int) -> Tensor:
    """The latents that :func:`pack` made tokens of; `height` is theirs."""
    patches = tokens.unflatten(2, (-1, 2, 2)).unflatten(1, (height // 2, -1))  # (N, H / 2, W / 2, C, 2, 2)
    return patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
