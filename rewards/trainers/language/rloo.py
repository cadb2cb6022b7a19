"""TRL's RLOO as this package drives it."""

from __future__ import annotations

from trl import RLOOTrainer

from rewards.trainers.language.guards import FiniteWeights
from rewards.trainers.language.on_policy import RatioFromOne
from rewards.trainers.language.schedule import ScheduleGoesOn
from rewards.trainers.language.shared_metrics import MetricsOfAllProcesses


class ExactRLOOTrainer(RatioFromOne, MetricsOfAllProcesses, FiniteWeights, ScheduleGoesOn, RLOOTrainer):
    """TRL's `RLOOTrainer` with a ratio that starts at exactly 1, counts over all processes, and weights that stay
    finite (see its mixins)."""
