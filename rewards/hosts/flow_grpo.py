"""flow_grpo, DiffusionNFT, AWM, ddpo-pytorch: a function `(images, prompts, metadata) -> (rewards, info)`.

    from rewards.hosts.flow_grpo import picture_reward
    score_functions["tifa"] = lambda: picture_reward("reward.yaml")

The second line goes behind the table `score_functions` in `multi_score` of `flow_grpo/rewards.py`; then
`config.reward_fn = {"tifa": 1.0}`. In ddpo-pytorch, `reward_fn = picture_reward("reward.yaml")`. An abstention gets the
mean of its prompt (:class:`rewards.hosts.shared.Neutral`): these trainers subtract that mean, into which NaN would
spread. They are on no package index: this file was run once in flow_grpo's `multi_score` (ac4c86e), and is tested by
its way of calling.
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
        filled = neutral(reward).score(images, list(prompts), list(prompts), **columns)
        return np.asarray(filled.overall, np.float32), reward.metrics(filled.scores)

    return score
