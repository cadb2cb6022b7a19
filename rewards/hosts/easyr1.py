"""EasyR1: `compute_score` on a batch (`worker.reward.reward_function=.../easyr1.py:compute_score`).

    worker.reward.reward_function=$(python -m rewards.hosts easyr1):compute_score
    worker.reward.reward_function_kwargs='{config: reward.yaml}'

EasyR1 hands pictures to no reward: put them into the ground truth, as JSON (`{"image": "dog.jpg"}`). An abstention gets
the mean of its prompt (:class:`rewards.hosts.shared.Neutral`), since EasyR1 needs a number for every sample. EasyR1 is
on no package index: this file was run once in the reward manager of its repository (b44b311), and is tested by the
manager's way of loading and calling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rewards.hosts.shared import PICTURE_KEYS, columns_of, first_of, neutral, read_label, resident_reward

REWARD_NAME = "rewards"
REWARD_TYPE = "batch"


def compute_score(
    reward_inputs: Sequence[Mapping[str, object]], config: str | None = None, **settings: object
) -> list[dict[str, float]]:
    """The rewards of a batch.

    Args:
        reward_inputs: N mappings with `response` and `ground_truth` (JSON with the picture).
        config, settings: of :func:`rewards.hosts.shared.resident_reward`.

    Returns:
        N mappings: `overall`, every part, and `abstained`.

    Raises:
        InputError: a ground truth that is no JSON object.
        RewardsError: nothing could be judged from the start.
    """
    labels = [read_label(row["ground_truth"]) for row in reward_inputs]
    reward = resident_reward(config, **settings)
    pictures = [first_of(label, PICTURE_KEYS) for label in labels]
    texts = [text if isinstance(text := row.get("response"), str) else None for row in reward_inputs]
    groups = [str(row["ground_truth"]) for row in reward_inputs]
    filled = neutral(reward).score(pictures, texts, groups, **columns_of(labels))
    return [{"overall": value, **filled.metrics(row)} for row, value in enumerate(filled.overall)]
