"""What all hosts share: the reward of the process, pictures from a host's columns, and the rule for abstentions."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from rewards.build import RewardSettings, build_reward
from rewards.calling import score_guarded
from rewards.errors import InputError, RewardsError
from rewards.reward import Reward
from rewards.runs.config import load_config
from rewards.scores import Scores

logger = logging.getLogger(__name__)

CONFIG_VARIABLE = "REWARDS_CONFIG"
"""Environment variable that names the YAML file of the reward, for hosts that pass no settings on."""

PICTURE_KEYS = ("image", "images", "image_path", "picture")
INPUT_KEYS = ("question", "query", "input")
BOX_KEYS = ("box", "bbox")

_resident: dict[str, Reward] = {}
_neutral: dict[int, Neutral] = {}
_lock = threading.Lock()


def resident_reward(config: str | os.PathLike[str] | None = None, **settings: object) -> Reward:
    """The reward that a host's settings describe, built once a process.

    Args:
        config: YAML file: a reward block, or any config of this package that has one under `reward`. Default: the file
            named by the environment variable `REWARDS_CONFIG`.
        settings: keys of :class:`rewards.build.RewardSettings`, over those of the file.

    Raises:
        InputError: neither a file nor settings, an unknown key, or a reward that cannot be built.

    Example:
        >>> resident_reward(judge="shapes-rater") is resident_reward(judge="shapes-rater")
        True
    """
    path = os.fspath(config) if config is not None else os.environ.get(CONFIG_VARIABLE)
    if path is None and not settings:
        raise InputError(f"no reward is named: give config=FILE.yaml, or set {CONFIG_VARIABLE}=FILE.yaml")
    key = json.dumps([path, settings], sort_keys=True, default=str)
    with _lock:  # hosts call from many threads: the weights are loaded by one of them
        if key not in _resident:
            _resident[key] = build_reward(load_config(RewardSettings, path, settings, block="reward"))
        return _resident[key]


class Neutral:
    """Numbers for hosts that cannot leave a sample out.

    A sample that could not be judged gets the mean of what was judged beside it, so that it neither gains nor loses by
    a group's baseline: the mean of its group in this call; else of its group so far in this process; else of this
    call; else of this process. It is never 0 and never NaN.

    Args:
        reward: what scores. Hosts call from many threads: a first sample that cannot be judged waits for the others
            that are being judged.

    Example:
        >>> def some(images, prompts, metadata=None): return [4.0, None, 2.0]
        >>> Neutral(FunctionReward(some)).score(torch.ones(3, 3, 2, 2), ["p"] * 3, ["a", "a", "b"])[0]
        [4.0, 4.0, 2.0]
    """

    GROUPS = 65_536
    PATIENCE = 60.0  # seconds that a first abstention waits for calls in other threads

    def __init__(self, reward: Reward) -> None:
        self.reward = reward
        self._state = threading.Condition()
        self._working = 0
        self._groups: OrderedDict[Hashable, _Mean] = OrderedDict()
        self._all = _Mean()

    def score(
        self,
        images: Sequence[object],
        texts: Sequence[str | None],
        groups: Sequence[Hashable],
        **columns: Sequence[object],
    ) -> tuple[list[float], Scores]:
        """Score N samples.

        Args:
            images, texts, columns: as for :meth:`Reward.score`.
            groups: N keys; samples of one key are compared with each other by the host (one prompt).

        Returns:
            The overall scores with a mean in the place of every abstention, and the scores as they are.

        Raises:
            RewardsError: nothing was judged yet: the judge is down, or no sample has a picture.
        """
        with self._state:
            self._working += 1
        try:
            scores = score_guarded(self.reward, images, texts, **columns)
        finally:
            with self._state:
                self._working -= 1
                self._state.notify_all()
        values = scores.overall.tolist()
        here, by_group = _Mean(), {group: _Mean() for group in groups}
        for value, group in zip(values, groups, strict=True):
            here.add(value)
            by_group[group].add(value)
        with self._state:
            known = [(by_group[group], self._groups.get(group), here, self._all) for group in groups]
            self._remember(values, groups)
            return [
                value if math.isfinite(value) else self._mean(means, reason)
                for value, means, reason in zip(values, known, scores.reasons, strict=True)
            ], scores

    def _remember(self, values: Sequence[float], groups: Sequence[Hashable]) -> None:
        for value, group in zip(values, groups, strict=True):
            self._all.add(value)
            self._groups.setdefault(group, _Mean()).add(value)
            self._groups.move_to_end(group)
        while len(self._groups) > self.GROUPS:
            self._groups.popitem(last=False)
        self._state.notify_all()

    def _mean(self, means: Sequence[_Mean | None], reason: str | None) -> float:
        self._state.wait_for(lambda: self._all.count or not self._working, timeout=self.PATIENCE)
        found = next((mean for mean in means if mean is not None and mean.count), None)
        if found is None:
            raise RewardsError(
                f"{self.reward.__name__}: a sample could not be judged, and none was before it: {reason}"
            )
        logger.warning("%s: a sample gets the mean of its neighbours: %s", self.reward.__name__, reason)
        return found.total / found.count


def neutral(reward: Reward) -> Neutral:
    """The rule for abstentions of a reward, one a process, so that it knows what was judged before."""
    with _lock:
        known = _neutral.get(id(reward))
        if known is None or known.reward is not reward:
            known = _neutral[id(reward)] = Neutral(reward)
        return known


class _Mean:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, value: float) -> None:
        if math.isfinite(value):
            self.total += value
            self.count += 1


def first_of(given: Mapping[str, object], names: Sequence[str]) -> Any:
    """The first of some keys that has a value; None without any."""
    return next((given[name] for name in names if given.get(name) is not None), None)


def read_label(label: object) -> Mapping[str, object]:
    """What a host's only free text column (label, ground truth) says about a sample: the JSON object in it.

    Raises:
        InputError: it is no JSON object.

    Example:
        >>> read_label('{"image": "dog.jpg"}')["image"]
        'dog.jpg'
    """
    if isinstance(label, Mapping):
        return label
    try:
        read = json.loads(label) if isinstance(label, str) else None
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise InputError(f'a label must be a JSON object such as {{"image": "dog.jpg"}}, got {str(label)[:80]!r}')
    return read


def columns_of(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    """Questions and boxes of rows, as columns for :meth:`Reward.score`; a column that no row has is left out."""
    found = {"inputs": [first_of(row, INPUT_KEYS) for row in rows], "boxes": [first_of(row, BOX_KEYS) for row in rows]}
    return {name: values for name, values in found.items() if any(value is not None for value in values)}


def parts_of(scores: Scores, row: int = 0) -> dict[str, float]:
    """The parts of one sample that were judged, by name, and `abstained` (0 or 1): a host's extra metrics."""
    named = zip(scores.part_names, scores.parts[row].tolist(), strict=True)
    parts = {name: value for name, value in named if math.isfinite(value)}
    return parts | {"abstained": float(scores.abstained[row])}
