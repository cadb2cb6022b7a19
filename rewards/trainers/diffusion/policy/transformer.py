"""Stable Diffusion 3 and 3.5: flow matching with a transformer over latents."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3 import calculate_shift
from torch import Tensor

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.policy.adapter import adapter_layers, adapter_metadata
from rewards.trainers.diffusion.policy.base import Conditioning, Policy
from rewards.trainers.diffusion.steppers.flow import Flow


class TransformerPolicy(Policy):
    """A `StableDiffusion3Pipeline`; its scheduler stays as it is.

    Args:
        pipeline: The pipeline.
        args: The settings.
        device: Where it lives.
        keep_base: See :class:`Policy`.

    Raises:
        InputError: A pipeline without flow matching, or of another architecture.
    """

    network_name = "transformer"

    def __init__(self, pipeline: Any, args: DiffusionConfig, device: torch.device, keep_base: bool) -> None:
        if type(pipeline).__name__ != "StableDiffusion3Pipeline":
            raise InputError(f"{type(pipeline).__name__}: of flow matching, StableDiffusion3Pipeline can be trained")
        if not isinstance(pipeline.scheduler, FlowMatchEulerDiscreteScheduler):
            raise InputError(f"{type(pipeline.scheduler).__name__}: FlowMatchEulerDiscreteScheduler is needed")
        super().__init__(pipeline, pipeline.transformer, args, device, keep_base)

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one sample's latents."""
        size = self.network.config.sample_size
        return self.network.config.in_channels, size, size

    def schedule(self, num_steps: int) -> tuple[Tensor, Tensor]:
        """Timesteps (T,) and sigmas (T + 1,) of the scheduler, shifted by the picture's size where it says so."""
        scheduler: Any = copy.deepcopy(self.pipeline.scheduler)
        options = {}
        if scheduler.config.use_dynamic_shifting:
            _, height, width = self.latent_shape
            patch = self.network.config.patch_size
            names = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
            bounds = [scheduler.config[name] for name in names]
            options["mu"] = calculate_shift((height // patch) * (width // patch), *bounds)
        scheduler.set_timesteps(num_steps, **options)
        return scheduler.timesteps, scheduler.sigmas

    def stepper(self, num_steps: int, noise: float) -> Flow:
        """Euler's steps, or Flow-SDE where `noise` (its `a`) is above 0."""
        return Flow(*self.schedule(num_steps), noise)

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        """See :meth:`Policy.encode`."""
        unique = list(dict.fromkeys(prompts))
        guided = guidance_scale > 1
        keywords: dict[str, Any] = {"max_sequence_length": self.args.max_sequence_length, "device": self.device}
        if guided and self.args.negative_prompts:
            keywords["negative_prompt"] = [self.args.negative_prompts] * len(unique)
        encoded = self.pipeline.encode_prompt(unique, None, None, do_classifier_free_guidance=guided, **keywords)
        rows = torch.tensor([unique.index(prompt) for prompt in prompts], device=self.device)
        return Conditioning(*encoded).rows(rows)

    def _call(self, latents: Tensor, timesteps: Tensor, embeds: Tensor, pooled: Tensor | None) -> Tensor:
        return self.active(
            hidden_states=latents.to(embeds.dtype),
            timestep=timesteps,
            encoder_hidden_states=embeds,
            pooled_projections=pooled,
        ).sample

    def _save_adapter(self, folder: Path) -> None:
        type(self.pipeline).save_lora_weights(
            folder,
            transformer_lora_layers=adapter_layers(self.network),
            transformer_lora_adapter_metadata=adapter_metadata(self.network),
            safe_serialization=True,
        )
