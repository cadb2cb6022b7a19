"""One run of a text trainer: the same for GRPO, RLOO and PPO."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, ProgressCallback, TrainerState, set_seed

from rewards.errors import InputError
from rewards.runs.config import check_number, load_config, save_config
from rewards.runs.files import write_whole
from rewards.runs.folder import prepare_folder
from rewards.runs.metrics import read_metrics
from rewards.runs.paired_gain import paired_gain
from rewards.trainers.language.callbacks import AbstentionGuard, HeldOutCallback, MetricsCallback, QuietProgress
from rewards.trainers.language.card import CardFacts, check_same_reward, failure_rate, write_model_card
from rewards.trainers.language.evaluation import TextEvaluationLog
from rewards.trainers.language.settings import TextRunConfig
from rewards.trainers.language.setup import checkpoint_of, load_policy, load_prompts, make_held_out, make_rewards


@dataclass
class TextRun:
    """The trainer of a run.

    Attributes:
        name: of the method.
        trainer_class: TRL's trainer or a subclass.
        arguments: its config.
    """

    name: str
    trainer_class: Any
    arguments: Any


def trainer_arguments(config_class: type, chosen: Mapping[str, Any], folder: Path, seed: int) -> Any:
    """TRL's config from the user's `trainer:` settings; everything else as suits this package.

    Args:
        config_class: `GRPOConfig` or a like.
        chosen: the user's settings.
        folder: the run folder.
        seed: of training.

    Raises:
        InputError: an argument that the class does not have, or of the wrong type, or checkpoints that could not be
            continued exactly.
    """
    on_gpu = torch.cuda.is_available()
    defaults = {
        "use_cpu": not on_gpu,
        "bf16": on_gpu and torch.cuda.is_bf16_supported(),
        "gradient_checkpointing": on_gpu,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "remove_unused_columns": False,  # reward functions read the dataset's columns
    }
    fixed = {"output_dir": str(folder), "seed": seed}
    settings = _current_names(config_class, {**defaults, **chosen, **fixed})
    try:
        arguments: Any = load_config(config_class, overrides=settings)
    except InputError as error:
        raise InputError(f"trainer: {str(error).removeprefix('overrides: ')}") from error
    check_number("trainer.learning_rate", arguments.learning_rate, at_least=0)
    check_number("trainer.temperature", arguments.temperature, above=0)
    check_number("trainer.num_iterations", arguments.num_iterations, above=0)
    _check_checkpoint_period(arguments)
    return arguments


def _current_names(config_class: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`gradient_checkpointing` under the name that the installed transformers wants; it warns of the other."""
    new = {"gradient_checkpointing": "activation_checkpointing"}
    new["gradient_checkpointing_kwargs"] = "activation_checkpointing_kwargs"
    known = {field.name for field in dataclasses.fields(config_class)}
    return {new[key] if new.get(key) in known else key: value for key, value in settings.items()}


def _check_checkpoint_period(arguments: Any) -> None:
    # A checkpoint between two generations cannot be continued exactly: completions that were already generated but not
    # yet trained on are not in it.
    if arguments.save_strategy != "steps":
        return
    batches = arguments.steps_per_generation * arguments.num_iterations
    if (arguments.save_steps * arguments.gradient_accumulation_steps) % batches:
        raise InputError(
            f"trainer.save_steps = {arguments.save_steps:g} falls between two generations: make save_steps x "
            f"gradient_accumulation_steps a multiple of steps_per_generation x num_iterations = {batches}"
        )


@contextmanager
def _quiet_about_old_names() -> Iterator[None]:
    """Hide what only TRL and peft can mend: they ask a model for `is_gradient_checkpointing`, its name before 5.24."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        yield


@_quiet_about_old_names()
def run_text_trainer(config: TextRunConfig, run: TextRun) -> dict[str, Any]:
    """Build everything, train, and write the run folder.

    Returns:
        The summary (see :func:`summarize`).
    """
    folder = Path(config.output_dir)
    rewards = make_rewards(config.reward)
    train, held_out_rows = (load_prompts(config.data, part) for part in (config.data.train, config.data.held_out))
    arguments = run.arguments
    held_out = make_held_out(
        config.evaluation, config.reward, rewards, held_out_rows, arguments.max_completion_length, arguments.temperature
    )
    with arguments.main_process_first(local=False):
        # The others come when the folder is fresh, or holds what is to be continued.
        main = arguments.process_index == 0
        checkpoint = prepare_folder(folder, config.resume or not main, config.overwrite)
    identity = rewards.identity()
    if checkpoint is not None and (folder / "reward.json").exists():
        check_same_reward(json.loads((folder / "reward.json").read_text("utf-8")), identity, folder)
    if main:
        save_config(config, folder / "config.yaml")
        write_whole(folder / "reward.json", json.dumps(identity, indent=2) + "\n")

    set_seed(config.seed)  # the adapter's weights are drawn before the trainer sets its seed
    model, processor, lora = load_policy(config.policy)
    arguments.reward_weights = rewards.weights
    evaluation = HeldOutCallback(held_out, folder, config.evaluation.every)
    trainer = _new_trainer(
        run,
        model=model,
        reward_funcs=rewards.functions,
        args=arguments,
        train_dataset=train,
        processing_class=processor,
        peft_config=lora,
        callbacks=[MetricsCallback(folder), evaluation, AbstentionGuard(config.reward.max_failure_rate)],
    )
    evaluation.attach(trainer)
    trainer.remove_callback(PrinterCallback)
    if trainer.pop_callback(ProgressCallback) is not None:
        trainer.add_callback(QuietProgress)
    _train(trainer, checkpoint)
    trainer.save_model(str(folder / "adapter"))
    summary = summarize(TextEvaluationLog(folder).read())
    if main:
        write_whole(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        save_config(config, folder / "adapter" / "config.yaml")
        (folder / "adapter" / "training_args.bin").unlink(missing_ok=True)  # a pickle of what config.yaml says
        facts = CardFacts(
            algorithm=run.name,
            base_model=checkpoint_of(config.policy),
            revision=config.policy.revision,
            identity=rewards.identity(),  # now with how pictures were read
            summary_table=format_summary(summary),
            failed=failure_rate(read_metrics(folder), rewards.harmonic.__name__),
            processes=arguments.world_size,
        )
        write_model_card(folder / "adapter", facts)
    return summary


def _new_trainer(run: TextRun, **parts: Any) -> Any:
    """The trainer; what TRL, peft and transformers refuse (adapter targets, a tracker, vLLM missing) in one line."""
    try:
        return run.trainer_class(**parts)
    except (ValueError, ImportError) as error:
        raise InputError(f"{run.name}: {str(error).strip().splitlines()[0]}") from error


def _train(trainer: Any, checkpoint: str | None) -> None:
    """Train, or where a checkpoint already holds the last step, only evaluate: Trainer would add one step to it."""
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        last = trainer.args.max_steps if trainer.args.max_steps > 0 else state.max_steps
        if state.global_step >= last:
            trainer._load_from_checkpoint(checkpoint)
            state.is_local_process_zero, state.is_world_process_zero = (
                trainer.is_local_process_zero(),
                trainer.is_world_process_zero(),
            )
            trainer.state = state
            trainer.callback_handler.on_train_begin(trainer.args, state, trainer.control)
            trainer.callback_handler.on_train_end(trainer.args, state, trainer.control)
            return
    trainer.train(resume_from_checkpoint=checkpoint)


def summarize(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """First against last evaluation, paired by prompt.

    Args:
        evaluations: rows of `evaluations.jsonl`.

    Returns:
        `steps` (of the two evaluations) and `gains`: reward or audit name -> part -> `before`, `after` (means) and
        `gain`, `low`, `high` (95% interval over prompts), `count` (prompts judged both times). Numbers that do not
        exist are None.
    """
    if not evaluations:
        return {"steps": [], "gains": {}}
    first, last = evaluations[0], evaluations[-1]
    gains: dict[str, dict[str, Any]] = {}
    for name, parts in last["rewards"].items():
        gains[name] = {}
        for part, after in parts.items():
            before = first["rewards"].get(name, {}).get(part)
            if before is None:
                continue
            gain = dataclasses.asdict(paired_gain(before, after))
            gain["gain"] = gain.pop("mean")
            row = {"before": _mean(before), "after": _mean(after), **gain}
            gains[name][part] = {key: None if value != value else value for key, value in row.items()}
    return {"steps": [first["step"], last["step"]], "gains": gains}


def _mean(values: Sequence[float | None]) -> float | None:
    judged = [value for value in values if value is not None]
    return sum(judged) / len(judged) if judged else None


def format_summary(summary: Mapping[str, Any]) -> str:
    """The summary as a table for people.

    Example:
        >>> gain = {"before": 3.0, "after": 3.5, "gain": 0.5, "low": 0.4, "high": 0.6, "count": 8}
        >>> print(format_summary({"steps": [0, 9], "gains": {"HarmonicEval": {"overall": gain}}}))
        held-out prompts, step 0 -> 9          before    after     gain  95% interval      prompts
        HarmonicEval overall                    3.000    3.500   +0.500  [+0.400, +0.600]        8
    """
    if not summary["steps"]:
        return "no evaluation was made"
    first, last = summary["steps"]
    title = f"held-out prompts, step {first} -> {last}"
    lines = [f"{title:<36} {'before':>8} {'after':>8} {'gain':>8}  {'95% interval':<16} {'prompts':>8}"]
    for name, parts in summary["gains"].items():
        for part, row in parts.items():
            means = f"{_plain(row['before']):>8} {_plain(row['after']):>8} {_signed(row['gain']):>8}"
            interval = f"[{_signed(row['low'])}, {_signed(row['high'])}]"
            lines.append(f"{f'{name} {part}':<36} {means}  {interval:<16} {row['count']:>8}")
    return "\n".join(lines)


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"
