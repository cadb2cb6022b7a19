"""TRL's GRPO as this package drives it."""

from __future__ import annotations

from trl import GRPOTrainer

from rewards.trainers.language.guards import FiniteWeights
from rewards.trainers.language.on_policy import RatioFromOne
from rewards.trainers.language.schedule import ScheduleGoesOn
from rewards.trainers.language.shared_metrics import MetricsOfAllProcesses


class ExactGRPOTrainer(RatioFromOne, MetricsOfAllProcesses, FiniteWeights, ScheduleGoesOn, GRPOTrainer):
    """TRL's `GRPOTrainer` with a ratio that starts at exactly 1, counts over all processes, and weights that stay
    finite (see its mixins)."""
