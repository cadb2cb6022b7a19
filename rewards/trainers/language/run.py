"""A run of GRPO, RLOO or PPO, from settings to summary; what it writes is listed in :mod:`rewards.runs.folder`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, ProgressCallback, TrainerState, set_seed
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from rewards.audit.before import ROWS, audit_before
from rewards.build import build_reward
from rewards.calling import part_functions
from rewards.errors import InputError
from rewards.generation.checkpoints import checkpoint_of
from rewards.judges.weights import content_of_folder
from rewards.reward import Reward
from rewards.runs.best import BestByAudit
from rewards.runs.card import ModelFacts, write_card
from rewards.runs.config import save_config
from rewards.runs.evaluations import EvaluationLog
from rewards.runs.files import Json, Row, write_json
from rewards.runs.folder import RunFolder, begin_run
from rewards.runs.identity import as_json
from rewards.runs.metrics import read_metrics
from rewards.runs.summary import format_summary, summarize
from rewards.trainers.language.arguments import MAY_CHANGE, own_settings, trainer_arguments, trainer_identity
from rewards.trainers.language.curves import MetricsCallback, QuietProgress
from rewards.trainers.language.data import content_of, load_prompts, true_texts
from rewards.trainers.language.evaluation import HeldOutCallback
from rewards.trainers.language.grpo import ExactGRPOTrainer
from rewards.trainers.language.guards import AbstentionGuard, FiniteSteps, IdleGuard
from rewards.trainers.language.held_out import HeldOut
from rewards.trainers.language.policy import check_policy, load_policy
from rewards.trainers.language.ppo import PPOConfig, PPOTrainer
from rewards.trainers.language.reward_state import RewardState
from rewards.trainers.language.rloo import ExactRLOOTrainer
from rewards.trainers.language.schedule import SchedulePlans
from rewards.trainers.language.settings import LanguageRunConfig, OwnTrainerSettings

METHODS: Mapping[str, tuple[Callable[..., GRPOTrainer | RLOOTrainer], type[GRPOConfig | RLOOConfig]]] = {
    "grpo": (ExactGRPOTrainer, GRPOConfig),
    "rloo": (ExactRLOOTrainer, RLOOConfig),
    "ppo": (PPOTrainer, PPOConfig),
}
"""Trainer and config of every algorithm."""


@dataclass
class _Parts:
    """What a run is made of, before the policy is loaded."""

    own: OwnTrainerSettings
    arguments: Any
    reward: Reward
    audits: list[Reward]
    train: Dataset
    held_out: Dataset


@contextmanager
def _quiet_about_old_names() -> Iterator[None]:
    """Hide what only TRL and peft can mend: they ask a model for `is_gradient_checkpointing`, its name before 5.24."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        yield


@_quiet_about_old_names()
def run_language(config: LanguageRunConfig) -> dict[str, Json]:
    """Train, with an evaluation before and after.

    Args:
        config: the settings.

    Returns:
        The summary, as in `summary.json` (see :func:`rewards.runs.summary.summarize`).

    Raises:
        InputError: settings that cannot be used, a run that was begun otherwise, or one that another process works on.
        RewardsError: the run was stopped (judge failing, policy gaming its judge, gradients not finite, nothing to
            learn).

    Example:
        >>> from rewards.runs.config import load_config
        >>> run_language(load_config(LanguageRunConfig, "configs/grpo_shapes.yaml"))["reward"]  # doctest: +SKIP
    """
    folder = RunFolder(Path(config.output_dir))
    parts = _build(config, folder)
    lock = folder.lock() if parts.arguments.process_index == 0 else None
    try:
        return _run(config, parts, folder)
    finally:
        if lock is not None:
            lock.release()


def _run(config: LanguageRunConfig, parts: _Parts, folder: RunFolder) -> dict[str, Json]:
    arguments = parts.arguments
    with arguments.main_process_first(local=False):
        # The others come when the folder is fresh, or holds what is to be continued.
        main = arguments.process_index == 0
        checkpoint = begin_run(
            folder, _identity(config, parts) if main else {}, resume=config.resume, overwrite=config.overwrite,
            may_change=MAY_CHANGE, main=main,
        )  # fmt: skip
    if main:
        save_config(config, folder.config)
    if main and config.audit_before and checkpoint is None:
        audit_before(parts.reward, true_texts(parts.held_out, config.data, ROWS), folder.path, drawn=False)
    trainer = _trainer(config, parts, folder, checkpoint)
    _train(trainer, checkpoint)
    trainer.save_model(str(folder.adapter))
    evaluations = EvaluationLog(folder.path).read()
    summary = summarize(evaluations) | {"best_step": BestByAudit().read(evaluations).step}
    if main:
        write_json(folder.summary, summary)
        save_config(config, folder.adapter / "config.yaml")
        (folder.adapter / "training_args.bin").unlink(missing_ok=True)  # a pickle of what config.yaml says
        _write_cards(config, parts, folder, summary)
    return summary


def training_functions(reward: Reward, own: OwnTrainerSettings) -> tuple[list[Callable[..., object]], list[float]]:
    """What TRL trains on and the weights: the reward as a whole, or each part that it names beforehand.

    Raises:
        InputError: parts are asked for and the reward names none, or weights are given to parts that it does not have.
    """
    if not own.per_criterion:
        return [reward], [1.0]
    parts = reward.parts_to_train()
    if not parts:
        raise InputError(f"per_criterion: {reward.__name__} does not say beforehand which parts its samples have")
    chosen = dict(own.criterion_weights)
    weights = [weight * chosen.get(name, chosen.get(name.rpartition("/")[2], 1.0)) for name, weight in parts.items()]
    known = {*parts, *(name.rpartition("/")[2] for name in parts)}
    if unknown := [name for name in chosen if name not in known]:
        raise InputError(f"criterion_weights names {unknown[0]!r}; the parts are {', '.join(parts)}")
    return list(part_functions(reward, list(parts))), weights


def _build(config: LanguageRunConfig, folder: RunFolder) -> _Parts:
    own = own_settings(config.trainer)
    arguments = trainer_arguments(METHODS[config.algorithm][1], config.trainer, folder.checkpoints, config.seed)
    if config.reward.standardize == "running" and arguments.world_size > 1:
        raise InputError(
            f"reward.standardize: running needs one process, and there are {arguments.world_size}: each would learn a "
            "scale of its own from its share of a group"
        )
    check_policy(config.policy)
    train, held_out = (load_prompts(config.data, rows) for rows in (config.data.train, config.data.held_out))
    reward = build_reward(config.reward)  # from here on judges load: what can be wrong without one was said before
    training_functions(reward, own)
    audits = [build_reward(audit) for audit in config.evaluation.audits]
    if len({audit.__name__ for audit in audits}) < len(audits):
        raise InputError(f"audits must have different names, got {[audit.__name__ for audit in audits]}; set name")
    for name, rows in (("train", train), ("held_out", held_out)):
        _check_columns([reward, *audits] if name == "held_out" else [reward], rows, name)
    return _Parts(own, arguments, reward, audits, train, held_out)


def _check_columns(rewards: Sequence[Reward], rows: Dataset, name: str) -> None:
    columns = {column: rows[column] for column in rows.column_names if column not in ("image", "images")}
    try:
        for reward in rewards:
            reward.check_columns(columns)
    except InputError as error:
        raise InputError(f"data.{name}: {error}") from error


def _identity(config: LanguageRunConfig, parts: _Parts) -> dict[str, Json]:
    """What the result of the run depends on."""
    path = checkpoint_of(config.policy.path)
    data = {"train": content_of(parts.train), "held_out": content_of(parts.held_out), "cluster": config.data.cluster}
    return {
        "algorithm": config.algorithm,
        "seed": config.seed,
        "policy": {**_fields(config.policy), "weights": content_of_folder(path) if Path(path).is_dir() else None},
        "data": data,
        "reward": parts.reward.identity(),
        "evaluation": {key: value for key, value in _fields(config.evaluation).items() if key != "audits"},
        "audits": {audit.__name__: audit.identity() for audit in parts.audits},
        "trainer": trainer_identity(config.trainer, parts.arguments, parts.own),
    }


def _fields(settings: object) -> dict[str, Json]:
    return dict(as_json(settings))  # type: ignore[arg-type]


def _trainer(
    config: LanguageRunConfig, parts: _Parts, folder: RunFolder, checkpoint: Path | None
) -> GRPOTrainer | RLOOTrainer:
    set_seed(config.seed)  # the adapter's weights are drawn before the trainer sets its seed
    model, processor, lora = load_policy(config.policy)
    arguments, own, settings = parts.arguments, parts.own, config.evaluation
    functions, arguments.reward_weights = training_functions(parts.reward, own)
    held_out = HeldOut(
        parts.held_out,
        parts.reward,
        parts.audits,
        max_new_tokens=arguments.max_completion_length,
        temperature=settings.temperature if settings.temperature is not None else arguments.temperature,
        batch_size=settings.batch_size,
        seed=settings.seed,
        cluster=config.data.cluster,
    )
    evaluation = HeldOutCallback(
        held_out, folder.path, every=settings.every, num_samples=settings.num_samples, max_gap=own.audit_max_gap
    )
    plans = SchedulePlans.of_checkpoint(checkpoint) if checkpoint is not None else SchedulePlans()
    guards = [AbstentionGuard(own.max_failure_rate), FiniteSteps(own.max_skipped_steps), IdleGuard(own.max_idle_steps)]
    try:
        trainer = METHODS[config.algorithm][0](
            model=model,
            reward_funcs=functions,
            args=arguments,
            train_dataset=parts.train,
            processing_class=processor,
            peft_config=lora,
            callbacks=[MetricsCallback(folder.path), evaluation, plans, RewardState(parts.reward, checkpoint), *guards],
        )
    except (ValueError, ImportError) as error:  # adapter targets, a tracker, vLLM missing
        raise InputError(f"{config.algorithm.upper()}: {str(error).strip().splitlines()[0]}") from error
    evaluation.attach(trainer)
    trainer.remove_callback(PrinterCallback)
    if trainer.pop_callback(ProgressCallback) is not None:
        trainer.add_callback(QuietProgress)
    return trainer


def _train(trainer: GRPOTrainer | RLOOTrainer, checkpoint: Path | None) -> None:
    """Train, or where a checkpoint already holds the last step, only evaluate: Trainer would add one step to it."""
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        last = trainer.args.max_steps if trainer.args.max_steps > 0 else state.max_steps
        if state.global_step >= last:
            trainer._load_from_checkpoint(str(checkpoint))
            state.is_local_process_zero, state.is_world_process_zero = (
                trainer.is_local_process_zero(),
                trainer.is_world_process_zero(),
            )
            trainer.state = state
            trainer.callback_handler.on_train_begin(trainer.args, state, trainer.control)
            trainer.callback_handler.on_train_end(trainer.args, state, trainer.control)
            return
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)


def failure_rate(rows: Sequence[Mapping[str, float | None]], name: str) -> float | None:
    """Share of training texts that a reward could not judge, from the lines of `metrics.jsonl`.

    Returns:
        None if nothing was logged.

    Example:
        >>> failure_rate([{"rewards/J/abstained": 1, "rewards/J/overall/count": 3}], "J")
        0.25
    """
    abstained = sum(row.get(f"rewards/{name}/abstained") or 0 for row in rows)
    judged = sum(row.get(f"rewards/{name}/overall/count") or 0 for row in rows)
    return abstained / (abstained + judged) if abstained + judged else None


def _write_cards(config: LanguageRunConfig, parts: _Parts, folder: RunFolder, summary: Row) -> None:
    """The model card, in the run folder and beside the weights."""
    facts = ModelFacts(
        title=folder.path.name,
        method=config.algorithm.upper(),
        base_model=checkpoint_of(config.policy.path),
        revision=config.policy.revision,
        adapter=(folder.adapter / "adapter_config.json").exists(),
        reward=parts.reward.identity(),
        summary=format_summary(summary),
        failure_rate=failure_rate(read_metrics(folder.path), parts.reward.__name__),
        run_folder=folder.path,
        processes=parts.arguments.world_size,
    )
    for path in (folder.card, folder.adapter / "README.md"):
        write_card(path, "language", facts)
