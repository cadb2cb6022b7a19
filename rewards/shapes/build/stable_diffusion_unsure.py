"""The generator, second stage: partly wrong captions make it unsure of what it knows.

Half of its captions have one or two attributes replaced, as captions from the web have. That is what makes
reinforcement visible: a generator that can draw what was asked and often does not.
"""

from __future__ import annotations

import random

import torch
from diffusers import StableDiffusionPipeline

from rewards.shapes.build.common import BuildConfig, BuildLog
from rewards.shapes.build.stable_diffusion import MEANING_SIZES, TEXT_WIDTH, cached_scenes, evaluate, train

WRONG_CAPTIONS = 0.5


def build(config: BuildConfig) -> None:
    """Continue the pipeline in ``config.out``; the text head starts anew."""
    torch.manual_seed(config.seed)
    log = BuildLog("stable_diffusion_unsure", config, continues=True)
    pipeline = StableDiffusionPipeline.from_pretrained(config.out)
    pipeline.vae.requires_grad_(False)
    pipeline.unet.to(memory_format=torch.channels_last)
    captions, latents = cached_scenes(pipeline.vae, random.Random(config.seed + 12))
    captions.wrong = WRONG_CAPTIONS
    head = torch.nn.Linear(TEXT_WIDTH, sum(MEANING_SIZES))
    train(pipeline, head, captions, latents, config, log, ema=0.985)
    log(step=config.steps, unsure=evaluate(pipeline, 256))
    pipeline.unet.to(memory_format=torch.contiguous_format)
    for part in (pipeline, pipeline.unet, pipeline.vae):
        part.register_to_config(_name_or_path="stable_diffusion")  # no path of the builder's
    pipeline.save_pretrained(config.out)
