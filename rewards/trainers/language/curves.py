"""From what a TRL trainer logs to `metrics.jsonl` (names: :mod:`rewards.runs.trl_keys`), and its progress bar."""

from __future__ import annotations

from pathlib import Path

from transformers import ProgressCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rewards.runs.metrics import MetricsLog
from rewards.runs.trl_keys import metric_keys


class MetricsCallback(TrainerCallback):
    """Appends everything that a TRL trainer logs to `metrics.jsonl`, on the main process.

    When a run is resumed, lines after the checkpoint are dropped: the curve continues without a repeated stretch.

    Args:
        folder: the run folder.

    Example:
        >>> GRPOTrainer(..., callbacks=[MetricsCallback("runs/mine")])  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.log = MetricsLog(Path(folder) / "metrics.jsonl")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Keep what lies before the checkpoint that the run goes on from."""
        if state.is_world_process_zero:
            self.log.keep_until(last_kept(state))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        """Write one line."""
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
        logs: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        """Show the reward."""
        if state.is_world_process_zero and self.training_bar is not None and (logs or {}).get("reward") is not None:
            self.training_bar.set_postfix(reward=f"{(logs or {})['reward']:.3f}")


def last_kept(state: TrainerState) -> int:
    """The last step whose lines a run that begins now keeps: none where it starts at the beginning, because it was
    killed before its first checkpoint."""
    return state.global_step or -1
