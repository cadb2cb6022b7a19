"""Pipelines as policies: encode a prompt, predict a step, decode, save what was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.policy.flux import FluxPolicy
from rewards.trainers.diffusion.policy.qwen_image import QwenImagePolicy
from rewards.trainers.diffusion.policy.sd3 import StableDiffusion3Policy
from rewards.trainers.diffusion.policy.transformer import TransformerPolicy
from rewards.trainers.diffusion.policy.unet import UNetPolicy
from rewards.trainers.diffusion.policy.z_image import ZImagePolicy

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline


FLOWS: dict[str, type[TransformerPolicy]] = {
    "StableDiffusion3Pipeline": StableDiffusion3Policy,
    "FluxPipeline": FluxPolicy,
    "QwenImagePipeline": QwenImagePolicy,
    "ZImagePipeline": ZImagePolicy,
}
"""Class of the pipeline -> its policy, of those with flow matching."""


def new_policy(pipeline: DiffusionPipeline, args: DiffusionConfig, device: torch.device, keep_base: bool) -> Policy:
    """The policy for a pipeline's architecture.

    Args:
        pipeline: A text-to-image pipeline from diffusers; it is changed in place.
        args: The settings.
        device: Where it lives.
        keep_base: Whether the base model is needed when the whole network is trained (a copy is then kept).

    Raises:
        InputError: No policy fits this pipeline.
    """
    if getattr(pipeline, "unet", None) is not None:
        return UNetPolicy(pipeline, args, device, keep_base)
    name = type(pipeline).__name__
    if name in FLOWS:
        return FLOWS[name](pipeline, args, device, keep_base)
    raise InputError(f"{name} has no unet; without one there can be trained: {', '.join(FLOWS)}")
