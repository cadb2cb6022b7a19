"""The reward's own gradient through the last denoising steps, the decoder and the judge.

Four ways to choose the steps: DRaFT-K (Clark et al. 2023, arXiv 2309.17400), through the last K; AlignProp
(Prabhudesai et al. 2023, arXiv 2310.03739), through a number of last steps drawn at random up to K; ReFL (ImageReward,
Xu et al. 2023, arXiv 2304.05977), which stops at one of the last K steps at random, takes one step's gradient and
judges the x_0 that is predicted there; Direct-Align (SRPO, Shen et al. 2025, arXiv 2509.06942), which noises the
finished picture to one of the last K steps at random with noise that it knows, takes one step's gradient, and gets the
picture back by taking the known noise out again, so that early steps can be trained too. (Of SRPO, the reward relative
to a worse wording of the prompt and the inversion that goes with it are left out: they need a reward of words.) A
gradient games a judge fast: watch the audit and let it stop the run (`audit_max_gap`), jitter the pictures, or hold the
policy to the base model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from rewards.errors import InputError
from rewards.runs.config import check_number
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.base import Batch, Method, Tools
from rewards.trainers.diffusion.methods.forward import noise_again
from rewards.trainers.diffusion.optimization import Totals, split_evenly
from rewards.trainers.diffusion.randomness import Noise, derived_seed
from rewards.trainers.diffusion.rollout import Rollout, draw

Mode = Literal["draft", "alignprop", "refl", "direct_align"]
MEANS = ("train/loss", "train/soft_reward", "train/steps_with_gradient")


@dataclass
class RewardGradientConfig(DiffusionConfig):
    """Settings beside those of :class:`DiffusionConfig`.

    Attributes:
        sample_guidance_scale: As there; without guidance by default, which halves the memory.
        gradient_mode: "draft", "alignprop", "refl" or "direct_align" (see the module).
        gradient_steps: K: the most steps from the end that are looked at; DRaFT's fastest variant takes 1, Direct-Align
            is meant for all.
        gradient_jitter: Deviation of noise that is added to the pictures before they are judged, on [0, 1], so that the
            judge cannot be moved by a faint pattern.
        gradient_cutout: Side of a grey square at a random place in every picture, as a share of its side.
        train_kl_coefficient: As there: weight of the mean squared distance of the last state to where the base model
            would go from the same state.

    Example:
        >>> RewardGradientConfig().gradient_steps
        1
    """

    sample_guidance_scale: float = 1.0
    gradient_mode: Mode = "draft"
    gradient_steps: int = 1
    gradient_jitter: float = 0.0
    gradient_cutout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("gradient_steps", self.gradient_steps, at_least=1, at_most=self.sample_num_steps)
        check_number("gradient_jitter", self.gradient_jitter, at_least=0)
        check_number("gradient_cutout", self.gradient_cutout, at_least=0, at_most=1)
        if self.gradient_mode not in (modes := get_args(Mode)):
            raise InputError(f"gradient_mode must be one of {', '.join(modes)}, got {self.gradient_mode!r}")

    @property
    def steps_with_gradient(self) -> int:
        """The most steps that a gradient passes."""
        return 1 if self.gradient_mode in ("refl", "direct_align") else self.gradient_steps


class RewardGradient(Method[RewardGradientConfig]):
    """Gradient ascent on a differentiable reward."""

    name = "reward_gradient"
    config_class = RewardGradientConfig
    learns_from_advantages = False

    def start(self, tools: Tools) -> None:
        """See :meth:`Method.start`.

        Raises:
            InputError: The reward has no gradient.
        """
        if (problem := tools.reward.gradient_problem) is not None:
            raise InputError(f"reward_gradient needs the reward's gradient: {problem}")
        super().start(tools)

    def draw(self, prompts: Sequence[str], noise: Noise) -> Rollout:
        """Draw, keeping the states of the last K steps where the gradient begins at one of them."""
        if self.args.gradient_mode == "direct_align":
            return super().draw(prompts, noise)
        first = len(self.sampler.stepper) - self.args.gradient_steps
        return draw(self.tools.policy, prompts, self.sampler, noise, keep_from=first)

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`Method.update`. Samples that could not be judged take no part."""
        args, accelerator = self.args, self.tools.accelerator
        totals = Totals((*MEANS, "policy/kl") if self.base_is_measured(batch.epoch) else MEANS)
        samples = np.flatnonzero(np.isfinite(batch.rewards))
        for inner in range(args.train_num_inner_epochs):
            stream = f"{batch.epoch}/{inner}"
            pairs = np.stack([samples, np.zeros_like(samples)], axis=1)
            parts = split_evenly(pairs, len(batch.rewards), args, accelerator.num_processes)
            for number, part in enumerate(parts, start=1):
                measured = self.base_is_measured(
                    batch.epoch, inner + 1 == args.train_num_inner_epochs and number == len(parts)
                )
                loss = partial(self._losses, batch, stream, self._last_steps(stream, int(part[0, 0])), measured, totals)
                self.tools.optimization.step(part, batch.local, loss)
        return totals.metrics(accelerator)

    def _last_steps(self, stream: str, first: int) -> int:
        """How many steps from the end one optimiser step begins; the same on every process."""
        if self.args.gradient_mode == "draft":
            return self.args.gradient_steps
        rng = np.random.default_rng(derived_seed(self.args.seed, "last steps", stream, first))
        return int(rng.integers(1, self.args.gradient_steps + 1))

    def _losses(
        self, batch: Batch, stream: str, last: int, measured: bool, totals: Totals, rows: Tensor, steps: Tensor
    ) -> Tensor:
        """Minus the reward of each sample, (P,); 0 where it could not be judged this time; `measured`: with the
        distance to the base model."""
        policy, reward, args = self.tools.policy, self.tools.reward, self.args
        latents, distance = self._end(batch, stream, last, measured, rows)
        images = self._disturbed(policy.decode(latents), [batch.local[row] for row in rows.tolist()], stream)
        metadata = [batch.metadata[row] for row in rows.tolist()]
        scores = reward.score_with_grad(images, [batch.prompts[row] for row in rows.tolist()], metadata=metadata)
        values = scores.overall.to(policy.device)
        judged = values.isfinite()
        losses = torch.where(judged, -values.nan_to_num(), torch.zeros_like(values))
        totals.add("train/loss", losses, among=judged)
        totals.add("train/soft_reward", values, among=judged)
        totals.add("train/steps_with_gradient", torch.full((len(rows),), float(min(last, args.steps_with_gradient))))
        if measured:
            totals.add("policy/kl", distance)
            losses = losses + (args.train_kl_coefficient or 0.0) * distance
        return losses

    def _end(self, batch: Batch, stream: str, last: int, measured: bool, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The latents to judge, with a gradient, and their distance to where the base model's last step leads."""
        policy, stepper, mode = self.tools.policy, self.sampler.stepper, self.args.gradient_mode
        first = torch.full((len(rows),), len(stepper) - last)
        if mode == "direct_align":
            _, noise, state, conditioning = noise_again(self, batch, stream, rows, first)
        else:
            assert batch.rollout.latents is not None  # kept by draw
            at = rows.to(policy.device)
            conditioning = batch.rollout.conditioning.rows(at)
            state = batch.rollout.latents[at, batch.rollout.latents.shape[1] - 1 - last]
        first = first.to(policy.device)

        def follow(prediction: Tensor, latents: Tensor, steps: Tensor) -> Tensor:
            if mode == "refl":
                return stepper.clean(prediction, latents, steps)
            following = stepper.step(prediction, latents, steps).mean
            return stepper.clean_of(following, noise, steps) if mode == "direct_align" else following

        for number in range(min(last, self.args.steps_with_gradient)):
            before, steps = state, first + number
            prediction = self.sampler.predict(policy, before, steps, conditioning)
            state = follow(prediction, before, steps)
        if not measured:
            return state, torch.zeros(len(rows), device=policy.device)
        with torch.no_grad(), policy.base_model():
            target = follow(self.sampler.predict(policy, before, steps, conditioning), before, steps)
        return state, (state - target).square().mean(dim=(1, 2, 3))

    def _disturbed(self, images: Tensor, places: Sequence[int], stream: str) -> Tensor:
        """Pictures with jitter and cut-out, which depend on the sample alone."""
        args = self.args
        if args.gradient_jitter:
            noise = Noise(args.seed, f"jitter/{stream}", places, tuple(images.shape[1:])).draw().to(images.device)
            images = (images + args.gradient_jitter * noise).clamp(0, 1)
        if args.gradient_cutout:
            images = cut_out(images, args.gradient_cutout, [derived_seed(args.seed, "cut", stream, p) for p in places])
        return images


def cut_out(images: Tensor, share: float, seeds: Sequence[int]) -> Tensor:
    """A grey square in every picture.

    Args:
        images: (N, 3, H, W).
        share: Side of the square, as a share of the picture's.
        seeds: N, of the places.
    """
    height, width = images.shape[-2:]
    side_y, side_x = round(height * share), round(width * share)
    mask = torch.zeros(len(images), 1, height, width, dtype=torch.bool)
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        top, left = int(rng.integers(0, height - side_y + 1)), int(rng.integers(0, width - side_x + 1))
        mask[row, :, top : top + side_y, left : left + side_x] = True
    return torch.where(mask.to(images.device), torch.full_like(images, 0.5), images)
