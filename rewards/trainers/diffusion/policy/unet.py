"""Stable Diffusion 1.x, 2.x and SDXL: latent diffusion with a UNet, sampled with DDIM.

The three share everything but the conditioning; both forms of it are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import DDIMScheduler
from diffusers.loaders import StableDiffusionLoraLoaderMixin, StableDiffusionXLLoraLoaderMixin
from torch import Tensor

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.policy.adapter import adapter_layers, adapter_metadata
from rewards.trainers.diffusion.policy.base import Conditioning, Policy
from rewards.trainers.diffusion.steppers.ddim import DDIM


class UNetPolicy(Policy):
    """A Stable Diffusion or SDXL pipeline; its scheduler becomes a `DDIMScheduler` of the same configuration.

    Args:
        pipeline: The pipeline.
        args: The settings.
        device: Where it lives.
        keep_base: See :class:`Policy`.

    Raises:
        InputError: A pipeline that is not latent text-to-image diffusion, and as :class:`Policy`.
    """

    network_name = "unet"

    def __init__(self, pipeline: Any, args: DiffusionConfig, device: torch.device, keep_base: bool) -> None:
        _check_pipeline(pipeline)
        self.is_xl = getattr(pipeline, "text_encoder_2", None) is not None
        pipeline.scheduler = as_ddim(pipeline.scheduler)
        self.scheduler = pipeline.scheduler
        super().__init__(pipeline, pipeline.unet, args, device, keep_base)

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one sample's latents."""
        size = self.network.config.sample_size
        height, width = (size, size) if isinstance(size, int) else size
        return self.network.config.in_channels, self.latent_side(height), self.latent_side(width)

    def stepper(self, num_steps: int, noise: float) -> DDIM:
        """DDIM steps; `noise` is DDIM's eta."""
        return DDIM(self.scheduler, num_steps, noise)

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        """See :meth:`Policy.encode`."""
        unique = list(dict.fromkeys(prompts))
        guided = guidance_scale > 1
        keywords: dict[str, Any] = {"device": self.device, "num_images_per_prompt": 1}
        if guided and self.args.negative_prompts:  # without one SDXL takes zeros instead of encoding ""
            keywords["negative_prompt"] = [self.args.negative_prompts] * len(unique)
        encoded = self.pipeline.encode_prompt(unique, do_classifier_free_guidance=guided, **keywords)
        embeds, negative, *pooled = encoded
        conditioning = Conditioning(embeds, negative if guided else None)
        if self.is_xl:
            conditioning.pooled, conditioning.negative_pooled = pooled[0], pooled[1] if guided else None
        return conditioning.of(prompts, unique)

    def _call(self, latents: Tensor, timesteps: Tensor, embeds: Tensor, pooled: Tensor | None) -> Tensor:
        keywords: dict[str, dict[str, Tensor]] = {}
        if pooled is not None:
            ids = self._time_ids(embeds.dtype).expand(len(latents), -1)
            keywords["added_cond_kwargs"] = {"text_embeds": pooled, "time_ids": ids}
        return self.active(latents.to(embeds.dtype), timesteps, encoder_hidden_states=embeds, **keywords).sample

    def _time_ids(self, dtype: torch.dtype) -> Tensor:
        """SDXL's size conditioning: the full size, uncropped."""
        _, height, width = self.latent_shape
        size = (height * self.pipeline.vae_scale_factor, width * self.pipeline.vae_scale_factor)
        projection = self.pipeline.text_encoder_2.config.projection_dim
        ids = self.pipeline._get_add_time_ids(size, (0, 0), size, dtype=dtype, text_encoder_projection_dim=projection)
        return ids.to(self.device)

    def _save_adapter(self, folder: Path) -> None:
        mixin = StableDiffusionXLLoraLoaderMixin if self.is_xl else StableDiffusionLoraLoaderMixin
        mixin.save_lora_weights(
            folder,
            unet_lora_layers=adapter_layers(self.network),
            unet_lora_adapter_metadata=adapter_metadata(self.network),
            safe_serialization=True,
        )


def as_ddim(scheduler: Any) -> DDIMScheduler:
    """A DDIM scheduler with the configuration of any diffusers scheduler.

    Schedulers that never clip (Euler, PNDM, ...) do not record it, and DDIM's default would clip the latents: set it
    off.
    """
    if isinstance(scheduler, DDIMScheduler):
        return scheduler
    extra = {} if "clip_sample" in scheduler.config else {"clip_sample": False}
    return DDIMScheduler.from_config(scheduler.config, **extra)


def _check_pipeline(pipeline: Any) -> None:
    for part in ("unet", "vae", "scheduler", "encode_prompt"):
        if getattr(pipeline, part, None) is None:
            raise InputError(f"{type(pipeline).__name__} has no {part}; a text-to-image pipeline is needed")
    if pipeline.unet.config.in_channels != pipeline.vae.config.latent_channels:
        raise InputError("the UNet takes more than latents (an inpainting model?); a text-to-image model is needed")
