"""A run of models that draw, phase by phase, on shapes: the real policy, sampler, decoder, method and optimiser."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator, PartialState
from torch import Tensor

from rewards.preflight.layers import Known, Numbers, by_layers, shortened
from rewards.preflight.measuring import Measure
from rewards.preflight.models import CPU, build_pipeline, described, scheduler_of
from rewards.preflight.pretend import DEVICE, pretended, shapes_only
from rewards.preflight.report import Estimate, Knob
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.scores import Scores
from rewards.trainers.diffusion.methods.base import Batch, Method, Tools
from rewards.trainers.diffusion.methods.ddpo import DDPO
from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO
from rewards.trainers.diffusion.methods.reward_gradient import RewardGradient
from rewards.trainers.diffusion.optimization import Optimization
from rewards.trainers.diffusion.policy import FLOWS, new_policy
from rewards.trainers.diffusion.policy.base import DTYPES, Conditioning, Policy
from rewards.trainers.diffusion.policy.unet import UNetPolicy, as_ddim
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.rollout import Rollout
from rewards.trainers.diffusion.steppers.ddim import DDIM

OLD_PASSES = {"nft": 1, "awm": 1}
"""Passes without a gradient beside the trained one's, a pair: of the old policy, or of an average."""


def forwards_a_picture(model: str, method: Method[Any]) -> int:
    """Forwards of the network that one training picture costs, a backward pass counted as two.

    Sampling takes one a step, twice under classifier-free guidance. An update takes three a trained step (with the
    gradient), one more where activations are recomputed, and one for every further policy that it looks at. The base
    model with a weight of 0 is not counted: it is looked at once in a while.

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
    known = described(model)
    policy = FLOWS.get(str(known["pipeline"]), UNetPolicy)
    rows, steps = policy.rows_guided if args.sample_guidance_scale > 1 else 1, trained_steps(known, method)
    return rows * (args.sample_num_steps + args.train_num_inner_epochs * steps * a_step)


def trained_steps(known: Known, method: Method[Any]) -> int:
    """Denoising steps that each picture of a pipeline is trained on in a pass."""
    args = method.args
    if isinstance(method, RewardGradient):
        return args.steps_with_gradient
    steps = args.sample_num_steps
    if isinstance(method, DDPO):
        steps = int(DDIM(as_ddim(scheduler_of(known)), steps, args.sample_eta).stochastic.sum())
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


def estimate_drawing(known: Known, method: Method[Any]) -> list[Estimate]:
    """Memory and work of a method's phases on one process; the judge's are its own.

    Args:
        known: The pipeline, as :func:`rewards.preflight.models.described` gives it.
        method: With its settings.
    """
    args = method.args
    of = by_layers(known, lambda part: _measured(part, method))
    pictures, at_once = args.sample_batch_size * args.sample_num_batches_per_epoch, args.train_batch_size
    kept = pictures * of["a kept picture"]
    sampled = Knob("trainer.sample_batch_size", args.sample_batch_size, of["held"] + kept,
                   "trainer.sample_num_batches_per_epoch", args.sample_num_batches_per_epoch)  # fmt: skip
    trained = Knob("trainer.train_batch_size", at_once, of["held"] + of["gradients"] + kept,
                   "trainer.train_gradient_accumulation_steps", args.train_gradient_accumulation_steps)  # fmt: skip
    drawn = args.sample_num_batches_per_epoch * args.sample_num_steps * of["FLOPs of a step"]
    decoded = args.sample_num_batches_per_epoch * of["FLOPs of decoding"]
    passes = 1 if isinstance(method, RewardGradient) else trained_steps(known, method)
    updates = pictures * args.train_num_inner_epochs * passes / of["pairs"]
    update, recomputed = (updates * of[f"FLOPs of an update{how}"] for how in ("", ", recomputed"))
    again = args.gradient_checkpointing
    phase = Estimate.of
    return [
        phase("weights", of["weights"], "the whole pipeline, with the adapter"),
        phase("optimiser", of["gradients"] + of["moments"],
              f"gradients and moments of {of['gradients'] / 4e6:,.1f} million parameters"),
        phase("kept pictures", kept, f"latents and prompts of {pictures} pictures"),
        phase("sampling", of["sampling"] + kept, f"{args.sample_batch_size} pictures at a time", drawn, knob=sampled),
        phase("decoding", of["decoding"] + kept, "in slices", decoded),
        phase("update", of["update"] + kept, f"{at_once} pairs at a time", update, used=not again, knob=trained),
        phase("update, activations recomputed", of["update, recomputed"] + kept, "gradient_checkpointing: true",
              recomputed, used=again, knob=trained),
    ]  # fmt: skip


def _measured(known: Known, method: Method[Any]) -> Numbers:
    """Bytes and FLOPs of what a run does again and again, each once."""
    args = method.args
    with pretended(CPU), Measure() as measure:
        policy, short = _started(known, method, CPU, Accelerator(cpu=True))
        of: Numbers = {"weights": measure.live, "gradients": sum(one.nbytes for one in policy.parameters)}
        for parameter in policy.parameters:  # from the second step on the optimiser has its moments
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            short.tools.optimization.optimizer.optimizer.state[parameter] = {"step": torch.zeros(()), **moments}
        of["held"] = measure.live
        of["moments"] = measure.live - of["weights"]
        with measure.phase() as phase:
            rollout = _drawn(short, args.sample_batch_size)
        of |= {"sampling": phase.peak, "FLOPs of a step": phase.flops / short.args.sample_num_steps}
        with measure.phase() as phase:
            policy.pictures(rollout.final)
        of |= {"decoding": phase.peak, "FLOPs of decoding": phase.flops}
        of["a kept picture"] = _kept_bytes(method, rollout)
        rollout = _rows(rollout, torch.arange(args.train_batch_size) % len(rollout))
        for recomputed in (False, True):
            if recomputed:
                policy.network.enable_gradient_checkpointing()
            else:
                policy.network.disable_gradient_checkpointing()
            with measure.phase() as phase:
                metrics = _update(short, rollout)
            how = ", recomputed" * recomputed
            of |= {f"update{how}": phase.peak, f"FLOPs of an update{how}": phase.flops}
        of["pairs"] = metrics.get("train/pairs", args.train_batch_size)
    return of


def host_reads(known: Known, method: Method[Any]) -> dict[str, Counter[str]]:
    """How often the host waits for a GPU, by the line that asks: a batch's drawing, its decoding, an optimiser step.

    On a pretended GPU, without the backward pass (which a build for CPUs lacks there), with a few layers of each kind.

    Raises:
        RuntimeError: Tensors of different devices meet.
    """
    args = dataclasses.replace(method.args, mixed_precision="no", gradient_checkpointing=False, sample_batch_size=2,
                               train_batch_size=2, sample_num_images_per_prompt=2)  # fmt: skip
    accelerator = Accelerator(cpu=True)
    # Its optimiser asks the second one again.
    accelerator.state.device = PartialState().device = DEVICE
    try:
        with pretended() as reads:
            policy, short = _started(shortened(known), type(method)(args), DEVICE, accelerator)
            accelerator.backward = lambda loss: _no_gradients(policy, loss)
            found: dict[str, Counter[str]] = {}
            with reads.told(found, "drawing a batch"):
                rollout = _drawn(short, 2)
            with reads.told(found, "decoding it"):
                policy.pictures(rollout.final)
            with reads.told(found, "an optimiser step, and an epoch's metrics"):
                _update(short, rollout)
    finally:
        accelerator.state.device = PartialState().device = CPU
    return found


def _no_gradients(policy: Policy, loss: Tensor) -> None:
    for parameter in policy.parameters:
        parameter.grad = torch.zeros_like(parameter)


def _started(
    known: Known, method: Method[Any], device: torch.device, accelerator: Accelerator
) -> tuple[Policy, Method[Any]]:
    """Policy and method of shapes, an epoch begun: a few denoising steps, one call of the network an optimiser step."""
    args = method.args
    few = max(2, getattr(args, "gradient_steps", 1) + 1)
    changed: dict[str, Any] = {"sample_num_steps": min(few, args.sample_num_steps), "train_num_inner_epochs": 1}
    changed |= {"train_gradient_accumulation_steps": 1}
    if hasattr(args, "train_timestep_fraction"):
        changed["train_timestep_fraction"] = 0.5
    if hasattr(args, "sample_window_size"):
        changed["sample_window_size"] = None
    short = type(method)(dataclasses.replace(args, **changed))
    pipeline = build_pipeline(known, DTYPES[args.mixed_precision])
    with shapes_only():
        policy = new_policy(pipeline, short.args, device, keep_base=method.needs_base)
    if isinstance(policy, UNetPolicy):
        policy.scheduler = as_ddim(scheduler_of(known))  # with its values
    policy.encode = _encoder(pipeline, policy)  # type: ignore[method-assign]
    optimization = Optimization(policy.parameters, accelerator, short.args)
    short.start(Tools(policy, optimization, accelerator, Brightness()))
    short.begin_epoch(0)
    return policy, short


def _drawn(method: Method[Any], pictures: int) -> Rollout:
    noise = Noise(0, "check", range(pictures), method.tools.policy.latent_shape)
    return method.draw(["a"] * pictures, noise)


def _rows(rollout: Rollout, rows: Tensor) -> Rollout:
    """Some pictures, copied."""
    kept = (None if part is None else part[rows] for part in (rollout.latents, rollout.log_probs, rollout.means))
    return Rollout(rollout.final[rows], rollout.conditioning.rows(rows), *kept)


def _update(method: Method[Any], rollout: Rollout) -> dict[str, float]:
    """An optimiser step."""
    pictures = len(rollout)
    rewards = np.linspace(-1, 1, pictures, dtype=np.float32) if pictures > 1 else np.ones(1, np.float32)
    batch = Batch(0, rollout, ["a"] * pictures, [{}] * pictures, range(pictures), rewards, np.sign(rewards + 1e-9))
    method.tools.optimization.begin_epoch(1e-4)
    return method.update(batch)


def _kept_bytes(method: Method[Any], rollout: Rollout) -> float:
    """Of a picture of the epoch: its states, and its prompt."""
    steps, states = method.args.sample_num_steps, 1
    if method.keep_steps:
        states += steps + 1 + (steps if method.keep_means else 0)
    elif isinstance(method, RewardGradient) and method.args.gradient_mode != "direct_align":
        states += method.args.gradient_steps + 1
    prompt = sum(tensor.nbytes for tensor in rollout.conditioning._tensors() if tensor is not None)
    return (prompt + rollout.final.nbytes * states) / len(rollout)


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
        guided = guidance_scale > 1 and policy.rows_guided > 1
        with shapes_only(), policy.device:
            embeds = [torch.zeros(len(prompts), length, width, dtype=policy.dtype) for _ in range(1 + guided)]
            pools = [torch.zeros(len(prompts), pooled, dtype=policy.dtype) for _ in range(1 + guided) if pooled]
        return Conditioning(
            embeds[0], embeds[1] if guided else None, pools[0] if pooled else None, pools[1] if len(pools) > 1 else None
        )

    return encode
