"""DDPO under the name that TRL gave it; TRL removed its own in 2025."""

from __future__ import annotations

from collections.abc import Sequence

from diffusers import DiffusionPipeline

from rewards.functions import RewardLike
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods.ddpo import DDPO, DDPOConfig
from rewards.trainers.diffusion.plan import Prompt

__all__ = ["DDPOConfig", "DDPOTrainer"]


class DDPOTrainer(DiffusionTrainer):
    """Trains the network of a diffusion pipeline with DDPO: :class:`DiffusionTrainer` with
    :class:`~rewards.trainers.diffusion.methods.ddpo.DDPO`; arguments and errors as there.

    Example:
        >>> from rewards import DDPOConfig, DDPOTrainer
        >>> trainer = DDPOTrainer(pipeline, tifa, prompts, DDPOConfig(num_epochs=40))  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
        >>> pipeline.load_lora_weights("runs/ddpo/adapter")  # in another process  # doctest: +SKIP
    """

    def __init__(
        self,
        pipeline: DiffusionPipeline,
        reward: RewardLike,
        prompts: Sequence[Prompt],
        args: DDPOConfig,
        *,
        eval_prompts: Sequence[Prompt] | None = None,
        eval_reward: RewardLike | None = None,
        audit: RewardLike | None = None,
    ) -> None:
        super().__init__(
            pipeline, reward, prompts, DDPO(args), eval_prompts=eval_prompts, eval_reward=eval_reward, audit=audit
        )
