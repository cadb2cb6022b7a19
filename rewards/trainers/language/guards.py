"""What stops a language trainer's run that would be ruined, or would look well while nothing happens."""

from __future__ import annotations

import logging
from typing import Any

from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from rewards.errors import RewardsError
from rewards.runs.trl_keys import failure_rates
from rewards.trainers.finite import all_finite, check_finite
from rewards.trainers.idle import IdleRun
from rewards.trainers.language.reward_state import RewardState

logger = logging.getLogger(__name__)

SPREAD = "train/score_spread"
"""Largest minus smallest score of the texts of a step, logged by a trainer that does not compare texts in groups."""


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
        logs: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        """Look at one log line."""
        for name, rate in failure_rates(logs or {}).items():
            if rate > self.max_failure_rate:
                raise RewardsError(
                    f"stopped at step {state.global_step}: {rate:.0%} of the texts could not be judged by "
                    f"{name} (max_failure_rate is {self.max_failure_rate:.0%}); the reasons are in the warnings above"
                )


class IdleGuard(TrainerCallback):
    """Warns when nothing can be learned, and stops the run when that goes on (:class:`rewards.trainers.idle.IdleRun`):
    no group of texts has a spread, or where texts are not compared in groups (PPO), none has another score.

    Args:
        patience: log lines in a row without any spread after which the run stops.
    """

    def __init__(self, patience: int) -> None:
        self._run = IdleRun(patience, "texts")

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        """Look at one log line."""
        logs = logs or {}
        without_spread, spread = logs.get("frac_reward_zero_std"), logs.get(SPREAD)
        if "loss" not in logs:
            return
        if without_spread is not None:
            self._run.take(without_spread < 1, f"step {state.global_step}")
        elif spread is not None:
            self._run.take(spread > 0, f"step {state.global_step}")


class FiniteSteps(TrainerCallback):
    """Skips an optimiser step whose gradient is not finite, on all processes, and stops the run after too many.

    A NaN that reaches the weights stays: the adapter is saved with it, and every resumed run begins with it. Skipped
    steps are counted in `skipped`.

    Args:
        max_skipped: steps in a row that may be skipped.
    """

    def __init__(self, max_skipped: int = 10) -> None:
        self.max_skipped = max_skipped
        self.skipped = 0
        self._in_a_row = 0

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: object,
    ) -> None:
        """Look at the gradients, which are the same on all processes by now."""
        parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
        if all_finite([parameter.grad for parameter in parameters]):
            self._in_a_row = 0
            return
        for parameter in parameters:
            parameter.grad = None  # the optimiser passes over it, its moments stay
        self.skipped += 1
        self._in_a_row += 1
        logger.warning("step %d: the gradient is not finite; the step is skipped", state.global_step + 1)
        if self._in_a_row > self.max_skipped:
            raise RewardsError(
                f"stopped at step {state.global_step + 1}: the gradient was not finite for {self._in_a_row} steps in a "
                f"row (max_skipped_steps is {self.max_skipped}); lower the learning rate, or look for what overflows"
            )


class FiniteWeights:
    """Mix in before a TRL trainer: steps whose gradient is not finite are skipped (:class:`FiniteSteps`) and counted in
    the log lines as `train/skipped_steps`, and no checkpoint holds a value that is not finite."""

    # Of transformers' trainers.
    accelerator: Accelerator
    callback_handler: CallbackHandler
    model: nn.Module
    optimizer: Optimizer | None

    _logged_skips = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        if not self._finite_steps():
            self.callback_handler.add_callback(FiniteSteps())

    def log(self, logs: dict[str, float], *args: object, **kwargs: object) -> None:
        """Log a line, with the steps that were skipped since the last one."""
        if "loss" in logs:
            total = sum(guard.skipped for guard in self._finite_steps())
            logs["train/skipped_steps"] = total - self._logged_skips
            self._logged_skips = total
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def _finite_steps(self) -> list[FiniteSteps]:
        return [callback for callback in self.callback_handler.callbacks if isinstance(callback, FiniteSteps)]

    def save_model(self, *args: object, **kwargs: object) -> None:
        """Write the trained weights.

        Raises:
            RewardsError: a value is not finite.
        """
        check_finite(trained_values(self))
        super().save_model(*args, **kwargs)  # type: ignore[misc]

    def _save_checkpoint(self, *args: object, **kwargs: object) -> None:
        kept = {type(c).__name__: c.state() for c in self.callback_handler.callbacks if isinstance(c, RewardState)}
        check_finite(trained_values(self) | kept)
        super()._save_checkpoint(*args, **kwargs)  # type: ignore[misc]


def trained_values(trainer: FiniteWeights) -> dict[str, object]:
    """What a checkpoint of a TRL trainer keeps: trained weights (a value head among them), the running statistics of
    normalisation layers, and what the optimiser has gathered."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    weights = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    running = {name: buffer for name, buffer in model.named_buffers() if name.endswith(("running_mean", "running_var"))}
    moments = getattr(trainer.optimizer, "state", None) or {}
    return {**weights, **running, "optimizer": list(moments.values())}
