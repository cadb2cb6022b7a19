"""DDPO without clipping: a method that does nothing new, in one file and without touching the loop."""

from dataclasses import dataclass

from torch import Tensor

from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.policy_gradient import PolicyGradient, Taken
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.steppers.base import Stepper


@dataclass
class UnclippedConfig(DiffusionConfig):
    """One setting beside the shared ones."""

    sample_eta: float = 1.0


class Unclipped(PolicyGradient[UnclippedConfig]):
    """The plain importance-weighted policy gradient."""

    name = "unclipped"
    config_class = UnclippedConfig
    clip_range = float("inf")

    def new_stepper(self, policy: Policy) -> Stepper:
        return policy.stepper(self.args.sample_num_steps, self.args.sample_eta)

    def surrogate(self, ratio: Tensor, advantages: Tensor, taken: Taken) -> Tensor:
        return -advantages * ratio
