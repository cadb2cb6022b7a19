"""The `reward` block of a YAML, with which any reward of the package can be compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewards.build import RewardSettings


@dataclass
class PairReward:
    """Settings of the reward that is compared; the block means the same in every command and trainer."""

    reward: RewardSettings = field(default_factory=RewardSettings)
