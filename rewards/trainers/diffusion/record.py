"""What a run's result depends on: settings, rewards, prompts and the base model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import torch
from diffusers import DiffusionPipeline
from diffusers.configuration_utils import ConfigMixin
from torch import nn
from transformers import ImageProcessingMixin, PreTrainedModel, PreTrainedTokenizerBase

from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.runs.identity import as_json, content_hash
from rewards.trainers.diffusion.stages import Stages

MAY_CHANGE = frozenset(
    "run_name output_dir log_with tracker_project_name tracker_kwargs num_epochs save_freq num_checkpoint_limit resume "
    "overwrite gradient_checkpointing allow_tf32 sample_batch_size sample_num_batches_per_epoch train_batch_size "
    "train_gradient_accumulation_steps async_reward_computation max_workers max_failure_rate train_max_skipped_steps "
    "train_max_idle_epochs eval_freq eval_batch_size num_logged_samples audit_before audit_freq audit_max_gap "
    "train_kl_log_freq".split()
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
        "settings": as_json(settings[0] if len(settings) == 1 else settings),
        **{name: None if reward is None else _described(reward, texts) for name, reward in rewards.items()},
        "prompts": {
            name: content_hash([[text, dict(extra)] for text, extra in zip(*part, strict=True)])
            for name, part in prompts.items()
        },
        "model": model,
    }


def base_model(pipeline: DiffusionPipeline) -> dict[str, Json]:
    """The identity of a pipeline as it was loaded: its class, the weights of every part, and every part's config (of a
    tokenizer its vocabulary)."""
    components = getattr(pipeline, "components", {})  # what is no pipeline is refused with a clear error later
    parts = {name: _fingerprint(part) for name, part in components.items() if isinstance(part, nn.Module)}
    configs = {name: _config(part) for name, part in components.items()}
    kept: dict[str, Json] = {name: config for name, config in configs.items() if config is not None}
    return {"class": type(pipeline).__name__, "weights": parts, "configs": kept}


def _config(part: object) -> str | None:
    if isinstance(part, ConfigMixin):  # scheduler, VAE, denoiser
        settings = dict(part.config)
    elif isinstance(part, PreTrainedModel):  # text and image encoders
        settings = part.config.to_diff_dict()
    elif isinstance(part, PreTrainedTokenizerBase):
        special = {name: str(token) for name, token in part.special_tokens_map.items()}
        settings = {"vocabulary": part.get_vocab(), "special": special, "longest": part.model_max_length}
    elif isinstance(part, ImageProcessingMixin):
        settings = part.to_dict()
    else:
        return None
    # Where it was loaded from and by which version is not what it is; what is no JSON value is told by its text.
    told = {key: value for key, value in settings.items() if not key.startswith("_") and key != "transformers_version"}
    return content_hash(json.loads(json.dumps(told, default=str)))


def _fingerprint(module: nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _described(reward: Reward, texts: Sequence[str]) -> dict[str, Json]:
    return {"name": reward.__name__, "identity": reward.identity(texts)}
