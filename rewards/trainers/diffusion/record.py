"""What a run's result depends on: settings, rewards, prompts and the base model."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rewards.errors import InputError
from rewards.reward import Json, Reward
from rewards.trainers.diffusion.stages import Stages

MAY_CHANGE = frozenset(
    "run_name output_dir log_with tracker_project_name tracker_kwargs num_epochs save_freq num_checkpoint_limit resume "
    "overwrite gradient_checkpointing allow_tf32 sample_batch_size sample_num_batches_per_epoch train_batch_size "
    "train_gradient_accumulation_steps async_reward_computation max_workers max_failure_rate train_max_skipped_steps "
    "eval_freq eval_batch_size num_logged_samples audit_freq audit_max_gap".split()
)
"""Settings with which a resumed run may differ from what it was: its length, what it logs and saves, how it is spread
over processes and memory, and when it stops. Batch sizes are among them because only their products matter
(`samples_per_epoch` and `samples_per_step` in the identity)."""


Prompts = tuple[Sequence[str], Sequence[Mapping[str, object]]]
"""Texts, and a mapping for each."""


def identity(
    stages: Stages,
    rewards: Mapping[str, Reward | None],
    prompts: Mapping[str, Prompts],
    num_processes: int,
    model: Json,
) -> dict[str, Json]:
    """The identity of a run, JSON only.

    Args:
        stages: Methods and settings.
        rewards: By their part in the run (`reward`, `eval_reward`, `audit`).
        prompts: Texts and metadata by their part in the run.
        num_processes: Among which an epoch is divided.
        model: Identity of the base model (:func:`base_model`).
    """
    settings = stages.identity(MAY_CHANGE)
    for values, method in zip(settings, stages, strict=True):
        args = method.args
        values["samples_per_epoch"] = args.samples_per_epoch(num_processes)
        values["samples_per_step"] = args.train_batch_size * args.train_gradient_accumulation_steps * num_processes
    texts = list(dict.fromkeys(text for part, _ in prompts.values() for text in part))
    return {
        "settings": settings[0] if len(settings) == 1 else settings,
        **{name: None if reward is None else _described(reward, texts) for name, reward in rewards.items()},
        "prompts": {name: _digest(part) for name, part in prompts.items()},
        "model": model,
    }


def base_model(pipeline: Any) -> dict[str, Json]:
    """The identity of a pipeline as it was loaded: its class, its path, and a fingerprint of every part's weights.

    The fingerprint reads names, shapes and the ends of every tensor, so that it costs nothing for large models.
    """
    components = getattr(pipeline, "components", {})  # what is no pipeline is refused with a clear error later
    parts = {name: _fingerprint(part) for name, part in components.items() if isinstance(part, nn.Module)}
    return {"class": type(pipeline).__name__, "weights": parts}


def _fingerprint(module: nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in module.state_dict().items():
        flat = tensor.detach().flatten()
        ends = torch.cat([flat[:8], flat[-8:]]).float().cpu()
        digest.update(f"{name} {tuple(tensor.shape)} {ends.tolist()}".encode())
    return digest.hexdigest()


def _described(reward: Reward, texts: Sequence[str]) -> dict[str, Json]:
    return {"name": reward.__name__, "identity": reward.identity(texts)}


def _digest(prompts: Prompts) -> str:
    plain = [[text, dict(extra)] for text, extra in zip(*prompts, strict=True)]
    return hashlib.blake2b(json.dumps(plain, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def check_same(folder: Path, now: Mapping[str, Json]) -> None:
    """Refuse to go on with a run that depends on something else.

    Raises:
        InputError: Names each difference.
    """
    path = folder / "identity.json"
    try:
        then = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: what the run depends on cannot be read: {error}") from error
    changed = differences(then, json.loads(json.dumps(now)))
    if changed:
        raise InputError(f"{folder} holds a run with other settings: " + "; ".join(changed))


def differences(then: Json, now: Json, where: str = "") -> list[str]:
    """Each place where two JSON values differ, as `settings.seed was 0 and is now 1`."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        keys = dict.fromkeys([*then, *now])
        return [line for key in keys for line in differences(then.get(key), now.get(key), f"{where}.{key}".strip("."))]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [line for i, pair in enumerate(zip(then, now)) for line in differences(*pair, f"{where}[{i}]")]
    return [] if then == now else [f"{where} was {then!r:.80} and is now {now!r:.80}"]


def remove_run(folder: Path) -> None:
    """Delete what a run left in its folder, and nothing else."""
    for name in ("metrics.jsonl", "samples.jsonl", "evaluations.jsonl", "identity.json", "summary.json"):
        (folder / name).unlink(missing_ok=True)
    for name in ("checkpoints", "samples", "adapter"):
        shutil.rmtree(folder / name, ignore_errors=True)
