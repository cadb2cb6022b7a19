"""Settings of the text trainers' runs: policy, prompts, rewards, evaluation.

Nothing heavy is imported here, so that a mistyped key in a config is answered at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from rewards.errors import InputError
from rewards.runs.config import check_number


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
    """

    source: str
    train: dict[str, Any]
    held_out: dict[str, Any]
    prompt: str | None = None
    rename: dict[str, str] = field(default_factory=dict)


@dataclass
class OtherReward:
    """A TRL reward function beside HarmonicEval.

    Args:
        function: `package.module:function`.
        weight: its weight in the sum.
        optional: its None means "does not apply" and contributes 0, instead of "could not be judged".
    """

    function: str
    weight: float = 1.0
    optional: bool = False

    def __post_init__(self) -> None:
        _check_finite("reward.others weight", self.weight)


@dataclass
class RewardSettings:
    """What is trained on: HarmonicEval as one reward or one a criterion, alone or beside other functions.

    Args:
        judge: name or directory for `load_judge`.
        judge_options: further arguments of `load_judge` (`device`, `dtype`, `revision`, ...).
        task, criteria, gamma, normalize, min_rating_mass, prompts: of :class:`~rewards.HarmonicEval`.
        per_criterion: make every criterion a reward of its own.
        weight: weight of HarmonicEval beside others.
        criterion_weights: criterion -> weight, with `per_criterion`; default 1 each.
        others: further reward functions.
        max_failure_rate: the run stops when more texts than this share cannot be judged between two log lines.
    """

    judge: str
    judge_options: dict[str, Any] = field(default_factory=dict)
    task: str = "captioning"
    criteria: list[str] | None = None
    gamma: float = 0.75
    normalize: bool = True
    min_rating_mass: float = 0.1
    prompts: dict[str, str] | None = None
    per_criterion: bool = False
    weight: float = 1.0
    criterion_weights: dict[str, float] | None = None
    others: list[OtherReward] = field(default_factory=list)
    max_failure_rate: float = 0.5

    def __post_init__(self) -> None:
        check_number("reward.max_failure_rate", self.max_failure_rate, at_least=0, at_most=1)
        for name, weight in {"weight": self.weight, **(self.criterion_weights or {})}.items():
            _check_finite(f"reward {name}", weight)


@dataclass
class AuditSettings:
    """A judge that never trains.

    Args:
        judge: name or directory for `load_judge`: a second HarmonicEval with the settings of the first.
        judge_options: further arguments of `load_judge`.
        name: name of the judge's curve.
        function: instead of a judge, a TRL reward function as `package.module:function`, with its own name.
    """

    judge: str | None = None
    judge_options: dict[str, Any] = field(default_factory=dict)
    name: str = "AuditJudge"
    function: str | None = None

    def __post_init__(self) -> None:
        if (self.judge is None) == (self.function is None):
            raise InputError("an audit needs either a judge or a function")


@dataclass
class EvaluationSettings:
    """Evaluation on the held-out prompts, with fixed noise.

    Args:
        every: optimiser steps between evaluations; 0 for only before and after.
        batch_size: texts generated at a time.
        seed: of the noise.
        temperature: of the samples; default: the trainer's.
        num_samples: texts kept for the report at each evaluation.
        audits: judges that never train.
        audit_max_gap: the run stops when the gap between the reward and an audit has grown by more than this.
    """

    every: int = 0
    batch_size: int = 32
    seed: int = 0
    temperature: float | None = None
    num_samples: int = 8
    audits: list[AuditSettings] = field(default_factory=list)
    audit_max_gap: float | None = None

    def __post_init__(self) -> None:
        for name in ("every", "temperature", "num_samples", "audit_max_gap"):
            check_number(f"evaluation.{name}", getattr(self, name), at_least=0)
        check_number("evaluation.batch_size", self.batch_size, above=0)


@dataclass
class TextRunConfig:
    """Settings that the runs of all text trainers share; YAML mirrors them.

    Args:
        policy: the model that is trained.
        data: where prompts come from.
        reward: what is trained on.
        evaluation: how held-out prompts are judged.
        trainer: any arguments of the trainer's own config.
        output_dir: the run folder.
        seed: of training.
        resume: continue the run in `output_dir` from its newest whole checkpoint.
        overwrite: replace the run in `output_dir`.
    """

    policy: PolicySettings
    data: DataSettings
    reward: RewardSettings
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    trainer: dict[str, Any] = field(default_factory=dict)
    output_dir: str = "runs/text"
    seed: int = 0
    resume: bool = False
    overwrite: bool = False


@dataclass
class GRPORunConfig(TextRunConfig):
    """Settings of a GRPO or RLOO run; `trainer` takes any arguments of `trl.GRPOConfig` (or `RLOOConfig`).

    Args:
        algorithm: `grpo` or `rloo`.
    """

    output_dir: str = "runs/grpo"
    algorithm: Literal["grpo", "rloo"] = "grpo"


@dataclass
class PPORunConfig(TextRunConfig):
    """Settings of a PPO run; `trainer` takes any arguments of :class:`~rewards.trainers.language.ppo.PPOConfig`."""

    output_dir: str = "runs/ppo"


def _check_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value}")
