"""FLUX.1: guidance is an input of the network, and latents are packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.policy.base import Conditioning
from rewards.trainers.diffusion.policy.transformer import PackedPolicy, pack, unpack


class FluxPolicy(PackedPolicy):
    """A `FluxPipeline`. The guidance scale is told to the network, which was distilled to follow it: one call a step,
    and no negative prompt. (It is not classifier-free guidance; FLUX.1-schnell has neither.)

    Args:
        pipeline, args, device, keep_base: As for :class:`PackedPolicy`.

    Raises:
        InputError: A guidance scale for a network without one, and as :class:`PackedPolicy`.
    """

    rows_guided: ClassVar[int] = 1

    def __init__(self, pipeline: Any, args: DiffusionConfig, device: torch.device, keep_base: bool) -> None:
        asked = max(args.sample_guidance_scale, args.eval_guidance_scale or 1)
        if asked > 1 and not pipeline.transformer.config.guidance_embeds:
            raise InputError(f"this FLUX has no guidance (schnell): guidance scales must be 1, got {asked:g}")
        super().__init__(pipeline, args, device, keep_base)

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        """See :meth:`Policy.encode`; there is no negative prompt."""
        unique = list(dict.fromkeys(prompts))
        length = self.args.max_sequence_length
        embeds, pooled, _ = self.pipeline.encode_prompt(unique, max_sequence_length=length, device=self.device)
        return Conditioning(embeds, pooled=pooled).of(prompts, unique)

    def predict(self, latents: Tensor, timesteps: Tensor, conditioning: Conditioning, guidance_scale: float) -> Tensor:
        """See :meth:`Policy.predict`; the guidance scale is told to the network."""
        embeds, (height, width) = conditioning.embeds, latents.shape[2:]
        ids = self.pipeline._prepare_latent_image_ids(len(latents), height // 2, width // 2, self.device, embeds.dtype)
        guidance = None
        if self.network.config.guidance_embeds:
            guidance = torch.full((len(latents),), guidance_scale, device=self.device, dtype=torch.float32)
        with self._autocast():
            tokens = self.active(
                hidden_states=pack(latents).to(embeds.dtype),
                timestep=timesteps.to(self.device, embeds.dtype) / 1000,
                guidance=guidance,
                pooled_projections=conditioning.pooled,
                encoder_hidden_states=embeds,
                txt_ids=torch.zeros(embeds.shape[1], 3, device=self.device, dtype=embeds.dtype),
                img_ids=ids,
            ).sample
        return unpack(tokens, height)
