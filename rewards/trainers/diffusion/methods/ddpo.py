"""DDPO (Black et al. 2023, "Training Diffusion Models with Reinforcement Learning"): clipped importance-weighted policy
gradient over DDIM's steps (section 4.3), as ddpo-pytorch and TRL's old trainer take it. Defaults are TRL's.
"""

from __future__ import annotations

from dataclasses import dataclass

from rewards.errors import InputError
from rewards.runs.config import check_number
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.policy_gradient import PolicyGradient
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.steppers.base import Stepper


@dataclass
class DDPOConfig(DiffusionConfig):
    """Settings of DDPO beside those of :class:`DiffusionConfig`.

    Attributes:
        sample_eta: DDIM's eta in (0, 1]: the randomness that the policy gradient needs.
        train_timestep_fraction: Share of each sample's denoising steps to train on, drawn at random.
        train_clip_range: Clip range of the importance ratio. It is small because log-probabilities are averaged over
            latent dimensions.

    Example:
        >>> DDPOConfig(sample_batch_size=16, sample_num_images_per_prompt=8).sample_eta
        1.0
    """

    sample_eta: float = 1.0
    train_timestep_fraction: float = 1.0
    train_clip_range: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("train_clip_range", self.train_clip_range, above=0)
        check_number("train_timestep_fraction", self.train_timestep_fraction, above=0, at_most=1)
        if not 0 < self.sample_eta <= 1:
            raise InputError(
                f"sample_eta must lie in (0, 1], got {self.sample_eta}: a deterministic sampler has no policy gradient"
            )


class DDPO(PolicyGradient[DDPOConfig]):
    """DDPO with importance sampling and clipping, on DDIM."""

    name = "ddpo"
    config_class = DDPOConfig

    def __init__(self, args: DDPOConfig) -> None:
        super().__init__(args)
        self.clip_range = args.train_clip_range
        self.timestep_fraction = args.train_timestep_fraction

    @property
    def evaluation_noise(self) -> float:
        """As in training, unless `eval_eta` says otherwise."""
        return self.args.sample_eta if self.args.eval_eta is None else self.args.eval_eta

    def new_stepper(self, policy: Policy) -> Stepper:
        """DDIM with `sample_eta`."""
        return policy.stepper(self.args.sample_num_steps, self.args.sample_eta)
