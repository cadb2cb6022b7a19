"""verl-omni: `compute_score` on a generated picture (`reward.reward_functions.<key>` of its visual reward manager).

    +reward.reward_functions.tifa.path=pkg://rewards.hosts.verl_omni +reward.reward_functions.tifa.name=compute_score
    +reward.reward_functions.tifa.config=reward.yaml

The picture comes as `solution_image`, never as `solution_str`. An abstention gets the mean of its prompt
(:class:`rewards.hosts.shared.Neutral`): verl-omni counts a failure as 0 otherwise. verl-omni is on no package index:
this file was run once in the reward manager of its repository (a1139ba), and is tested by the manager's way of calling.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rewards.hosts.shared import first_of, neutral, resident_reward, without_router

PROMPT_KEYS = ("prompt", "caption", "text")


def compute_score(
    data_source: str,
    solution_image: Tensor,
    ground_truth: object,
    extra_info: Mapping[str, object] | None = None,
    config: str | None = None,
    **settings: object,
) -> dict[str, float]:
    """The reward of one picture.

    Args:
        data_source: verl's name of the data set; not looked at.
        solution_image: uint8, `(3, H, W)` or `(H, W, 3)`.
        ground_truth: the prompt, where `extra_info` has none.
        extra_info: may hold the prompt (`prompt`, `caption` or `text`).
        config, settings: of :func:`rewards.hosts.shared.resident_reward`.

    Returns:
        `score`, every part, and `abstained` (0 or 1).

    Raises:
        RewardsError: nothing could be judged from the start.
    """
    reward = resident_reward(config, **without_router(settings))
    prompt = first_of(dict(extra_info or {}), PROMPT_KEYS) or ground_truth
    text = prompt if isinstance(prompt, str) else None
    filled = neutral(reward).score([solution_image], [text], [text])
    return {"score": filled.overall[0], **filled.metrics()}
