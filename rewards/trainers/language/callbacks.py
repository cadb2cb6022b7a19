"""What the text trainers add to a TRL trainer: metrics.jsonl, held-out evaluation, and a stop when judging fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import ProgressCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.models import unwrap_model_for_generation

from rewards.errors import RewardsError
from rewards.runs.metrics import MetricsLog
from rewards.runs.samples import Phase, SampleLog
from rewards.trainers.language.evaluation import TextEvaluation, TextEvaluationLog
from rewards.trainers.language.generation import row_pictures
from rewards.trainers.language.held_out import HeldOut

# The final log line of transformers' Trainer describes the whole run, not a step.
_RUN_TOTALS = ("train_", "total_flos")


def metric_keys(logs: Mapping[str, Any]) -> dict[str, Any]:
    """TRL's log keys as they stand in `metrics.jsonl`.

    `eval_x` becomes `eval/x`; TRL's own `rewards/<function>/mean` becomes `rewards/<function>/overall/mean`, so that a
    plain reward function has the same shape as one with parts; totals of the whole run are left out.

    Example:
        >>> metric_keys({"eval_rewards/length/mean": 1.0, "train_runtime": 9.0, "kl": 0.1})
        {'eval/rewards/length/overall/mean': 1.0, 'kl': 0.1}
    """
    renamed = {}
    for key, value in logs.items():
        if key.startswith(_RUN_TOTALS):
            continue
        key = f"eval/{key.removeprefix('eval_')}" if key.startswith("eval_") else key
        parts = key.split("/")
        if parts[-1] in ("mean", "std") and parts[-3:-2] == ["rewards"]:
            key = "/".join([*parts[:-1], "overall", parts[-1]])
        renamed[key] = value
    return renamed


class MetricsCallback(TrainerCallback):
    """Appends everything that a TRL trainer logs to `metrics.jsonl`, on the main process.

    When a run is resumed, lines after the checkpoint are dropped: the curve continues without a repeated stretch.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.log = MetricsLog(Path(folder) / "metrics.jsonl")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self.log.keep_until(_last_kept(state))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        metrics = metric_keys(logs or {})
        if state.is_world_process_zero and metrics.keys() - {"epoch"}:
            self.log.append(state.global_step, metrics)


class QuietProgress(ProgressCallback):
    """The trainer's progress bar with the reward beside it, instead of a printed dict a step."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero and self.training_bar is not None and (logs or {}).get("reward") is not None:
            self.training_bar.set_postfix(reward=f"{(logs or {})['reward']:.3f}")


class AbstentionGuard(TrainerCallback):
    """Stops the run when too many texts could not be judged: a dead judge must not look like a flat curve.

    Args:
        max_failure_rate: largest share of texts that may abstain between two log lines, by any reward that logs
            `rewards/<name>/abstained` and `rewards/<name>/overall/count`.
    """

    def __init__(self, max_failure_rate: float) -> None:
        self.max_failure_rate = max_failure_rate

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        for key, abstained in (logs or {}).items():
            if not key.startswith("rewards/") or not key.endswith("/abstained") or abstained is None:
                continue
            judged = (logs or {}).get(key.removesuffix("abstained") + "overall/count") or 0
            rate = abstained / (abstained + judged) if abstained else 0.0
            if rate > self.max_failure_rate:
                raise RewardsError(
                    f"stopped at step {state.global_step}: {rate:.0%} of the texts could not be judged by "
                    f"{key.split('/')[1]} (max_failure_rate is {self.max_failure_rate:.0%}); the reasons are in the "
                    "warnings above"
                )


class HeldOutCallback(TrainerCallback):
    """Evaluates before the first step, every so many steps, and at the end.

    Call :meth:`attach` with the trainer before training: the policy must be unwrapped for generation.

    Args:
        held_out: prompts and judges.
        folder: the run folder; gets lines in `metrics.jsonl` (through the trainer's log), `samples.jsonl` and
            `evaluations.jsonl`.
        every: optimiser steps between evaluations; 0 for only before and after.
    """

    def __init__(self, held_out: HeldOut, folder: str | Path, every: int = 0) -> None:
        self.held_out = held_out
        self.every = every
        self.samples = SampleLog(folder)
        self.evaluations = TextEvaluationLog(folder)
        self.trainer: Any = None

    def attach(self, trainer: Any) -> None:
        """Tell the callback which trainer it belongs to."""
        self.trainer = trainer
        trainer.callback_handler.callbacks.insert(0, _LastEvaluation(self))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self.samples.keep_until(_last_kept(state))
            self.evaluations.keep_until(_last_kept(state))
        if state.global_step == 0:
            self.evaluate("before", state)
        elif evaluated := self.evaluations.read():
            self.held_out.restore_gaps(evaluated[0]["rewards"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.every and state.global_step % self.every == 0 and state.global_step < state.max_steps:
            self.evaluate("during", state)

    def evaluate(self, phase: Phase, state: TrainerState) -> None:
        """Evaluate now, on every process; what was found is logged as any other log line.

        Raises:
            AuditGapExceeded: the policy gains on its own judge what it does not gain on an audit.
        """
        trainer = self.trainer
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
            evaluation = self.held_out.evaluate(
                model, trainer.processing_class, trainer.accelerator.process_index, trainer.accelerator.num_processes
            )
        if state.is_world_process_zero:
            self.evaluations.append(state.global_step, evaluation)
            self._keep_samples(phase, state.global_step, evaluation)
        # Trackers and metrics.jsonl hear of it as of any log line; trainer.log() would close TRL's averaging window.
        logs = {f"eval_{key.removeprefix('eval/')}": value for key, value in evaluation.metrics.items()}
        due = trainer.control.should_log  # the handler takes any log line for the one that was due
        trainer.callback_handler.on_log(trainer.args, state, trainer.control, logs)
        trainer.control.should_log = due
        self.held_out.check_gaps()

    def _keep_samples(self, phase: Phase, step: int, evaluation: TextEvaluation) -> None:
        main = next(iter(evaluation.rewards.values()))
        for index in range(min(self.held_out.num_samples, len(evaluation.texts))):
            row = self.held_out.rows[index]
            pictures = row_pictures(row)
            self.samples.append(
                step,
                phase,
                prompt=_last_user_text(row["prompt"]),
                image=pictures[0] if pictures else None,
                text=evaluation.texts[index],
                score=main["overall"][index],
                parts={part: values[index] for part, values in main.items() if part != "overall"},
                details=[
                    {"judge": name, **{part: values[index] for part, values in parts.items()}}
                    for name, parts in evaluation.rewards.items()
                ],
            )


class _LastEvaluation(TrainerCallback):
    """Comes before the trackers, which close their run at the end of training: a later log line would open another."""

    def __init__(self, held_out: HeldOutCallback) -> None:
        self.held_out = held_out

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.held_out.evaluate("after", state)


def _last_kept(state: TrainerState) -> int:
    # A run that starts at the beginning, because it was killed before its first checkpoint, keeps nothing.
    return state.global_step or -1


def _last_user_text(prompt: Sequence[Mapping[str, Any]]) -> str:
    content = [message["content"] for message in prompt if message["role"] == "user"][-1]
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")
