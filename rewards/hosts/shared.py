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
from rewards.errors import InputError, RewardsError
from rewards.reward import Reward, Scores
from rewards.runs.config import load_config

logger = logging.getLogger(__name__)

CONFIG_VARIABLE = "REWARDS_CONFIG"
"""Environment variable that names the YAML file of the reward, for hosts that pass no settings on."""

PICTURE_KEYS = ("image", "images", "image_path", "picture")
INPUT_KEYS = ("question", "query", "input")
BOX_KEYS = ("box", "bbox")

_resident: dict[str, Reward] = {}
_neutral: dict[str, Neutral] = {}
_lock = threading.Lock()


def resident_reward(config: str | os.PathLike[str] | None = None, **settings: Any) -> Reward:
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

    Example:
        >>> Neutral("r").fill(Scores(torch.tensor([4.0, math.nan, 2.0]), [None, "no image", None]), ["a", "a", "b"])
        [4.0, 4.0, 2.0]
    """

    GROUPS = 65_536

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._groups: OrderedDict[Hashable, _Mean] = OrderedDict()
        self._all = _Mean()

    def fill(self, scores: Scores, groups: Sequence[Hashable]) -> list[float]:
        """The overall scores, with a mean in the place of every abstention.

        Args:
            scores: of N samples.
            groups: N keys; samples of one key are compared with each other by the host (one prompt).

        Raises:
            RewardsError: nothing was judged yet: the judge is down, or no sample has a picture.
        """
        values = scores.overall.tolist()
        here, by_group = _Mean(), {group: _Mean() for group in groups}
        for value, group in zip(values, groups, strict=True):
            here.add(value)
            by_group[group].add(value)
        with self._lock:
            filled = [
                value
                if math.isfinite(value)
                else self._mean((by_group[group], self._groups.get(group), here, self._all), scores.reasons[row])
                for row, (value, group) in enumerate(zip(values, groups, strict=True))
            ]
            for value, group in zip(values, groups, strict=True):
                self._all.add(value)
                self._groups.setdefault(group, _Mean()).add(value)
                self._groups.move_to_end(group)
            while len(self._groups) > self.GROUPS:
                self._groups.popitem(last=False)
        return filled

    def _mean(self, means: Sequence[_Mean | None], reason: str | None) -> float:
        found = next((mean for mean in means if mean is not None and mean.count), None)
        if found is None:
            raise RewardsError(f"{self.name}: a sample could not be judged, and none was before it: {reason}")
        logger.warning("%s: a sample could not be judged and gets the mean of its neighbours: %s", self.name, reason)
        return found.total / found.count


def neutral(reward: Reward) -> Neutral:
    """The rule for abstentions of a reward, one a process and name, so that it knows what was judged before."""
    with _lock:
        return _neutral.setdefault(reward.__name__, Neutral(reward.__name__))


class _Mean:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, value: float) -> None:
        if math.isfinite(value):
            self.total += value
            self.count += 1


def first_of(given: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of some keys that has a value; None without any."""
    return next((given[name] for name in names if given.get(name) is not None), None)


def read_label(label: object) -> Mapping[str, Any]:
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


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Questions and boxes of rows, as columns for :meth:`Reward.score`; a column that no row has is left out."""
    found = {"inputs": [first_of(row, INPUT_KEYS) for row in rows], "boxes": [first_of(row, BOX_KEYS) for row in rows]}
    return {name: values for name, values in found.items() if any(value is not None for value in values)}


def parts_of(scores: Scores, row: int = 0) -> dict[str, float]:
    """The parts of one sample that were judged, by name, and `abstained` (0 or 1): a host's extra metrics."""
    named = zip(scores.part_names, scores.parts[row].tolist(), strict=True)
    parts = {name: value for name, value in named if math.isfinite(value)}
    return parts | {"abstained": float(scores.abstained[row])}
