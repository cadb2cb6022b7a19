"""A GRPO or RLOO run of a vision-language policy on HarmonicEval, from settings to summary.

The trainers are TRL's, with an importance ratio that starts at exactly 1; this module builds what they need, evaluates
on held-out prompts with fixed noise, and writes the run folder: `config.yaml`, `reward.json`, `metrics.jsonl`,
`samples.jsonl`, `evaluations.jsonl`, `summary.json` and `adapter/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from rewards.trainers.language.on_policy import RatioFromOne
from rewards.trainers.language.run import TextRun, run_text_trainer, trainer_arguments
from rewards.trainers.language.settings import GRPORunConfig
from rewards.trainers.language.shared_metrics import MetricsOfAllProcesses

__all__ = ["GRPORunConfig", "run_grpo"]


class ExactGRPOTrainer(RatioFromOne, MetricsOfAllProcesses, GRPOTrainer):
    """TRL's `GRPOTrainer` with a ratio that starts at exactly 1 and counts over all processes (see its mixins)."""


class ExactRLOOTrainer(RatioFromOne, MetricsOfAllProcesses, RLOOTrainer):
    """TRL's `RLOOTrainer` with a ratio that starts at exactly 1 and counts over all processes (see its mixins)."""


_TRAINERS: dict[str, tuple[Any, Any]] = {
    "grpo": (ExactGRPOTrainer, GRPOConfig),
    "rloo": (ExactRLOOTrainer, RLOOConfig),
}


def run_grpo(config: GRPORunConfig) -> dict[str, Any]:
    """Train, with an evaluation before and after.

    Args:
        config: the settings.

    Returns:
        The summary, as in `summary.json` (see :func:`rewards.trainers.language.run.summarize`).

    Raises:
        InputError: settings that cannot be used.
        RewardsError: the run was stopped (judge failing, policy gaming its judge).

    Example:
        >>> from rewards.runs.config import load_config
        >>> run_grpo(load_config(GRPORunConfig, "configs/grpo_shapes.yaml"))["gains"]  # doctest: +SKIP
    """
    trainer_class, config_class = _TRAINERS[config.algorithm]
    arguments = trainer_arguments(config_class, config.trainer, Path(config.output_dir), config.seed)
    return run_text_trainer(config, TextRun(config.algorithm.upper(), trainer_class, arguments))
