"""Readable rewards for fine-tuning generators: HarmonicEval for models that write, TIFA for models that draw.

The public names load on first use, so that `import rewards` stays free of torch and transformers.

Example:
    >>> import rewards
    >>> sorted(rewards.__all__)[:3]
    ['Combined', 'DDPOConfig', 'DDPOTrainer']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rewards._version import __version__ as __version__
from rewards.errors import InputError, RewardsError

if TYPE_CHECKING:
    from rewards.combined import Combined
    from rewards.functions import FunctionReward
    from rewards.harmonic.reward import HarmonicEval
    from rewards.judges.loading import load_judge
    from rewards.reward import Reward
    from rewards.rubric.reward import Rubric
    from rewards.scores import Scores
    from rewards.tifa.questions.question import Question
    from rewards.tifa.reward import TIFA
    from rewards.tifa.store.store import QuestionStore
    from rewards.tifa.vqascore import VQAScore
    from rewards.trainers.diffusion.ddpo import DDPOConfig, DDPOTrainer
    from rewards.trainers.language.curves import MetricsCallback
    from rewards.trainers.language.ppo import PPOConfig, PPOTrainer

_HOMES = {
    "Combined": "rewards.combined",
    "DDPOConfig": "rewards.trainers.diffusion.ddpo",
    "DDPOTrainer": "rewards.trainers.diffusion.ddpo",
    "FunctionReward": "rewards.functions",
    "HarmonicEval": "rewards.harmonic.reward",
    "MetricsCallback": "rewards.trainers.language.curves",
    "PPOConfig": "rewards.trainers.language.ppo",
    "PPOTrainer": "rewards.trainers.language.ppo",
    "Question": "rewards.tifa.questions.question",
    "QuestionStore": "rewards.tifa.store.store",
    "Reward": "rewards.reward",
    "Rubric": "rewards.rubric.reward",
    "Scores": "rewards.scores",
    "TIFA": "rewards.tifa.reward",
    "VQAScore": "rewards.tifa.vqascore",
    "load_judge": "rewards.judges.loading",
}

__all__ = [
    "TIFA",
    "Combined",
    "DDPOConfig",
    "DDPOTrainer",
    "FunctionReward",
    "HarmonicEval",
    "InputError",
    "MetricsCallback",
    "PPOConfig",
    "PPOTrainer",
    "Question",
    "QuestionStore",
    "Reward",
    "RewardsError",
    "Rubric",
    "Scores",
    "VQAScore",
    "load_judge",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rewards' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
