"""Pipelines as policies: encode a prompt, predict a step, decode, save what was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.policy.transformer import TransformerPolicy
from rewards.trainers.diffusion.policy.unet import UNetPolicy

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline


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
    if getattr(pipeline, "transformer", None) is not None:
        return TransformerPolicy(pipeline, args, device, keep_base)
    raise InputError(
        f"{type(pipeline).__name__} has no unet and no transformer; Stable Diffusion 1.x, 2.x, XL or 3 is needed"
    )
