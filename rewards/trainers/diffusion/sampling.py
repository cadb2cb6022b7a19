"""Drawing pictures with the policy, keeping the trajectories that the update needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rewards.trainers.diffusion.ddpo_math import log_probability
from rewards.trainers.diffusion.policy import Conditioning, DiffusionPolicy, Sampler, noise_for


@dataclass
class Trajectories:
    """N denoising trajectories of T steps.

    Attributes:
        latents: x_T ... x_0, (N, T + 1, C, H, W) float32 on the policy's device.
        log_probabilities: Of each step under the policy that took it, (N, T) float32; 0 for deterministic steps.
        conditioning: N rows.
    """

    latents: Tensor
    log_probabilities: Tensor
    conditioning: Conditioning

    @staticmethod
    def concatenate(parts: Sequence[Trajectories]) -> Trajectories:
        """The trajectories of several batches."""
        return Trajectories(
            torch.cat([part.latents for part in parts]),
            torch.cat([part.log_probabilities for part in parts]),
            Conditioning.concatenate([part.conditioning for part in parts]),
        )


@torch.no_grad()
def sample(policy: DiffusionPolicy, prompts: Sequence[str], sampler: Sampler, noise: Tensor) -> Trajectories:
    """Denoise a batch and keep every step.

    Args:
        policy: The model.
        prompts: N texts.
        sampler: Schedule of T steps and guidance.
        noise: (N, T + 1, C, H, W) standard normal: x_T, then the noise of each step.

    Returns:
        The trajectories.
    """
    noise = noise.to(policy.device)
    conditioning = policy.encode(prompts, sampler.guidance_scale)
    latents = [noise[:, 0] * policy.scheduler.init_noise_sigma]
    log_probabilities = []
    for index in range(len(sampler.schedule.timesteps)):
        steps = torch.full((len(prompts),), index)
        step = policy.step(latents[-1], steps, conditioning, sampler)
        following = step.mean + step.std * noise[:, index + 1]
        latents.append(following)
        log_probabilities.append(log_probability(following, step))
    return Trajectories(torch.stack(latents, dim=1), torch.stack(log_probabilities, dim=1), conditioning)


def batch_noise(seed: int, stream: str, indices: Sequence[int], num_steps: int, shape: tuple[int, ...]) -> Tensor:
    """The noise of :func:`sample` for samples with these global indices, (N, num_steps + 1, C, H, W)."""
    return torch.stack([noise_for(seed, stream, index, (num_steps + 1, *shape)) for index in indices])
