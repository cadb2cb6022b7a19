"""Pictures from a diffusers pipeline, the noise of each from a generator of its own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from diffusers import DiffusionPipeline
from PIL import Image

from rewards.errors import InputError
from rewards.judges.local import resolve_device, resolve_dtype
from rewards.rerank.generate_settings import GenerateSettings, Sampler


def picture_sampler(settings: GenerateSettings, path: str) -> Sampler:
    """A function from rows with `prompt` and seeds to PIL pictures.

    Raises:
        InputError: no pipeline can be loaded from there.
    """
    device = resolve_device(settings.device)
    dtype = resolve_dtype(settings.dtype, device)
    options = {} if isinstance(dtype, str) else {"dtype": dtype}
    try:
        pipeline: Any = DiffusionPipeline.from_pretrained(path, revision=settings.revision, **options)
    except (OSError, ValueError) as error:
        raise InputError(f"model {settings.model!r} cannot be loaded: {str(error).splitlines()[0]}") from error
    pipeline.set_progress_bar_config(disable=True)
    pipeline = pipeline.to(device)
    extra = {"eta": settings.eta} if "eta" in inspect.signature(pipeline.__call__).parameters else {}

    def sample(rows: Sequence[Mapping[str, object]], seeds: Sequence[int]) -> list[Image.Image]:
        # On the CPU, so that a seed gives the same noise on every device.
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        made = pipeline(
            [row["prompt"] for row in rows],
            num_inference_steps=settings.num_inference_steps,
            guidance_scale=settings.guidance_scale,
            generator=generators,
            output_type="pil",
            **extra,
        )
        return list(made.images)

    return sample
