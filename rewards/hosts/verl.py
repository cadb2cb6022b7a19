"""verl: `compute_score`, one sample a call (verl 0.9, `reward.custom_reward_function`).

Two settings in the host's command:

    reward.custom_reward_function.path=pkg://rewards.hosts.verl
    +reward.custom_reward_function.reward_kwargs.config=reward.yaml

The picture of a sample is in `extra_info` (`image`: path, bytes, or a list), put there when the parquet file is made;
so are `question` and `box`, where the task needs them. verl cannot leave a sample out (NaN poisons the batch, None
raises), so an abstention gets the mean of its prompt (:class:`rewards.hosts.shared.Neutral`); `abstained` counts them.
Samples of one prompt are those of the same `extra_info["index"]`, or of the same picture and question where there is
none.

verl asks from `reward.num_workers` processes (8). Each makes the reward for itself and fills an abstention with what it
judged itself, so that a judge of 7B belongs behind `rewards serve`, whose URL is the `judge` of `reward.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rewards.hosts.shared import PICTURE_KEYS, columns_of, first_of, neutral, resident_reward, without_router


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, object] | None = None,
    config: str | None = None,
    **settings: object,
) -> dict[str, float]:
    """The reward of one completion.

    Args:
        data_source: verl's name of the data set; not looked at.
        solution_str: the completion.
        ground_truth: not looked at.
        extra_info: picture, question and box of the sample.
        config, settings: of :func:`rewards.hosts.shared.resident_reward`, from `reward_kwargs`.

    Returns:
        `score`, every part, and `abstained` (0 or 1), as verl's extra metrics; it needs the same keys of all samples.

    Raises:
        RewardsError: nothing could be judged from the start.
    """
    info = dict(extra_info or {})
    reward = resident_reward(config, **without_router(settings))
    picture = first_of(info, PICTURE_KEYS)
    columns = columns_of([info])
    group = info["index"] if info.get("index") is not None else repr((picture, columns))
    filled = neutral(reward).score([picture], [solution_str], [group], **columns)
    return {"score": filled.overall[0], **filled.metrics()}
