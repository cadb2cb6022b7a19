"""Z-Image: prompts of their own length, and a network that is told how much of the way is done."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rewards.trainers.diffusion.policy.base import Conditioning
from rewards.trainers.diffusion.policy.transformer import TransformerPolicy


class ZImagePolicy(TransformerPolicy):
    """A `ZImagePipeline`. The pipeline's `guidance_scale` counts from 0; a guidance scale of g here is its g - 1."""

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one sample's latents."""
        side = self.latent_side(1024 // self.pipeline.vae_scale_factor)
        return self.network.in_channels, side, side

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        """See :meth:`Policy.encode`."""
        unique = list(dict.fromkeys(prompts))
        embeds, negative = self.pipeline.encode_prompt(
            list(unique),
            device=self.device,
            do_classifier_free_guidance=guidance_scale > 1,
            negative_prompt=[self.args.negative_prompts] * len(unique),
            max_sequence_length=self.args.max_sequence_length,
        )
        texts, mask = _padded(embeds)
        conditioning = Conditioning(texts, mask=mask)
        if negative:
            conditioning.negative_embeds, conditioning.negative_mask = _padded(negative)
        return conditioning.of(prompts, unique)

    def predict(self, latents: Tensor, timesteps: Tensor, conditioning: Conditioning, guidance_scale: float) -> Tensor:
        """See :meth:`Policy.predict`."""
        texts = _texts(conditioning.embeds, conditioning.mask)
        done = (1000 - timesteps.to(self.device)) / 1000
        guided = conditioning.negative_embeds is not None
        if guided:
            texts += _texts(conditioning.negative_embeds, conditioning.negative_mask)
            latents, done = latents.repeat(2, 1, 1, 1), done.repeat(2)
        with self._autocast():
            shown = list(latents.to(texts[0].dtype).unsqueeze(2).unbind())
            velocities = torch.stack([one.float() for one in self.active(shown, done, texts).sample]).squeeze(2)
        if guided:
            with_prompt, without = velocities.chunk(2)
            velocities = with_prompt + (guidance_scale - 1) * (with_prompt - without)
        return -velocities


def _padded(texts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Texts (L_i, D) as one tensor (N, L, D), and where they are, (N, L) bool."""
    mask = pad_sequence([torch.ones(len(text), dtype=torch.bool, device=text.device) for text in texts], True)
    return pad_sequence(list(texts), True), mask


def _texts(embeds: Tensor | None, mask: Tensor | None) -> list[Tensor]:
    assert embeds is not None and mask is not None
    return [text[valid] for text, valid in zip(embeds, mask, strict=True)]
