"""Qwen-Image: prompts of their own length, guidance that keeps the prediction's norm, a video autoencoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rewards.trainers.diffusion.policy.base import Conditioning
from rewards.trainers.diffusion.policy.transformer import PackedPolicy, pack, unpack


class QwenImagePolicy(PackedPolicy):
    """A `QwenImagePipeline`, with classifier-free guidance (the pipeline's `true_cfg_scale`)."""

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        """See :meth:`Policy.encode`."""
        unique = list(dict.fromkeys(prompts))
        embeds, mask = self._texts(unique)
        conditioning = Conditioning(embeds, mask=mask)
        if guidance_scale > 1:
            negative = [self.args.negative_prompts or " "] * len(unique)
            conditioning.negative_embeds, conditioning.negative_mask = self._texts(negative)
        return conditioning.of(prompts, unique)

    def _texts(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        length = self.args.max_sequence_length
        embeds, mask = self.pipeline.encode_prompt(texts, device=self.device, max_sequence_length=length)
        return embeds, embeds.new_ones(embeds.shape[:2], dtype=torch.long) if mask is None else mask

    def predict(self, latents: Tensor, timesteps: Tensor, conditioning: Conditioning, guidance_scale: float) -> Tensor:
        """See :meth:`Policy.predict`; a guided prediction has the norm of the one with the prompt."""
        assert conditioning.mask is not None
        tokens, height = pack(latents), latents.shape[2]
        shape = (1, height // 2, latents.shape[3] // 2)
        timesteps = timesteps.to(self.device)

        def velocity(embeds: Tensor, mask: Tensor) -> Tensor:
            longest = int(mask.sum(1).max())
            embeds, mask = embeds[:, :longest], mask[:, :longest]
            predicted: Tensor = self.active(
                hidden_states=tokens.to(embeds.dtype),
                timestep=timesteps.to(embeds.dtype) / 1000,
                encoder_hidden_states=embeds,
                encoder_hidden_states_mask=None if bool(mask.all()) else mask,
                img_shapes=[[shape]] * len(tokens),
            ).sample
            return predicted

        with self._autocast():
            found = velocity(conditioning.embeds, conditioning.mask)
            if conditioning.negative_embeds is not None and conditioning.negative_mask is not None:
                without = velocity(conditioning.negative_embeds, conditioning.negative_mask)
                guided = without + guidance_scale * (found - without)
                found = guided * (found.norm(dim=-1, keepdim=True) / guided.norm(dim=-1, keepdim=True))
        return unpack(found, height)

    def decode(self, latents: Tensor) -> Tensor:
        """See :meth:`Policy.decode`; a picture is a video of one frame."""
        vae = self.pipeline.vae
        mean, std = (
            torch.tensor(values, device=latents.device).view(1, -1, 1, 1, 1)
            for values in (vae.config.latents_mean, vae.config.latents_std)
        )
        frames = latents.float().unsqueeze(2) / (1.0 / std) + mean
        return (vae.decode(frames).sample[:, :, 0] / 2 + 0.5).clamp(0, 1)
