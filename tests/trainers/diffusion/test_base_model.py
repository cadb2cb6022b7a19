"""The identity of a base model: any weight and any setting of a part makes it another."""

import torch
from diffusers import DDIMScheduler

from rewards.trainers.diffusion.record import base_model
from tests.trainers.diffusion.tiny_diffusion import stable_diffusion


def test_another_weight_scheduler_or_decoder_is_another_model():
    pipeline = stable_diffusion()
    first = base_model(pipeline)
    assert base_model(pipeline) == first
    weight = max(pipeline.unet.parameters(), key=torch.numel)
    with torch.no_grad():
        weight.view(-1)[weight.numel() // 2] += 1  # in the middle of the largest tensor
    changed = base_model(pipeline)
    assert changed["weights"]["unet"] != first["weights"]["unet"] and changed["configs"] == first["configs"]
    pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, beta_end=0.5)
    pipeline.vae.register_to_config(scaling_factor=0.5)
    other = base_model(pipeline)["configs"]
    pipeline.text_encoder.config.hidden_act = "gelu"
    assert base_model(pipeline)["configs"]["text_encoder"] != first["configs"]["text_encoder"]
    assert base_model(pipeline)["weights"]["text_encoder"] == first["weights"]["text_encoder"]
    assert other["scheduler"] != first["configs"]["scheduler"] and other["vae"] != first["configs"]["vae"]
