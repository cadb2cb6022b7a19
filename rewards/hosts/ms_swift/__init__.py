"""ms-swift: a reward registered as an ORM (ms-swift 4.6, `--external_plugins`).

    export REWARDS_CONFIG=reward.yaml
    --external_plugins $(python -m rewards.hosts ms_swift) --reward_funcs rewards

Pictures come from the data set's `images`; `question` and `box` columns are read where the task needs them. ms-swift
sums reward functions with `nansum`, in which None counts 0, even alone; an abstention therefore gets the mean of its
prompt (:class:`rewards.hosts.shared.Neutral`). The parts are logged as numbers (`log_metric`) where the trainer takes
them, and otherwise by this module's logger. (In a folder of its own, since ms-swift puts a plugin's folder before all
others on the path, where files named after hosts would hide them.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from swift.rewards import ORM, orms

from rewards.hosts.shared import BOX_KEYS, INPUT_KEYS, first_of, neutral, resident_reward
from rewards.trl_inputs import completion_text, prompt_text

logger = logging.getLogger(__name__)


class RewardsORM(ORM):
    """The reward of `REWARDS_CONFIG` in ms-swift's convention.

    Args:
        args: ms-swift's own; not looked at.
    """

    def __init__(self, args: object = None, **kwargs: object) -> None:
        super().__init__(args, **kwargs)
        self.reward = resident_reward()

    def __call__(self, completions: Sequence[object], **columns: Any) -> list[float]:
        """The rewards of N completions.

        Args:
            completions: N texts.
            columns: the data set's columns: `images` (N lists of paths, bytes or `{"bytes", "path"}`), `messages`,
                `prompt_id`, and what the task needs.

        Raises:
            RewardsError: nothing could be judged from the start.
        """
        count = len(completions)
        pictures = first_of(columns, ("images", "image")) or [None] * count
        messages = columns.get("messages") or [None] * count
        given = {"inputs": first_of(columns, INPUT_KEYS) or [prompt_text(m) for m in messages]}
        if (boxes := first_of(columns, BOX_KEYS)) is not None:
            given["boxes"] = boxes
        texts = [completion_text(completion) for completion in completions]
        groups = columns.get("prompt_id") or [repr(row) for row in zip(pictures, given["inputs"], strict=True)]
        filled = neutral(self.reward).score([p or None for p in pictures], texts, groups, **given)
        self._log(self.reward.metrics(filled.scores), columns)
        return filled.overall

    def _log(self, metrics: Mapping[str, float], columns: Mapping[str, Any]) -> None:
        log: Callable[[str, float], None] | None = columns.get("log_metric")
        numbers = {key: value for key, value in metrics.items() if value == value}
        if log is None:
            logger.info("%s", numbers)
            return
        for key, value in numbers.items():
            log(key, value)


orms["rewards"] = RewardsORM
