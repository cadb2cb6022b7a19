"""What a method is: it says what of a rollout to keep, and turns rollout and advantages into optimiser steps.

The loop (:mod:`rewards.trainers.diffusion.loop`) draws, decodes, scores, gathers, audits, evaluates, stops and resumes
in the same way for every method. A new one is a file here: settings derived from
:class:`rewards.trainers.diffusion.config.DiffusionConfig`, and a :class:`Method` with :meth:`Method.update`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
from accelerate import Accelerator
from torch import Tensor

from rewards.reward import Reward
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.optimization import Optimization
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.rollout import Rollout, Sampler, draw
from rewards.trainers.diffusion.steppers.base import Stepper

C = TypeVar("C", bound=DiffusionConfig, covariant=True)


@dataclass(frozen=True)
class Tools:
    """What the loop gives a method to work with."""

    policy: Policy
    optimization: Optimization
    accelerator: Accelerator
    reward: Reward


@dataclass(frozen=True)
class Batch:
    """An epoch's samples.

    Attributes:
        epoch: Its number in the run.
        rollout: Of this process's samples, in the order of their global indices.
        prompts: Their texts.
        metadata: Their mappings for the reward.
        local: Their global indices.
        rewards: (N,) float32 of the samples of all processes; NaN for those that could not be judged.
        advantages: (N,) float32 likewise; 0 for those that could not be judged.
    """

    epoch: int
    rollout: Rollout
    prompts: Sequence[str]
    metadata: Sequence[Mapping[str, object]]
    local: range
    rewards: np.ndarray
    advantages: np.ndarray


class Method(ABC, Generic[C]):
    """One way to learn from rewarded pictures.

    Args:
        args: Its settings.

    Attributes:
        name: In metrics, cards and YAML.
        config_class: The class of its settings.
        keep_steps: Whether rollouts keep every state and its log-probability.
        keep_means: Whether they keep every step's mean too.
        learns_from_advantages: Whether pictures of equal rewards teach nothing.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[DiffusionConfig]]
    keep_steps: ClassVar[bool] = False
    keep_means: ClassVar[bool] = False
    learns_from_advantages: ClassVar[bool] = True
    tools: Tools
    sampler: Sampler

    def __init__(self, args: C) -> None:
        self.args = args

    @property
    def needs_base(self) -> bool:
        """Whether the base model must be kept when the whole network is trained."""
        return self.args.train_kl_coefficient is not None

    @property
    def evaluation_noise(self) -> float:
        """How random the sampler of evaluations is (DDIM's eta)."""
        return self.args.eval_eta or 0.0

    def base_is_measured(self, epoch: int, last: bool = True) -> bool:
        """Whether an optimiser step runs the base model too: for its weight, or once in a while for the log.

        Args:
            epoch: In the run.
            last: Whether it is the epoch's last optimiser step.
        """
        if self.args.train_kl_coefficient == 0:
            return last and epoch % self.args.train_kl_log_freq == 0
        return self.args.train_kl_coefficient is not None

    def new_stepper(self, policy: Policy) -> Stepper:
        """The sampler of the training pictures: the pipeline's deterministic one, unless a method needs densities."""
        return policy.stepper(self.args.sample_num_steps, 0.0)

    def start(self, tools: Tools) -> None:
        """Called once before the method's first epoch.

        Raises:
            InputError: The pipeline or the reward does not fit the method.
        """
        self.tools = tools
        self.sampler = Sampler(self.new_stepper(tools.policy).to(tools.policy.device), self.args.sample_guidance_scale)

    def begin_epoch(self, epoch: int) -> None:
        """Called before an epoch's pictures are drawn."""

    def draw(self, prompts: Sequence[str], noise: Noise) -> Rollout:
        """Draw a batch of training pictures."""
        keep_from = 0 if self.keep_steps else None
        return draw(self.tools.policy, prompts, self.sampler, noise, keep_from, self.keep_means)

    @abstractmethod
    def update(self, batch: Batch) -> dict[str, float]:
        """Take an epoch's optimiser steps with `tools.optimization`.

        Returns:
            Metrics, the same on every process.
        """

    def state(self) -> dict[str, list[Tensor]]:
        """Tensors that a checkpoint must keep beside the policy (an older policy); nothing for most."""
        return {}

    def load_state(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        """Take over what :meth:`state` gave."""
