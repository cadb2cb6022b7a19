"""DiffusionNFT (Zheng et al. 2025, arXiv 2509.16117): reinforcement learning on the forward process.

Pictures are drawn with any sampler by an old policy and only their clean latents are kept. They are noised again, and
the trained network learns to predict good pictures and to keep away from bad ones (section 3.2). No density of a step
is needed, hence no stochastic sampler. The update is that of the reference implementation, scripts/train_nft_sd3.py in
NVlabs/DiffusionNFT, whose defaults are taken (config/nft.py) but for its `advantage_deviation`, "epoch"; loss and
gradient equal those of its own code (`benchmarks/methods_upstream.py`).

The two implicit policies are mixtures of the old and the new prediction whose weights sum to 1. At a fixed state and
timestep velocity, epsilon, v and x_0 are affine in each other, so the mixtures are the same in each of them: they are
taken in the network's own parametrisation, and only then brought to x_0. Zero terminal SNR needs no special case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rewards.runs.config import check_number
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.base import Batch, Method, Tools
from rewards.trainers.diffusion.methods.forward import noise_again
from rewards.trainers.diffusion.optimization import Totals, plan_pairs
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.rollout import Rollout

MEANS = ("train/loss", "policy/distance_to_old", "policy/prediction_norm")


@dataclass
class NFTConfig(DiffusionConfig):
    """Settings of DiffusionNFT beside those of :class:`DiffusionConfig`.

    Attributes:
        sample_num_steps: As there; the reference takes 10.
        sample_guidance_scale: As there; NFT trains without guidance.
        nft_beta: Strength of the implicit policies' difference; the reference takes 1, or 0.1 for hard rewards.
        nft_old_decay: After an epoch the old policy is `d * old + (1 - d) * new`, see :func:`old_decay`. The reference
            takes 0.001 up to 0.5, and for hard rewards 0.0075 from step 75 up to 0.999.
        nft_old_decay_max, nft_old_decay_from: See there.
        train_timestep_fraction: Share of the sampler's timesteps at which each picture is noised, drawn at random.
        train_kl_coefficient: As there: weight of the mean squared distance to the base model's prediction.

    Example:
        >>> NFTConfig().nft_beta
        1.0
    """

    sample_num_steps: int = 10
    sample_guidance_scale: float = 1.0
    nft_beta: float = 1.0
    nft_old_decay: float = 0.001
    nft_old_decay_max: float = 0.5
    nft_old_decay_from: int = 0
    train_timestep_fraction: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("nft_beta", self.nft_beta, above=0)
        check_number("nft_old_decay", self.nft_old_decay, at_least=0)
        check_number("nft_old_decay_max", self.nft_old_decay_max, at_least=0, at_most=1)
        check_number("nft_old_decay_from", self.nft_old_decay_from, at_least=0)
        check_number("train_timestep_fraction", self.train_timestep_fraction, above=0, at_most=1)


class NFT(Method[NFTConfig]):
    """DiffusionNFT on any parametrisation and sampler."""

    name = "nft"
    config_class = NFTConfig

    def start(self, tools: Tools) -> None:
        """The old policy begins as the trained one."""
        super().start(tools)
        self.old = [parameter.detach().clone() for parameter in tools.policy.parameters]

    def draw(self, prompts: Sequence[str], noise: Noise) -> Rollout:
        """Draw with the old policy."""
        with self.tools.policy.holding(self.old):
            return super().draw(prompts, noise)

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`Method.update`."""
        args, accelerator = self.args, self.tools.accelerator
        clip = args.train_adv_clip_max
        optimality = torch.as_tensor(batch.advantages / clip / 2 + 0.5).float().clamp(0, 1)
        totals = Totals((*MEANS, "policy/kl") if self.base_is_measured(batch.epoch) else MEANS)
        steps, trained = range(len(self.sampler.stepper)), 0
        for inner in range(args.train_num_inner_epochs):
            stream = f"{batch.epoch}/{inner}"
            fraction = args.train_timestep_fraction
            plans = plan_pairs(batch.advantages, steps, args, accelerator.num_processes, stream, fraction)
            for number, pairs in enumerate(plans, start=1):
                last = inner + 1 == args.train_num_inner_epochs and number == len(plans)
                measured = self.base_is_measured(batch.epoch, last)
                loss = partial(self._losses, batch, optimality, stream, measured, totals)
                self.tools.optimization.step(pairs, batch.local, loss)
                trained += len(pairs)
        decay = old_decay(args, self.tools.optimization.taken)
        torch._foreach_lerp_(self.old, [p.detach() for p in self.tools.policy.parameters], 1 - decay)
        return {"train/pairs": trained, "policy/old_decay": decay} | totals.metrics(accelerator)

    def _losses(
        self,
        batch: Batch,
        optimality: Tensor,
        stream: str,
        measured: bool,
        totals: Totals,
        rows: Tensor,
        steps: Tensor,
    ) -> Tensor:
        """Loss of each pair of a picture and a timestep, (P,); `measured`: with the distance to the base model."""
        policy, sampler, args = self.tools.policy, self.sampler, self.args
        clean, _, noisy, conditioning = noise_again(self, batch, stream, rows, steps)
        steps = steps.to(policy.device)
        weights = optimality[rows + batch.local.start].to(policy.device)
        with torch.no_grad(), policy.holding(self.old):  # before the pass with a gradient: it changes the weights
            old = sampler.predict(policy, noisy, steps, conditioning).float()
        new = sampler.predict(policy, noisy, steps, conditioning).float()
        better, worse = implicit_policies(new, old, args.nft_beta)
        better, worse = (sampler.stepper.clean(prediction, noisy, steps) for prediction in (better, worse))
        losses = args.train_adv_clip_max * nft_loss(better, worse, clean, weights, args.nft_beta)
        totals.add("train/loss", losses)
        totals.add("policy/distance_to_old", (new - old).square().mean(dim=(1, 2, 3)))
        totals.add("policy/prediction_norm", new.square().mean(dim=(1, 2, 3)).sqrt())
        if measured:
            with torch.no_grad(), policy.base_model():
                base = sampler.predict(policy, noisy, steps, conditioning).float()
            distance = (new - base).square().mean(dim=(1, 2, 3))
            totals.add("policy/kl", distance)
            losses = losses + (args.train_kl_coefficient or 0.0) * distance
        return losses

    def state(self) -> dict[str, list[Tensor]]:
        """The old policy's weights."""
        return {"old": self.old}

    def load_state(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        """Take over what :meth:`state` gave."""
        torch._foreach_copy_(self.old, [value.to(self.tools.policy.device) for value in state["old"]])


def old_decay(args: NFTConfig, steps: int) -> float:
    """How much of the old policy an epoch keeps after so many optimiser steps.

    Example:
        >>> [old_decay(NFTConfig(nft_old_decay_from=10), steps) for steps in (5, 110, 1000)]
        [0.0, 0.1, 0.5]
    """
    return min(args.nft_old_decay * max(0, steps - args.nft_old_decay_from), args.nft_old_decay_max)


def implicit_policies(new: Tensor, old: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """The predictions of the implicit better and worse policy (DiffusionNFT eq. 6).

    Args:
        new: Prediction of the trained network, in any parametrisation.
        old: That of the policy that drew the pictures.
        beta: Strength.

    Returns:
        `(1 - beta) old + beta new` and `(1 + beta) old - beta new`.
    """
    return (1 - beta) * old + beta * new, (1 + beta) * old - beta * new


def nft_loss(better: Tensor, worse: Tensor, clean: Tensor, optimality: Tensor, beta: float) -> Tensor:
    """The loss of DiffusionNFT eq. 5 with the reference's self-normalised weights.

    Args:
        better, worse: x_0 of the implicit policies, (N, C, H, W).
        clean: x_0 that was drawn.
        optimality: r in [0, 1] of each picture, (N,).
        beta: Strength.

    Returns:
        (N,): `[r |x+ - x_0|^2 / w+ + (1 - r) |x- - x_0|^2 / w-] / beta`, averaged over latent dimensions, where w is
        the mean absolute error without a gradient, in float64, at least 1e-5. (The reference multiplies it by the clip
        of the advantages.)
    """
    return (optimality * _normalised(better, clean) + (1 - optimality) * _normalised(worse, clean)) / beta


def _normalised(prediction: Tensor, clean: Tensor) -> Tensor:
    with torch.no_grad():
        weight = (prediction.double() - clean.double()).abs().mean(dim=(1, 2, 3), keepdim=True).clamp(min=1e-5)
    return ((prediction - clean) ** 2 / weight).mean(dim=(1, 2, 3))
