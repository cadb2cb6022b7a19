"""Stable Diffusion 3 and 3.5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rewards.trainers.diffusion.policy.base import Conditioning
from rewards.trainers.diffusion.policy.transformer import TransformerPolicy


class StableDiffusion3Policy(TransformerPolicy):
    """A `StableDiffusion3Pipeline`, with classifier-free guidance."""

    equal_steps = False

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one sample's latents."""
        side = self.latent_side(self.network.config.sample_size)
        return self.network.config.in_channels, side, side

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        """See :meth:`Policy.encode`."""
        unique = list(dict.fromkeys(prompts))
        guided = guidance_scale > 1
        keywords: dict[str, Any] = {"max_sequence_length": self.args.max_sequence_length, "device": self.device}
        if guided and self.args.negative_prompts:
            keywords["negative_prompt"] = [self.args.negative_prompts] * len(unique)
        encoded = self.pipeline.encode_prompt(unique, None, None, do_classifier_free_guidance=guided, **keywords)
        return Conditioning(*encoded).of(prompts, unique)

    def _call(self, latents: Tensor, timesteps: Tensor, embeds: Tensor, pooled: Tensor | None) -> Tensor:
        return self.active(
            hidden_states=latents.to(embeds.dtype),
            timestep=timesteps,
            encoder_hidden_states=embeds,
            pooled_projections=pooled,
        ).sample
