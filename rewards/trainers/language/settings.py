"""Settings of a language trainer's run: policy, prompts, reward, evaluation, trainer.

Nothing heavy is imported here, so that a mistyped key in a config is answered at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from rewards.build import RewardSettings
from rewards.errors import InputError
from rewards.runs.config import check_number
from rewards.runs.folder import Resume

Algorithm = Literal["grpo", "rloo", "ppo"]


@dataclass
class PolicySettings:
    """The model that is trained.

    Args:
        path: checkpoint name or directory, or `shapes-captioner`.
        revision: branch, tag or commit.
        dtype: such as `bfloat16`; default float32 on a CPU, bfloat16 elsewhere.
        attn_implementation: as in `from_pretrained`.
        lora_rank: rank of the adapter; 0 trains all weights.
        lora_alpha: default: the rank (scale 1).
        lora_dropout: of the adapter's input.
        lora_target_modules: names of modules, or a regular expression over full names, or `all-linear`.
    """

    path: str
    revision: str | None = None
    dtype: str | None = None
    attn_implementation: str | None = None
    lora_rank: int = 16
    lora_alpha: int | None = None
    lora_dropout: float = 0.0
    lora_target_modules: list[str] | str = "all-linear"

    def __post_init__(self) -> None:
        check_number("policy.lora_rank", self.lora_rank, at_least=0)
        check_number("policy.lora_alpha", self.lora_alpha, above=0)
        check_number("policy.lora_dropout", self.lora_dropout, at_least=0, at_most=1)


@dataclass
class DataSettings:
    """Where prompts come from.

    Args:
        source: `package.module:function`, called with `train` and `held_out` and returning a `datasets.Dataset`; or a
            name or folder for `datasets.load_dataset`.
        train: arguments for the training prompts.
        held_out: arguments for the held-out prompts, which must not be trained on.
        prompt: the user's message, for data without a `prompt` column.
        rename: old column name -> new, to reach `image` or `images`, and what the rewards need (`question`, `box`).
        cluster: column that names what rows share (a scene, a document); intervals treat rows of one cluster as one.
            Default: `cluster` where the data has it, else rows with the same prompt and pictures.
        truth: column that holds a true text about each picture, for `audit_before`. Default: what the `scene` of the
            shapes world shows.
    """

    source: str
    train: dict[str, Any]
    held_out: dict[str, Any]
    prompt: str | None = None
    rename: dict[str, str] = field(default_factory=dict)
    cluster: str | None = None
    truth: str | None = None


@dataclass
class EvaluationSettings:
    """Evaluation on the held-out prompts, with fixed noise.

    Args:
        every: optimiser steps between evaluations; 0 for only before and after.
        batch_size: texts generated at a time.
        seed: of the noise.
        temperature: of the samples; default: the trainer's.
        num_samples: texts kept for the report with their pictures at each evaluation, and as many of those that the
            reward scores most above the first audit.
        audits: rewards that never train.
    """

    every: int = 0
    batch_size: int = 32
    seed: int = 0
    temperature: float | None = None
    num_samples: int = 8
    audits: list[RewardSettings] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("every", "temperature", "num_samples"):
            check_number(f"evaluation.{name}", getattr(self, name), at_least=0)
        check_number("evaluation.batch_size", self.batch_size, above=0)


@dataclass
class OwnTrainerSettings:
    """What `trainer:` takes beside the arguments of TRL's config.

    Args:
        per_criterion: make every part that the reward names beforehand a TRL reward function of its own (criteria of
            HarmonicEval, components of a combined reward), all from one pass of the judge.
        criterion_weights: part -> weight, with `per_criterion`; default 1 each.
        max_failure_rate: the run stops when more texts than this share cannot be judged between two log lines.
        max_skipped_steps: the run stops when more optimiser steps than this in a row were skipped because a gradient
            was not finite.
        max_idle_steps: the run stops after this many log lines in a row in which the rewards had no spread, so that
            nothing could be learned; it warns of the first.
        audit_max_gap: the run stops when the gap between the reward and an audit has grown by more than this.
    """

    per_criterion: bool = False
    criterion_weights: dict[str, float] = field(default_factory=dict)
    max_failure_rate: float = 0.5
    max_skipped_steps: int = 10
    max_idle_steps: int = 3
    audit_max_gap: float | None = None

    def __post_init__(self) -> None:
        check_number("trainer.max_failure_rate", self.max_failure_rate, at_least=0, at_most=1)
        check_number("trainer.max_skipped_steps", self.max_skipped_steps, at_least=0)
        check_number("trainer.max_idle_steps", self.max_idle_steps, above=0)
        check_number("trainer.audit_max_gap", self.audit_max_gap, at_least=0)
        for name, weight in self.criterion_weights.items():
            if not math.isfinite(weight):
                raise InputError(f"trainer.criterion_weights.{name} must be a finite number, got {weight}")
        if self.criterion_weights and not self.per_criterion:
            raise InputError("trainer.criterion_weights needs trainer.per_criterion: true")


@dataclass
class LanguageRunConfig:
    """A run of GRPO, RLOO or PPO; YAML mirrors it.

    Args:
        algorithm: `grpo`, `rloo` or `ppo`.
        policy: the model that is trained.
        data: where prompts come from.
        reward: what is trained on.
        evaluation: how held-out prompts are judged.
        trainer: any arguments of `trl.GRPOConfig`, `trl.RLOOConfig` or :class:`rewards.PPOConfig`, and those of
            :class:`OwnTrainerSettings`.
        audit_before: before training, audit the reward on some held-out rows (:mod:`rewards.audit`): print what it
            accepts, keep `audit.json` and `audit.html` in the run folder. Needs true texts (`data.truth`).
        output_dir: the run folder.
        seed: of training.
        resume: go on with the run in `output_dir`, where there is one (`auto` is the same as true).
        overwrite: replace the run in `output_dir`.
    """

    policy: PolicySettings
    data: DataSettings
    reward: RewardSettings
    algorithm: Algorithm = "grpo"
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    trainer: dict[str, Any] = field(default_factory=dict)
    audit_before: bool = False
    output_dir: str = "runs/language"
    seed: int = 0
    resume: Resume = False
    overwrite: bool = False
