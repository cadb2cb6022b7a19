"""Flow-Factory: a pointwise reward model for pictures (`rewards:` in its YAML).

    rewards:
      - {name: tifa, reward_model: rewards.hosts.flow_factory.PictureReward, config: reward.yaml, batch_size: 16}

An abstention gets the mean of its prompt (:class:`rewards.hosts.shared.Neutral`). Flow-Factory is on no package index:
this file was run once in the loader and the reward processor of its repository (a0b2bc5), and is tested on stand-ins of
its two classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from flow_factory.rewards import PointwiseRewardModel, RewardModelOutput

from rewards.errors import InputError
from rewards.hosts.shared import neutral, resident_reward


class PictureReward(PointwiseRewardModel):
    """A reward of this package on Flow-Factory's pictures.

    Args:
        config: Flow-Factory's arguments of this reward; `config` among its extra arguments names the YAML file
            (default: the environment variable `REWARDS_CONFIG`).
        accelerator: Flow-Factory's.
    """

    required_fields = ("prompt", "image")

    def __init__(self, config: object, accelerator: object) -> None:
        super().__init__(config, accelerator)
        self.reward = resident_reward((getattr(config, "extra_kwargs", None) or {}).get("config"))

    def __call__(
        self, prompt: Sequence[str], image: Sequence[object] | None = None, **others: object
    ) -> RewardModelOutput:
        """The rewards of N pictures.

        Args:
            prompt: N prompts.
            image: N pictures: PIL, or tensors in [0, 1].
            others: videos, audio and conditions; not looked at.

        Raises:
            InputError: no pictures were given.
            RewardsError: nothing could be judged from the start.
        """
        if image is None:
            raise InputError("PictureReward needs pictures: Flow-Factory gave none")
        filled = neutral(self.reward).score(image, list(prompt), list(prompt))
        return RewardModelOutput(rewards=torch.tensor(filled.overall), extra_info=self.reward.metrics(filled.scores))
