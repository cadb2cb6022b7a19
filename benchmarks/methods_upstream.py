"""Flow-GRPO's, DiffusionNFT's and GRPO-Guard's own update code beside ours: the same network, states and advantages.

    git clone https://github.com/yifan123/flow_grpo && git clone https://github.com/NVlabs/DiffusionNFT
    git clone https://github.com/verl-project/verl-omni
    python benchmarks/methods_upstream.py --flow-grpo flow_grpo --nft DiffusionNFT --verl-omni verl-omni [--json FILE]

From the checkouts the functions and the statements of the training loop that make the loss are loaded by name and run
as they are; nothing of them is copied here. Ours is what a training runs: the method's losses on a rollout, with a tiny
Stable Diffusion 3 whose trained, old and base weights differ. Compared are the losses and the gradients of all trained
parameters, in float32; where a difference is meant, both sides are named and the difference is accounted for.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor

from rewards.trainers.diffusion.advantages import PromptStatistics
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods.base import Batch, Method
from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO, FlowGRPOConfig
from rewards.trainers.diffusion.methods.forward import noise_again
from rewards.trainers.diffusion.methods.grpo_guard import GRPOGuard, GRPOGuardConfig
from rewards.trainers.diffusion.methods.nft import NFT, NFTConfig, old_decay
from rewards.trainers.diffusion.methods.policy_gradient import MEANS, PEAKS
from rewards.trainers.diffusion.optimization import Totals
from rewards.trainers.diffusion.policy.base import Conditioning, Policy
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.steppers.base import kl_divergence, log_probability
from tests.trainers.diffusion.tiny_diffusion import WORDS, redness, stable_diffusion_3

PICTURES, STEPS = 8, 10
TOLERANCE = 1e-6
"""Most relative difference of a loss; a gradient, compared by its norm, may differ by ten times that."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flow-grpo", type=Path, required=True)
    parser.add_argument("--nft", type=Path, required=True)
    parser.add_argument("--verl-omni", type=Path, required=True)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [*nft_rows(options.nft, folder), *flow_grpo_rows(options.flow_grpo, folder)]
        rows += guard_rows(options.verl_omni, folder)
    rows += advantage_rows(options.flow_grpo)
    for row in rows:
        print(f"{'equal ' if row['equal'] else 'DIFFERS'} {row['what']}: {row['found']}" + _because(row))
    if options.json:
        checkouts = {path.name: _commit(path) for path in (options.flow_grpo, options.nft, options.verl_omni)}
        options.json.write_text(json.dumps({"checkouts": checkouts, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    sys.exit(not all(row["equal"] or row.get("because") for row in rows))


# -- upstream ---------------------------------------------------------------------------------------------------------


def functions(path: Path, *names: str, **scope: Any) -> dict[str, Any]:
    """Top-level functions and classes of a file, without running the rest of it."""
    found = [node for node in ast.parse(path.read_text("utf-8")).body if getattr(node, "name", "") in names]
    for node in found:
        if isinstance(node, ast.FunctionDef):  # annotations name types of modules that are not imported
            node.returns = None
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                argument.annotation = None
    exec(compile(ast.Module(found, []), str(path), "exec"), scope)
    return {name: scope[name] for name in names}


def run_statements(path: Path, first: str, last: str, scope: dict[str, Any], leave_out: Sequence[str] = ()) -> None:
    """The statements of the innermost block that stores both names, from the first store to the last one, in `scope`.

    Args:
        path: A script.
        first, last: Names of variables.
        scope: What the statements see, and where they store.
        leave_out: Statements that store only this are not run.
    """
    block: list[ast.stmt] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            statements = body if isinstance(body, list) else []
            starts = [at for at, one in enumerate(statements) if first in _stored(one)]
            ends = [at for at, one in enumerate(statements) if last in _stored(one)]
            if starts and ends:
                block = statements[starts[0] : ends[-1] + 1]  # walked from the outside in: the innermost comes last
    kept = [one for one in block if not _stored(one) or not _stored(one) <= set(leave_out)]
    exec(compile(ast.Module(kept, []), str(path), "exec"), scope)


def _stored(statement: ast.stmt) -> set[str]:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


class Network:
    """Our network under the names that the upstream loops call theirs by."""

    def __init__(self, policy: Policy, old: Sequence[Tensor] = ()) -> None:
        self.policy, self.old = policy, old
        self.trained = [parameter.detach().clone() for parameter in policy.parameters]
        self.module = self

    def __call__(self, **inputs: Any) -> Any:
        return self.policy.network(**inputs)

    def set_adapter(self, name: str) -> None:
        values = self.old if name == "old" else self.trained
        for parameter, value in zip(self.policy.parameters, values, strict=True):
            parameter.data.copy_(value)  # past autograd: what is compared was computed before

    @contextmanager
    def disable_adapter(self) -> Iterator[None]:
        with self.policy.base_model():
            yield


# -- ours -------------------------------------------------------------------------------------------------------------


def prepared(method: Method[Any], folder: str) -> tuple[Any, Batch]:
    """A :class:`DiffusionTrainer` on a tiny Stable Diffusion 3, and a rollout after which its weights have moved on."""
    prompts = [f"a {color} {shape}" for color in ("red", "green") for shape in ("circle", "square")]
    assert all(word in WORDS for prompt in prompts for word in prompt.split())
    pipeline: Any = stable_diffusion_3()
    trainer = DiffusionTrainer(pipeline, redness, prompts, method)
    moved(trainer.policy, 1, 0.05)
    texts = [prompts[at % len(prompts)] for at in range(PICTURES)]
    rollout = trainer.method.draw(texts, Noise(0, "upstream", range(PICTURES), trainer.policy.latent_shape))
    moved(trainer.policy, 2, 0.02)
    advantages = np.random.default_rng(0).normal(size=PICTURES).astype(np.float32) * 3
    nothing: list[dict[str, object]] = [{}] * PICTURES
    return trainer, Batch(0, rollout, texts, nothing, range(PICTURES), advantages, advantages)


def moved(policy: Policy, seed: int, by: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters:
        parameter.data += by * torch.randn(parameter.shape, generator=generator)


def settings(folder: str, name: str) -> dict[str, Any]:
    return {
        "output_dir": f"{folder}/{name}",
        "sample_batch_size": PICTURES,
        "sample_num_batches_per_epoch": 1,
        "max_sequence_length": 12,
        "overwrite": True,
    }


def gradient(loss: Tensor, policy: Policy) -> Tensor:
    """Of all trained parameters, in one vector."""
    found = torch.autograd.grad(loss, policy.parameters, allow_unused=True)
    pairs = zip(found, policy.parameters, strict=True)
    return torch.cat([torch.zeros(p.numel()) if g is None else g.flatten() for g, p in pairs])


def nft_rows(checkout: Path, folder: str) -> Iterator[dict[str, Any]]:
    """DiffusionNFT: the loss at every timestep that it trains on, with both strengths, and the old policy's decay."""
    script = checkout / "scripts" / "train_nft_sd3.py"
    for beta in (1.0, 0.1):
        args = NFTConfig(**settings(folder, "nft"), nft_beta=beta, train_kl_coefficient=1e-4)
        trainer, batch = prepared(NFT(args), folder)
        method, policy, conditioning = trainer.method, trainer.policy, batch.rollout.conditioning
        network = Network(policy, method.old)
        rows, steps = (
            torch.arange(PICTURES),
            torch.randperm(STEPS - 1, generator=torch.Generator().manual_seed(0))[:PICTURES],
        )
        optimality = torch.as_tensor(batch.advantages / args.train_adv_clip_max / 2 + 0.5).clamp(0, 1)
        totals = Totals(("train/loss", "policy/distance_to_old", "policy/prediction_norm", "policy/kl"))
        ours = method._losses(batch, optimality, "0/0", True, totals, rows, steps).mean()
        scope: dict[str, Any] = {
            "torch": torch,
            "noise": noise_again(method, batch, "0/0", rows, steps).noise,
            "train_sample_batch": {
                "latents_clean": batch.rollout.final,
                "timesteps": method.sampler.stepper.timesteps[steps][:, None],
                "advantages": torch.as_tensor(batch.advantages)[:, None],
            },
            "j_idx": 0,
            "config": SimpleNamespace(
                beta=beta,
                use_lora=True,
                train=SimpleNamespace(adv_clip_max=args.train_adv_clip_max, adv_mode="all", beta=1e-4),
            ),
            "torch_autocast": lambda **_: nullcontext(),
            "enable_amp": False,
            "mixed_precision_dtype": None,
            "transformer_ddp": network,
            "embeds": conditioning.embeds,
            "pooled_embeds": conditioning.pooled,
        }
        run_statements(script, "x0", "loss", scope, leave_out=["noise"])
        yield from compared(f"DiffusionNFT, beta {beta:g}", ours, scope["loss"], policy)
    decay = functions(script, "return_decay")["return_decay"]
    for kind, (rate, most, start) in {0: (0.0, 0.0, 0), 1: (0.001, 0.5, 0), 2: (0.0075, 0.999, 75)}.items():
        args = NFTConfig(nft_old_decay=rate, nft_old_decay_max=most, nft_old_decay_from=start)
        differences = [abs(decay(step, kind) - old_decay(args, step)) for step in range(1000)]
        yield exact(f"DiffusionNFT, decay of the old policy, type {kind}, 1000 steps", max(differences))


def flow_grpo_rows(checkout: Path, folder: str) -> Iterator[dict[str, Any]]:
    """Flow-GRPO: the loss of every Gaussian step, without and with guidance, then the KL."""
    script = checkout / "scripts" / "train_sd3.py"
    patch = checkout / "flow_grpo" / "diffusers_patch" / "sd3_sde_with_logprob.py"
    step_with = functions(patch, "sde_step_with_logprob", torch=torch, math=math)["sde_step_with_logprob"]
    log_prob = functions(script, "compute_log_prob", torch=torch, sde_step_with_logprob=step_with)["compute_log_prob"]
    for guidance in (1.0, 4.5):
        options = settings(folder, "flow_grpo") | {"sample_guidance_scale": guidance, "train_kl_coefficient": None}
        trainer, batch = prepared(FlowGRPO(FlowGRPOConfig(**options)), folder)
        trainer.policy.pipeline.scheduler.set_timesteps(STEPS)
        for step in (0, 4, STEPS - 2):
            yield from flow_grpo_step(script, log_prob, trainer, batch, step)


def flow_grpo_step(script: Path, log_prob: Any, trainer: Any, batch: Batch, step: int) -> Iterator[dict[str, Any]]:
    """Loss and KL of one step of all pictures."""
    method, policy, rollout, args = trainer.method, trainer.policy, batch.rollout, trainer.method.args
    stepper, conditioning, guidance = method.sampler.stepper, rollout.conditioning, args.sample_guidance_scale
    assert rollout.latents is not None and rollout.log_probs is not None
    embeds, pooled = conditioning.guided() if guidance > 1 else (conditioning.embeds, conditioning.pooled)
    rows, steps, at = torch.arange(PICTURES), torch.full((PICTURES,), step), rollout.latents[:, step]
    totals = Totals(MEANS, PEAKS)
    scope = {
        "torch": torch,
        "compute_log_prob": log_prob,
        "autocast": nullcontext,
        "transformer": Network(policy),
        "pipeline": policy.pipeline,
        "sample": {
            "latents": rollout.latents[:, :-1],
            "next_latents": rollout.latents[:, 1:],
            "log_probs": rollout.log_probs,
            "timesteps": stepper.timesteps.expand(PICTURES, -1),
            "advantages": torch.as_tensor(batch.advantages)[:, None].expand(-1, STEPS),
        },
        "j": step,
        "embeds": embeds,
        "pooled_embeds": pooled,
        "config": SimpleNamespace(
            train=SimpleNamespace(cfg=guidance > 1, beta=0.0, adv_clip_max=5, clip_range=args.train_clip_range),
            sample=SimpleNamespace(guidance_scale=guidance, noise_level=args.sample_noise_level),
        ),
    }

    def their(name: str, kl: float) -> Tensor:
        scope["config"].train.beta = kl
        run_statements(script, "log_prob", "loss", scope)
        found: Tensor = scope[name]
        return found

    def our_kl() -> Tensor:
        with torch.no_grad(), policy.base_model():
            base = method.sampler.step(policy, at, steps, conditioning)
        return kl_divergence(method.sampler.step(policy, at, steps, conditioning), base).mean()

    def our_loss() -> Tensor:
        return method._losses(batch, np.clip(batch.advantages, -5, 5), False, False, totals, rows, steps).mean()

    elapsed = float(stepper.sigmas[step] - stepper.sigmas[step + 1])
    because, ours = GUIDED if guidance > 1 else "", our_loss()
    clipped = float(totals.metrics(trainer.accelerator)["policy/clip_fraction"])
    what = f"Flow-GRPO, guidance {guidance:g}, step {step} ({clipped:.0%} of ratios out of range)"
    yield from compared(what, ours, their("loss", 0.0), policy, because)
    yield from compared(f"{what}, |dt| KL", elapsed * our_kl(), their("kl_loss", 1.0), policy, because)
    if guidance > 1:
        with unconditional_detached(policy):
            yield from compared(f"{what}, detached here too", our_loss(), their("loss", 0.0), policy)
    kls = [float(kl.detach()) for kl in (our_kl(), their("kl_loss", 1.0))]
    yield {
        "what": f"{what}, KL",
        "found": f"{kls[0]:.3g} and {kls[1]:.3g}",
        "difference": abs(kls[0] / kls[1] - 1),
        "equal": False,
        "because": "ours is the KL of the two Gaussians, whose variance is sd^2 |dt|; upstream leaves out |dt|",
    }


def guard_rows(checkout: Path, folder: str) -> Iterator[dict[str, Any]]:
    """GRPO-Guard, as verl-omni has it: the loss of three steps, with its own clip range and with one that most keep."""
    file = checkout / "verl_omni" / "trainer" / "diffusion" / "diffusion_algos.py"
    named = {"register_diffusion_loss": lambda _: lambda loss: loss, "DiffusionLossFn": object, "TensorDict": dict}
    types = {"Any": Any, "Optional": Optional, "DiffusionActorConfig": object, "DiffusionLossResult": object}
    theirs = functions(file, "GRPOGuardLoss", torch=torch, **named, **types)["GRPOGuardLoss"]
    for clip_range in (GRPOGuardConfig().train_clip_range, 0.5):
        args = GRPOGuardConfig(**settings(folder, "guard"), train_clip_range=clip_range, train_kl_coefficient=None)
        trainer, batch = prepared(GRPOGuard(args), folder)
        method, rollout = trainer.method, batch.rollout
        stepper, rows = method.sampler.stepper, torch.arange(PICTURES)
        assert rollout.latents is not None and rollout.log_probs is not None and rollout.means is not None
        for at in (0, 4, STEPS - 2):
            steps, totals = torch.full((PICTURES,), at), Totals(MEANS, PEAKS)
            ours = method._losses(batch, np.clip(batch.advantages, -5, 5), False, False, totals, rows, steps).mean()
            step = method.sampler.step(trainer.policy, rollout.latents[:, at], steps, rollout.conditioning)
            root = (stepper.sigmas[at] - stepper.sigmas[at + 1]).sqrt()
            loss, _ = theirs.compute_loss(
                old_log_prob=rollout.log_probs[:, at],
                log_prob=log_probability(rollout.latents[:, at + 1], step),
                advantages=torch.as_tensor(batch.advantages),
                config=SimpleNamespace(diffusion_loss=SimpleNamespace(adv_clip_max=5, clip_ratio=clip_range)),
                old_prev_sample_mean=rollout.means[:, at],
                prev_sample_mean=step.mean,
                std_dev_t=step.std / root,
                sqrt_dt=root,
            )
            clipped = float(totals.metrics(trainer.accelerator)["policy/clip_fraction"])
            what = f"GRPO-Guard, clip range {clip_range:g}, step {at} ({clipped:.0%} of ratios out of range)"
            yield from compared(what, ours, loss, trainer.policy)


@contextmanager
def unconditional_detached(policy: Policy) -> Iterator[None]:
    """Within this block our guided prediction has the gradient that upstream gives it."""

    def predict(latents: Tensor, timesteps: Tensor, conditioning: Conditioning, guidance_scale: float) -> Tensor:
        both = policy._call(torch.cat([latents] * 2), torch.cat([timesteps] * 2), *conditioning.guided())
        without, with_prompt = both.chunk(2)
        return without.detach() + guidance_scale * (with_prompt - without.detach())

    policy.predict = predict  # type: ignore[method-assign]
    try:
        yield
    finally:
        del policy.predict


def advantage_rows(checkout: Path) -> Iterator[dict[str, Any]]:
    """Advantages of both kinds: each prompt's own deviation, and that of all samples (upstream's default)."""
    tracker = functions(checkout / "flow_grpo" / "stat_tracking.py", "PerPromptStatTracker", np=np, torch=torch)
    rng = np.random.default_rng(0)
    prompts, rewards = [f"prompt {at // 24}" for at in range(48 * 24)], rng.normal(size=48 * 24).astype(np.float32)
    for whole in (False, True):
        theirs = tracker["PerPromptStatTracker"](global_std=whole).update(prompts, rewards)
        ours = PromptStatistics(24, 4).advantages(prompts, rewards, 1e-4, deviation_of_all=whole)
        yield exact(
            f"Advantages, {'the deviation of all samples' if whole else 'deviations by prompt'}",
            float(np.abs(ours - theirs).max()),
        )


GUIDED = (
    "upstream detaches the unconditional half of a guided prediction; ours is the gradient of the log-probability of "
    "the policy that drew the pictures, which both halves make"
)


def exact(what: str, difference: float) -> dict[str, Any]:
    return {
        "what": what,
        "found": f"largest difference {difference:.1e}",
        "difference": difference,
        "equal": difference <= TOLERANCE,
    }


def compared(what: str, ours: Tensor, theirs: Tensor, policy: Policy, because: str = "") -> list[dict[str, Any]]:
    """A row for the loss and one for its gradient."""
    mine, other = gradient(ours, policy), gradient(theirs, policy)
    slope = float((mine - other).norm() / other.norm())
    ours, theirs = ours.detach(), theirs.detach()
    loss = float((ours - theirs).abs() / theirs.abs())
    rows = [
        {"what": f"{what}, loss", "found": f"{float(ours):.7g} and {float(theirs):.7g}", "difference": loss},
        {"what": f"{what}, gradient", "found": f"relative difference {slope:.1e}", "difference": slope},
    ]
    for row, allowed in zip(rows, (TOLERANCE, 10 * TOLERANCE)):
        row["equal"] = float(row["difference"]) <= allowed  # type: ignore[arg-type]
    if because:
        rows[1]["because"] = because
    return rows


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _because(row: dict[str, Any]) -> str:
    return f"\n        {row['because']}" if row.get("because") and not row["equal"] else ""


if __name__ == "__main__":
    main()
