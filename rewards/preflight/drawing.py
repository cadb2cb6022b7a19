"""A run of models that draw, phase by phase, on shapes: the real policy, sampler, decoder, method and optimiser."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from rewards.preflight.measuring import Measure, Phase
from rewards.preflight.models import CPU, build_pipeline, scheduler_of
from rewards.preflight.pretend import pretended, shapes_only
from rewards.preflight.report import Estimate
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.scores import Scores
from rewards.trainers.diffusion.methods.base import Batch, Method, Tools
from rewards.trainers.diffusion.methods.ddpo import DDPO
from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO
from rewards.trainers.diffusion.methods.reward_gradient import RewardGradient
from rewards.trainers.diffusion.optimization import Optimization
from rewards.trainers.diffusion.policy import new_policy
from rewards.trainers.diffusion.policy.base import DTYPES, Conditioning, Policy
from rewards.trainers.diffusion.policy.unet import as_ddim
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.steppers.ddim import DDIM

OLD_PASSES = {"nft": 1, "awm": 1}
"""Passes without a gradient beside the trained one's, a pair: of the old policy, or of an average."""


def forwards_a_picture(model: str, method: Method[Any]) -> int:
    """Forwards of the network that one training picture costs, a backward pass counted as two.

    Sampling takes one a step, twice under guidance. An update takes three a trained step (with the gradient), one more
    where activations are recomputed, and one for every further policy that it looks at. The base model with a weight of
    0 is not counted: it is looked at once in a while.

    Args:
        model: Of a run's config; its scheduler says which steps have a density.
        method: With its settings.

    Example:
        >>> from rewards.trainers.diffusion.methods.nft import NFT, NFTConfig
        >>> forwards_a_picture("shapes", NFT(NFTConfig(sample_num_steps=10)))
        50
    """
    args = method.args
    a_step = 3 + args.gradient_checkpointing + OLD_PASSES.get(method.name, 0) + bool(args.train_kl_coefficient)
    rows = 2 if args.sample_guidance_scale > 1 else 1
    return rows * (args.sample_num_steps + args.train_num_inner_epochs * trained_steps(model, method) * a_step)


def trained_steps(model: str, method: Method[Any]) -> int:
    """Denoising steps that each picture is trained on in a pass."""
    args = method.args
    if isinstance(method, RewardGradient):
        return args.steps_with_gradient
    steps = args.sample_num_steps
    if isinstance(method, DDPO):
        steps = int(DDIM(as_ddim(scheduler_of(model)), steps, args.sample_eta).stochastic.sum())
    elif isinstance(method, FlowGRPO):
        steps = args.sample_window_size or steps - 1
    return max(1, round(steps * getattr(args, "train_timestep_fraction", 1.0)))


class Brightness(Reward):
    """Stands for the judge where its gradient reaches the decoder; its own memory is estimated by itself."""

    __name__ = "Brightness"
    gradient_problem = None

    def score(self, images: Any, texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        return Scores(torch.zeros(len(texts)), [None] * len(texts))

    def score_with_grad(self, images: Tensor, texts: Sequence[str], /, **columns: Sequence[object]) -> Scores:
        return Scores(images.mean((1, 2, 3)), [None] * len(images))

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        return {}


def estimate_drawing(model: str, method: Method[Any]) -> list[Estimate]:
    """Memory and work of a method's phases on one process; the judge's are its own.

    Args:
        model: Of a run's config.
        method: With its settings.
    """
    args = method.args
    few = max(2, getattr(args, "gradient_steps", 1) + 1)
    changed: dict[str, Any] = {"sample_num_steps": min(few, args.sample_num_steps), "train_num_inner_epochs": 1}
    changed |= {"train_gradient_accumulation_steps": 1}  # one call of the network with a gradient, a step a picture
    if hasattr(args, "train_timestep_fraction"):
        changed["train_timestep_fraction"] = 0.5
    if hasattr(args, "sample_window_size"):
        changed["sample_window_size"] = None
    short = type(method)(dataclasses.replace(args, **changed))
    with pretended(CPU), Measure() as measure:
        with shapes_only():
            pipeline = build_pipeline(model, DTYPES[args.mixed_precision])
            policy = new_policy(pipeline, args, CPU, keep_base=method.needs_base)
        weights = measure.live
        trained = sum(parameter.nbytes for parameter in policy.parameters)
        policy.encode = _encoder(pipeline, policy)  # type: ignore[method-assign]
        accelerator = Accelerator(cpu=True)
        optimization = Optimization(policy.parameters, accelerator, short.args)
        short.start(Tools(policy, optimization, accelerator, Brightness()))
        short.begin_epoch(0)
        count = args.sample_batch_size
        with measure.phase() as sampling:
            rollout = short.draw(["a"] * count, Noise(0, "check", range(count), policy.latent_shape))
        with measure.phase() as decoding, torch.no_grad():
            policy.pictures(rollout.final)
        del rollout
        pictures = args.train_batch_size
        rollout = short.draw(["a"] * pictures, Noise(0, "check", range(pictures), policy.latent_shape))
        updates = {}
        for recomputed in (False, True):
            if recomputed:
                policy.network.enable_gradient_checkpointing()
            else:
                policy.network.disable_gradient_checkpointing()
            updates[recomputed], pairs = _update(short, rollout, pictures, measure, again=not recomputed)
        kept = _rollout_bytes(method, policy, args.sample_batch_size * args.sample_num_batches_per_epoch)
    a_step = sampling.flops / short.args.sample_num_steps
    epoch = args.sample_num_batches_per_epoch * (a_step * args.sample_num_steps + decoding.flops)
    pictures_an_epoch = args.sample_batch_size * args.sample_num_batches_per_epoch
    of_a_pass = trained_steps(model, method) if not isinstance(method, RewardGradient) else 1
    times = pictures_an_epoch * args.train_num_inner_epochs * of_a_pass / max(1, pairs)
    update_flops = updates[args.gradient_checkpointing].flops * times
    rest = Estimate.of
    return [
        rest("weights", weights, "the whole pipeline, with the adapter"),
        rest("optimiser", 3 * trained, f"gradients and moments of {trained / 4e6:,.1f} million parameters"),
        rest("kept pictures", kept, f"latents and prompts of {pictures_an_epoch} pictures"),
        rest("sampling", sampling.peak + kept, f"{count} pictures at a time", epoch),
        rest("decoding", decoding.peak + kept, "in slices"),
        rest("update", updates[False].peak + kept, f"{args.train_batch_size} pairs at a time", update_flops,
             used=not args.gradient_checkpointing),
        rest("update, activations recomputed", updates[True].peak + kept, "gradient_checkpointing: true", update_flops,
             used=args.gradient_checkpointing),
    ]  # fmt: skip


def _update(method: Method[Any], rollout: Any, pictures: int, measure: Measure, again: bool) -> tuple[Phase, int]:
    """An optimiser step, or the second, when the optimiser has its moments."""
    rewards = np.linspace(-1, 1, pictures, dtype=np.float32) if pictures > 1 else np.ones(1, np.float32)
    batch = Batch(0, rollout, ["a"] * pictures, [{}] * pictures, range(pictures), rewards, np.sign(rewards + 1e-9))
    for _ in range(1 + again):
        method.tools.optimization.begin_epoch(1e-4)
        with measure.phase() as phase:
            metrics = method.update(batch)
    return phase, int(metrics.get("train/pairs", pictures))


def _rollout_bytes(method: Method[Any], policy: Policy, pictures: int) -> int:
    steps, states = method.args.sample_num_steps, 1
    if method.keep_steps:
        states += steps + 1 + (steps if method.keep_means else 0)
    elif isinstance(method, RewardGradient) and method.args.gradient_mode != "direct_align":
        states += method.args.gradient_steps + 1
    latents = 4 * int(np.prod(policy.latent_shape)) * states
    prompt = policy.encode(["a"], method.args.sample_guidance_scale)
    return pictures * (latents + sum(t.nbytes for t in prompt._tensors() if t is not None))


def _encoder(pipeline: Any, policy: Policy) -> Any:
    """Prompts as tensors of the shapes that the network takes: no tokenizer is needed."""
    config = policy.network.config
    width = getattr(config, "cross_attention_dim", None) or config.joint_attention_dim
    length = pipeline.text_encoder.config.max_position_embeddings
    if policy.network_name == "transformer":
        length += policy.args.max_sequence_length
    pooled = getattr(config, "pooled_projection_dim", None)
    if getattr(pipeline, "text_encoder_2", None) is not None and pooled is None:
        pooled = pipeline.text_encoder_2.config.projection_dim

    def encode(prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        guided = guidance_scale > 1
        with shapes_only():
            embeds = [torch.zeros(len(prompts), length, width, dtype=policy.dtype) for _ in range(1 + guided)]
            pools = [torch.zeros(len(prompts), pooled, dtype=policy.dtype) for _ in range(1 + guided) if pooled]
        return Conditioning(
            embeds[0], embeds[1] if guided else None, pools[0] if pooled else None, pools[1] if len(pools) > 1 else None
        )

    return encode
