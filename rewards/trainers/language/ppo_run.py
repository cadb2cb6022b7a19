"""A PPO run of a vision-language policy on HarmonicEval, from settings to summary; files as in a GRPO run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewards.trainers.language.ppo import PPOConfig, PPOTrainer
from rewards.trainers.language.run import TextRun, run_text_trainer, trainer_arguments
from rewards.trainers.language.settings import PPORunConfig

__all__ = ["PPORunConfig", "run_ppo"]


def run_ppo(config: PPORunConfig) -> dict[str, Any]:
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
        >>> run_ppo(load_config(PPORunConfig, "configs/ppo_shapes.yaml"))["gains"]  # doctest: +SKIP
    """
    arguments = trainer_arguments(PPOConfig, config.trainer, Path(config.output_dir), config.seed)
    return run_text_trainer(config, TextRun("PPO", PPOTrainer, arguments))
