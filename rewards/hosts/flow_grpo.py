"""flow_grpo, DiffusionNFT, ddpo-pytorch: a function `(images, prompts, metadata) -> (rewards, info)`.

    from rewards.hosts.flow_grpo import picture_reward
    reward_fn = picture_reward("reward.yaml")

Rewards of this package have that signature themselves; the function differs in what an abstention gets. These trainers
subtract a group's mean, into which NaN would spread, so it gets that mean (:class:`rewards.hosts.shared.Neutral`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rewards.hosts.shared import neutral, resident_reward

PictureFunction = Callable[..., tuple[np.ndarray, dict[str, float]]]


def picture_reward(config: str | None = None, **settings: object) -> PictureFunction:
    """A reward function for trainers of the diffusion field.

    Args:
        config, settings: of :func:`rewards.hosts.shared.resident_reward`.

    Returns:
        A function of `(images, prompts, metadata)`: images `(N, 3, H, W)` in [0, 1] or `(N, H, W, 3)` of bytes; it
        returns `(N,)` float32 without NaN, and the metrics of the batch.
    """
    reward = resident_reward(config, **settings)

    def score(
        images: Sequence[object], prompts: Sequence[str], metadata: Sequence[object] | None = None
    ) -> tuple[np.ndarray, dict[str, float]]:
        columns = {} if metadata is None else {"metadata": metadata}
        values, scores = neutral(reward).score(images, list(prompts), list(prompts), **columns)
        return np.asarray(values, np.float32), reward.metrics(scores)

    return score
