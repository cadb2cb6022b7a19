"""The autoencoder of the shapes generator: 32 x 32 x 3 to 8 x 8 x 8, latents whitened."""

from __future__ import annotations

import math
import random

import torch
from diffusers import AutoencoderKL

from rewards.shapes.build.common import BuildConfig, BuildLog, steps_with_rate, to_tensor, update
from rewards.shapes.render import render_array
from rewards.shapes.scenes import IMAGE_SIZE, sample_scene

LATENT_CHANNELS = 8


def new_vae() -> AutoencoderKL:
    """An untrained autoencoder of the shipped shape, 0.66 M parameters."""
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(16, 32, 64),
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=8,
        sample_size=IMAGE_SIZE,
        mid_block_add_attention=False,
        scaling_factor=1.0,
    )
    # Start with a narrow posterior: the usual start drowns the latents in noise.
    vae.quant_conv.bias.data[LATENT_CHANNELS:] = -6
    vae.quant_conv.weight.data[LATENT_CHANNELS:] *= 0.1
    return vae


def build(config: BuildConfig) -> None:
    """Train on fresh scenes with foreground-weighted squared and absolute error and a small KL term."""
    torch.manual_seed(config.seed)
    rng = random.Random(config.seed)
    log = BuildLog("vae", config)
    vae = new_vae().to(memory_format=torch.channels_last)
    parameters = list(vae.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4)
    held_out = random.Random(10**6)
    fixed = to_tensor(render_array([sample_scene(held_out) for _ in range(256)]))
    for step in steps_with_rate(optimizer, config, flat=0.0, warmup=50):
        x = to_tensor(render_array([sample_scene(rng) for _ in range(config.batch_size)]))
        x = x.contiguous(memory_format=torch.channels_last)
        posterior = vae.encode(x).latent_dist
        y = vae.decode(posterior.mean + posterior.std * torch.randn_like(posterior.mean)).sample
        weight = 1 + 3 * ((x - x[:, :, :1, :1]).abs().amax(1, keepdim=True) > 0.1).float()
        kl = 0.5 * (posterior.mean**2 + posterior.var - 1 - posterior.logvar).mean()
        loss = (weight * (y - x).pow(2)).mean() + 0.5 * (weight * (y - x).abs()).mean() + 1e-5 * kl
        update(loss, optimizer, parameters)
        if step % 250 == 249 or step == config.steps - 1:
            log(step=step + 1, loss=loss.item(), kl=kl.item(), psnr=_psnr(vae, fixed))
    _whiten(vae, to_tensor(render_array([sample_scene(rng) for _ in range(512)])))
    log(step=config.steps, whitened_psnr=_psnr(vae, fixed))
    vae.to(memory_format=torch.contiguous_format).save_pretrained(config.out)


@torch.no_grad()
def _psnr(vae: AutoencoderKL, x: torch.Tensor) -> float:
    y = torch.cat([vae.decode(vae.encode(part).latent_dist.mean).sample for part in x.split(64)])
    return 10 * math.log10(4 / (y - x).pow(2).mean().item())


@torch.no_grad()
def _whiten(vae: AutoencoderKL, x: torch.Tensor) -> None:
    """Fold the latents' mean and scale into the two 1 x 1 convolutions, so that each channel has mean 0 and
    deviation 1.
    """
    latents = torch.cat([vae.encode(part).latent_dist.mean for part in x.split(64)])
    flat = latents.permute(0, 2, 3, 1).reshape(-1, LATENT_CHANNELS)
    mean, deviation = flat.mean(0), flat.std(0)
    into, out = vae.quant_conv, vae.post_quant_conv
    into.weight[:LATENT_CHANNELS] /= deviation[:, None, None, None]
    into.bias[:LATENT_CHANNELS] = (into.bias[:LATENT_CHANNELS] - mean) / deviation
    into.bias[LATENT_CHANNELS:] -= 2 * deviation.log()
    out.bias += out.weight[:, :, 0, 0] @ mean
    out.weight *= deviation[None, :, None, None]
