"""What all hosts share: the reward of the process, pictures from a host's columns, and the rule for abstentions."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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

OVERALL = ""
"""Stands for the overall score beside the names of parts."""

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
    path = None if path is None else os.path.abspath(path)
    if path is None and not settings:
        raise InputError(f"no reward is named: give config=FILE.yaml, or set {CONFIG_VARIABLE}=FILE.yaml")
    key = json.dumps([path, settings], sort_keys=True, default=str)
    with _lock:  # hosts call from many threads: the weights are loaded by one of them
        if key not in _resident:
            _resident[key] = build_reward(load_config(RewardSettings, path, settings, block="reward"))
        return _resident[key]


@dataclass
class Filled:
    """N samples as hosts take them that need a number for each, and the same keys.

    Attributes:
        overall: N numbers.
        parts: N numbers a part, by its name. Every call of a reward has the same names; a part that no sample had yet
            is NaN, in the metrics only.
        scores: the scores as they are, with NaN for what was not judged.
    """

    overall: list[float]
    parts: dict[str, list[float]]
    scores: Scores

    def metrics(self, row: int = 0) -> dict[str, float]:
        """A host's extra metrics of one sample: every part, and `abstained` (0 or 1)."""
        named = {name: values[row] for name, values in self.parts.items()}
        return named | {"abstained": float(self.scores.abstained[row])}


class Neutral:
    """Numbers for hosts that cannot leave a sample out.

    A sample that could not be judged gets the mean of what was judged beside it, so that it neither gains nor loses by
    a group's baseline: the mean of its group in this call; else of its group so far in this process; else of this
    call; else of this process. It is never 0 and never NaN. A part that a sample lacks is filled in the same way.

    Args:
        reward: what scores. Hosts call from many threads: a first sample that cannot be judged waits for the others
            that are being judged.

    Example:
        >>> import torch
        >>> from rewards.functions import FunctionReward
        >>> def some(images, prompts, metadata=None): return [4.0, None, 2.0]
        >>> Neutral(FunctionReward(some)).score(torch.ones(3, 3, 2, 2), ["p"] * 3, ["a", "a", "b"]).overall
        [4.0, 4.0, 2.0]
    """

    GROUPS = 65_536
    PATIENCE = 60.0  # seconds that a first abstention waits for calls in other threads
    GRACE = 5.0  # and, where there are none, for the first of them to come

    def __init__(self, reward: Reward) -> None:
        self.reward = reward
        self._state = threading.Condition()
        self._working = 0
        self._groups: OrderedDict[Hashable, _Means] = OrderedDict()
        self._all = _Means()
        self._parts: dict[str, None] | None = None

    def score(
        self,
        images: Sequence[object],
        texts: Sequence[str | None],
        groups: Sequence[Hashable],
        **columns: Sequence[object],
    ) -> Filled:
        """Score N samples.

        Args:
            images, texts, columns: as for :meth:`Reward.score`.
            groups: N keys; samples of one key are compared with each other by the host (one prompt).

        Raises:
            RewardsError: nothing was judged yet: the judge is down, or no sample has a picture.
        """
        with self._state:
            self._working += 1
        try:
            scores = score_guarded(self.reward, images, texts, **columns)
        except BaseException:
            with self._state:
                self._working -= 1
                self._state.notify_all()
            raise
        overall = scores.overall.tolist()
        known = [dict(zip(scores.part_names, row, strict=True)) for row in scores.parts.tolist()]
        rows = [{OVERALL: value, **parts} for value, parts in zip(overall, known, strict=True)]
        here, by_group = _Means(), {group: _Means() for group in groups}
        for row, group in zip(rows, groups, strict=True):
            here.add(row)
            by_group[group].add(row)
        with self._state:
            near = [(by_group[group], self._groups.get(group), here, self._all) for group in groups]
            self._remember(rows, groups)
            self._working -= 1  # no sooner: a first abstention that waits shall see what was judged
            self._state.notify_all()
            for at, (row, means) in enumerate(zip(rows, near, strict=True)):
                overall[at] = self._value(row[OVERALL], means, scores.reasons[at])
            names = self._names(scores)
            parts = {name: [_filled(name, row, means) for row, means in zip(rows, near, strict=True)] for name in names}
            return Filled(overall, parts, scores)

    def _names(self, scores: Scores) -> Iterable[str]:
        """Every part that the reward has: hosts want the same keys of all samples, of those that failed too."""
        if self._parts is None:
            try:
                self._parts = dict.fromkeys(self.reward.score([], [], inputs=[], boxes=[]).part_names)
            except Exception:  # a function that takes no empty batch
                self._parts = {}
        self._parts |= dict.fromkeys(scores.part_names)
        return self._parts

    def _remember(self, rows: Sequence[Mapping[str, float]], groups: Sequence[Hashable]) -> None:
        for row, group in zip(rows, groups, strict=True):
            self._all.add(row)
            self._groups.setdefault(group, _Means()).add(row)
            self._groups.move_to_end(group)
        while len(self._groups) > self.GROUPS:
            self._groups.popitem(last=False)

    def _value(self, value: float, means: Sequence[_Means | None], reason: str | None) -> float:
        if math.isfinite(value):
            return value
        self._state.wait_for(lambda: self._working or self._all.of(OVERALL) is not None, timeout=self.GRACE)
        self._state.wait_for(lambda: not self._working or self._all.of(OVERALL) is not None, timeout=self.PATIENCE)
        found = _nearest(OVERALL, means)
        if found is None:
            raise RewardsError(
                f"{self.reward.__name__}: a sample could not be judged, and none was before it: {reason}"
            )
        logger.warning("%s: a sample gets the mean of its neighbours: %s", self.reward.__name__, reason)
        return found


def neutral(reward: Reward) -> Neutral:
    """The rule for abstentions of a reward, one a process, so that it knows what was judged before."""
    with _lock:
        known = _neutral.get(id(reward))
        if known is None or known.reward is not reward:
            known = _neutral[id(reward)] = Neutral(reward)
        return known


class _Means:
    """Means of the overall scores and of each part, over the samples that have them."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, row: Mapping[str, float]) -> None:
        for name, value in row.items():
            if math.isfinite(value):
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + value, count + 1

    def of(self, name: str) -> float | None:
        total, count = self._sums.get(name, (0.0, 0))
        return total / count if count else None


def _nearest(name: str, means: Sequence[_Means | None]) -> float | None:
    found = (mean.of(name) for mean in means if mean is not None)
    return next((mean for mean in found if mean is not None), None)


def _filled(name: str, row: Mapping[str, float], means: Sequence[_Means | None]) -> float:
    value = row.get(name, math.nan)
    if math.isfinite(value):
        return value
    near = _nearest(name, means)
    return math.nan if near is None else near


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


def without_router(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings without what verl adds where it runs a reward model of its own: that model's address and tokenizer."""
    router = ("reward_router_address", "reward_model_tokenizer", "model_name")
    return {key: value for key, value in settings.items() if key not in router}
