"""What methods on the forward process share: drawn latents, noised again to the sampler's timesteps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.base import Batch, Method
from rewards.trainers.diffusion.policy.base import Conditioning
from rewards.trainers.diffusion.randomness import Noise


class Noised(NamedTuple):
    """P pairs of a picture and a timestep: x_0, the noise and x_t, (P, C, H, W) each, and the conditioning."""

    clean: Tensor
    noise: Tensor
    noisy: Tensor
    conditioning: Conditioning


def noise_again(method: Method[DiffusionConfig], batch: Batch, stream: str, rows: Tensor, steps: Tensor) -> Noised:
    """The pairs of this process's samples `rows` with the sampler's `steps`; their noise depends on the pair alone.

    Args:
        method: Whose policy, sampler and seed are taken.
        batch: The epoch's samples.
        stream: Names the pass over them.
        rows, steps: (P,) int64 on the CPU.
    """
    policy = method.tools.policy
    places = [batch.local[row] for row in rows.tolist()]
    noise = torch.cat(
        [
            Noise(method.args.seed, f"forward/{stream}/{step}", [place], policy.latent_shape).draw()
            for place, step in zip(places, steps.tolist(), strict=True)
        ]
    ).to(policy.device)
    rows = rows.to(policy.device)
    clean = batch.rollout.final[rows]
    noisy = method.sampler.stepper.noised(clean, noise, steps)
    return Noised(clean, noise, noisy, batch.rollout.conditioning.rows(rows))
