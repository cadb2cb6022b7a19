"""Drawing pictures with the policy, keeping what the method asks for and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rewards.trainers.diffusion.policy.base import Conditioning, Policy
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.steppers.base import Gaussian, Stepper, log_probability


@dataclass(frozen=True)
class Sampler:
    """How pictures are drawn: steps and a guidance scale."""

    stepper: Stepper
    guidance_scale: float

    def step(self, policy: Policy, latents: Tensor, steps: Tensor, conditioning: Conditioning) -> Gaussian:
        """p(next state | latents, prompt) for N pairs of a state and a step.

        Args:
            policy: The model.
            latents: (N, C, H, W) float32.
            steps: Index of each pair's step, (N,) int64, 0 = noisiest.
            conditioning: N rows.
        """
        return self.stepper.step(self.predict(policy, latents, steps, conditioning), latents, steps)

    def predict(self, policy: Policy, latents: Tensor, steps: Tensor, conditioning: Conditioning) -> Tensor:
        """The network's guided prediction, (N, C, H, W); arguments as :meth:`step`."""
        timesteps = self.stepper.timesteps
        return policy.predict(latents, timesteps[steps.to(timesteps.device)], conditioning, self.guidance_scale)


@dataclass
class Rollout:
    """N pictures in latent form, and how they were drawn as far as the method needs it.

    Attributes:
        final: x_0, (N, C, H, W) float32 on the policy's device.
        conditioning: N rows.
        latents: The last K + 1 states, x_0 the last of them (all T + 1 where K = T), (N, K + 1, C, H, W); or None.
        log_probs: Of each of the K steps under the policy that took it, (N, K) float32; 0 for deterministic ones; or
            None.
        means: Of each of the K steps under that policy, (N, K, C, H, W) float32; or None.
    """

    final: Tensor
    conditioning: Conditioning
    latents: Tensor | None = None
    log_probs: Tensor | None = None
    means: Tensor | None = None

    def __len__(self) -> int:
        return len(self.final)

    @staticmethod
    def concatenate(parts: Sequence[Rollout]) -> Rollout:
        """The rollouts of several batches, which all kept the same."""

        def together(kept: Sequence[Tensor | None]) -> Tensor | None:
            tensors = [tensor for tensor in kept if tensor is not None]
            return torch.cat(tensors) if tensors else None

        return Rollout(
            torch.cat([part.final for part in parts]),
            Conditioning.concatenate([part.conditioning for part in parts]),
            together([part.latents for part in parts]),
            together([part.log_probs for part in parts]),
            together([part.means for part in parts]),
        )


@torch.no_grad()
def draw(
    policy: Policy,
    prompts: Sequence[str],
    sampler: Sampler,
    noise: Noise,
    keep_from: int | None = None,
    keep_means: bool = False,
) -> Rollout:
    """Denoise a batch.

    Args:
        policy: The model.
        prompts: N texts.
        sampler: Steps and guidance.
        noise: Of the N samples: first x_T, then that of each step. Deterministic steps draw theirs too, so that a
            picture's start does not depend on the sampler.
        keep_from: Keep the states from this step on, and the log-probabilities of the steps; 0 keeps all. With None
            memory does not grow with the steps.
        keep_means: Keep those steps' means too.

    Returns:
        The pictures' latents.
    """
    conditioning = policy.encode(prompts, sampler.guidance_scale)
    latents = noise.draw().to(policy.device) * sampler.stepper.initial_scale
    states, log_probs, means = [], [], []
    for index in range(len(sampler.stepper)):
        steps = torch.full((len(prompts),), index, device=policy.device)
        step = sampler.step(policy, latents, steps, conditioning)
        kept = keep_from is not None and index >= keep_from
        if kept:
            states.append(latents)
        latents = step.mean + step.std * noise.draw().to(policy.device)
        if kept:
            log_probs.append(log_probability(latents, step))
            if keep_means:
                means.append(step.mean)
    if not states:
        return Rollout(latents, conditioning)
    return Rollout(
        latents,
        conditioning,
        torch.stack([*states, latents], dim=1),
        torch.stack(log_probs, dim=1),
        torch.stack(means, dim=1) if keep_means else None,
    )
