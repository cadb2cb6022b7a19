"""verl-omni: `compute_score` on a generated picture (`reward.reward_functions.<key>` of its visual reward manager).

    +reward.reward_functions.tifa.path=pkg://rewards.hosts.verl_omni +reward.reward_functions.tifa.name=compute_score
    +reward.reward_functions.tifa.reward_kwargs.config=reward.yaml

The picture comes as `solution_image`, never as `solution_str`. verl-omni is on no package index; this file is written
against the signature in its repository and tested on a stand-in of it. An abstention gets the mean of its prompt
(:class:`rewards.hosts.shared.Neutral`): verl-omni counts a failure as 0 otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rewards.hosts.shared import first_of, neutral, parts_of, resident_reward

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
        `score`, every part that was judged, and `abstained` (0 or 1).

    Raises:
        RewardsError: nothing could be judged from the start.
    """
    reward = resident_reward(config, **settings)
    prompt = first_of(dict(extra_info or {}), PROMPT_KEYS) or ground_truth
    text = prompt if isinstance(prompt, str) else None
    [score], scores = neutral(reward).score([solution_image], [text], [text])
    return {"score": score, **parts_of(scores)}
