"""The learning rate of a run that is extended: it goes on from where it was, and never jumps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import TrainerCallback
from transformers.trainer_callback import CallbackHandler, ExportableState

from rewards.errors import InputError


class Plan(NamedTuple):
    """From step `since` on, the run was meant to end at step `steps`."""

    since: int
    steps: int


def place_in_schedule(plans: Sequence[Plan], step: int) -> float:
    """Where on the first plan's schedule a step stands, in a run whose end was moved.

    When the end is moved at step s from N to M, the rest of the schedule is stretched over the new rest: step t > s
    stands where s + (t - s) (N - s) / (M - s) stood. The learning rate is continuous at s, and ends as it would have.

    Args:
        plans: oldest first; the first begins at 0.
        step: of the run.

    Example:
        >>> [place_in_schedule([Plan(0, 10), Plan(5, 15)], step) for step in (4, 5, 10, 15)]
        [4.0, 5.0, 7.5, 10.0]
    """
    place = float(step)
    for before, after in reversed(list(pairwise(plans))):
        if place > after.since:
            place = after.since + (place - after.since) * (before.steps - after.since) / (after.steps - after.since)
    return place


class SchedulePlans(TrainerCallback, ExportableState):
    """Keeps in every checkpoint when the run was meant to end.

    Args:
        plans: so far; a run that begins has none.
        step: the step that the run goes on from.
    """

    def __init__(self, plans: Sequence[Plan] = (), step: int = 0) -> None:
        self.plans = list(plans)
        self.step = step

    @classmethod
    def of_checkpoint(cls, checkpoint: str | Path) -> SchedulePlans:
        """The plans of the run that a checkpoint is of."""
        state = json.loads((Path(checkpoint) / "trainer_state.json").read_text("utf-8"))
        kept = (state.get("stateful_callbacks") or {}).get(cls.__name__) or {}
        plans = kept.get("attributes", {}).get("plans") or [[0, state["max_steps"]]]
        return cls([Plan(*plan) for plan in plans], state["global_step"])

    def move(self, steps: int) -> None:
        """Set the end of the run."""
        if not self.plans or self.step == 0:
            self.plans = [Plan(0, steps)]
        elif steps != self.plans[-1].steps:
            self.plans.append(Plan(self.step, steps))

    def state(self) -> dict[str, object]:
        """For transformers, which writes it into `trainer_state.json`."""
        return {"args": {}, "attributes": {"plans": [list(plan) for plan in self.plans]}}


class ScheduleGoesOn:
    """Mix in before a TRL trainer: a run that is resumed with another number of steps keeps its learning rate
    continuous. Takes the plans from :class:`SchedulePlans` among the callbacks; without one nothing changes."""

    # Of transformers' trainers.
    callback_handler: CallbackHandler
    lr_scheduler: LambdaLR | None

    def create_scheduler(self, num_training_steps: int, *args: object, **kwargs: object) -> LRScheduler:
        """Build the schedule of the first plan, and walk it at the pace of the later ones."""
        found = [callback for callback in self.callback_handler.callbacks if isinstance(callback, SchedulePlans)]
        if not found or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, *args, **kwargs)  # type: ignore[misc]
        kept = found[0]
        extended = kept.plans[-1].steps if kept.plans else None
        kept.move(num_training_steps)
        scheduler = super().create_scheduler(kept.plans[0].steps, *args, **kwargs)  # type: ignore[misc]
        if len(kept.plans) == 1:
            return scheduler
        if not hasattr(scheduler, "lr_lambdas"):
            raise InputError("this lr_scheduler_type cannot be extended: resume with the steps that the run began with")
        if kept.step == extended and all(f(kept.plans[0].steps) < 1e-3 for f in scheduler.lr_lambdas):
            raise InputError(
                f"the run had reached the end of its learning-rate schedule at step {kept.step}: beyond it the rate is "
                "0. Begin another run with more steps, or one with lr_scheduler_type: constant"
            )
        scheduler.lr_lambdas = [
            lambda step, factor=factor: factor(place_in_schedule(kept.plans, step)) for factor in scheduler.lr_lambdas
        ]
        return scheduler
