"""A function of a user's own as a reward."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module

import numpy as np
import torch
from torch import Tensor

from rewards.errors import InputError, RewardsError
from rewards.images import as_list, to_pil
from rewards.reward import Reward
from rewards.runs.code import code_hash
from rewards.runs.files import Json
from rewards.scores import Scores

RewardLike = Reward | Callable[..., object]


class FunctionReward(Reward):
    """A reward from a plain function, in either convention of the field.

    A function with a parameter `completions` or `completion_ids` is called as TRL does: keywords `prompts`,
    `completions`, `image`, `question`, `box` and every further column; what it hands to TRL's `log_metric`, and to
    `log_extra` as `<its name>/<part>`, is kept. Any other is called `(images, prompts, metadata)`, as in ddpo-pytorch
    and flow_grpo. It returns N numbers, with None or NaN for what it cannot judge, or `(numbers, info)` with a mapping
    of numbers about the batch. It may be a coroutine function.

    Args:
        function: the function.
        name: of its curves; default: its own.
        source: how it is named in settings (`module:function`), for records.

    Raises:
        InputError: not callable.

    Example:
        >>> def length(completions, **columns):
        ...     return [float(len(text)) for text in completions]
        >>> FunctionReward(length).score([None, None], ["a", "bb"]).overall.tolist()
        [1.0, 2.0]
    """

    def __init__(self, function: Callable[..., object], name: str | None = None, source: str | None = None) -> None:
        if not callable(function):
            raise InputError(f"{type(function).__name__} is not a reward: it cannot be called")
        self.function = function
        self.source = source
        self.code = code_hash(function)  # now, before its file is edited
        self.__name__ = name or str(getattr(function, "__name__", type(function).__name__))
        self._like_trl = not {"completions", "completion_ids"}.isdisjoint(inspect.signature(function).parameters)

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """Its name, where it is defined, and the digest of its text (:func:`rewards.runs.code.code_hash`: what the
        function calls is not seen)."""
        home = f"{getattr(self.function, '__module__', '')}:{getattr(self.function, '__qualname__', self.__name__)}"
        return {"reward": self.__name__, "function": self.source or home, "code": self.code}

    def score(self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score`. A picture that cannot be read is not shown to the function.

        Raises:
            InputError: the function returned another number of values than samples.
        """
        # By place from here on: a pandas column would be looked up by its labels.
        texts = list(texts)
        columns = {name: values if (found := as_list(values)) is None else found for name, values in columns.items()}
        if self._like_trl:
            logged: dict[str, float] = {}
            extra: dict[str, Sequence[object]] = {}
            loggers = {"log_metric": logged.__setitem__, "log_extra": extra.__setitem__}
            returned = self.function(**_trl_keywords(images, texts, columns) | loggers)
            return self._with_parts(self._scores(returned, len(texts), logged), extra)
        pictures, reasons = _readable(images)
        rows = [row for row, reason in enumerate(reasons) if reason is None]
        if not rows:
            return Scores.nothing([reason or "" for reason in reasons])
        if isinstance(images, Tensor):
            shown: object = images if len(rows) == len(images) else images[rows]
        else:
            shown = [pictures[row] for row in rows]
        given = _metadata(columns, len(texts))
        returned = self.function(shown, [texts[row] for row in rows], [given[row] for row in rows])
        scores = self._scores(returned, len(rows))
        return scores if len(rows) == len(texts) else scores.placed(rows, reasons)

    def _with_parts(self, scores: Scores, extra: Mapping[str, Sequence[object]]) -> Scores:
        """The scores with the columns of numbers that the function handed to TRL's `log_extra` as `<name>/<part>`."""
        prefix = f"{self.__name__}/"
        for name, values in extra.items():
            known = [value for value in values if value is not None]
            if name.startswith(prefix) and known and all(isinstance(value, int | float) for value in known):
                column = torch.from_numpy(as_rewards(values, len(scores))).unsqueeze(1)
                scores = replace(
                    scores,
                    part_names=(*scores.part_names, name.removeprefix(prefix)),
                    parts=torch.cat([scores.parts, column], dim=1),
                    counts=torch.cat([scores.counts, (~column.isnan()).float()], dim=1),
                )
        return scores

    def _scores(self, returned: object, count: int, logged: Mapping[str, float] | None = None) -> Scores:
        if inspect.isawaitable(returned):
            returned = asyncio.run(_settled(returned))
        values, info = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, {})
        overall = torch.from_numpy(as_rewards(values, count))
        reasons = [None if math.isfinite(v) else f"{self.__name__} abstained" for v in overall.tolist()]
        numbers = _numbers(info, f"rewards/{self.__name__}/") | _numbers(logged, f"rewards/{self.__name__}/")
        parts = [key.removesuffix("/mean") for key in numbers if key.endswith("/mean")]
        parts = [part for part in parts if part != "overall" and f"{part}/count" in numbers]
        # What it says of the batch as a whole is spread evenly over the samples, so that batches can be put together.
        judged = (~overall.isnan()).float()
        share = judged / max(float(judged.sum()), 1.0)
        known = {f"{part}/{what}" for part in ["overall", *parts] for what in ("mean", "count")} | {"abstained"}
        rest = {key: value for key, value in numbers.items() if key not in known}
        summed = {key for key in rest if key.rsplit("/", 1)[-1] in ("count", "unmatched")}
        return Scores(
            overall,
            reasons,
            tuple(parts),
            _stacked([torch.full((count,), numbers[f"{part}/mean"]) for part in parts], count),
            _stacked([share * numbers[f"{part}/count"] for part in parts], count),
            means={k: torch.where(judged > 0, v, math.nan) for k, v in rest.items() if k not in summed},
            sums={k: share * v for k, v in rest.items() if k in summed},
        )


def as_reward(reward: RewardLike) -> Reward:
    """A reward as it is, a function as a :class:`FunctionReward`."""
    return reward if isinstance(reward, Reward) else FunctionReward(reward)


def import_reward(name: str) -> Reward:
    """The reward that `module:name` names: a function, a :class:`~rewards.reward.Reward`, or a class without arguments.

    Raises:
        InputError: nothing of that name can be imported, or it is no reward.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InputError(f"function is {name!r}; package.module:name is needed")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"function {name!r} cannot be imported: {error}") from error
    found = found() if isinstance(found, type) else found
    return found if isinstance(found, Reward) else FunctionReward(found, source=name)


def as_rewards(values: object, count: int) -> np.ndarray:
    """Whatever a reward returned as `(N,)` float32 with NaN for None and for what is not finite.

    Raises:
        InputError: not `count` numbers.
    """
    if isinstance(values, Tensor):
        values = values.detach().float().cpu().numpy()
    if not isinstance(values, np.ndarray):
        if not isinstance(values, Sequence):
            raise InputError(f"the reward returned {type(values).__name__}; expected {count} numbers")
        values = [math.nan if value is None else float(value) for value in values]
    array = np.asarray(values, dtype=np.float32).copy()
    if array.shape != (count,):
        raise InputError(f"the reward returned shape {array.shape} for {count} samples; expected one number each")
    array[~np.isfinite(array)] = np.nan
    return array


def _trl_keywords(
    images: Sequence[object], texts: Sequence[str | None], columns: Mapping[str, Sequence[object]]
) -> dict[str, object]:
    given: dict[str, object] = {name: values for name, values in columns.items() if name not in ("inputs", "boxes")}
    nothing: list[object] = [None] * len(texts)
    return {
        "prompts": nothing,
        "completions": texts,
        "image": images,
        "question": columns.get("inputs", nothing),
        "box": columns.get("boxes", nothing),
    } | given


def _metadata(columns: Mapping[str, Sequence[object]], count: int) -> Sequence[object]:
    if "metadata" in columns:
        return columns["metadata"]
    return [{name: values[row] for name, values in columns.items()} for row in range(count)]


def _readable(images: Sequence[object]) -> tuple[list[object], list[str | None]]:
    """Pictures as a function may be given them, and why one cannot be read. Tensors stay as they are."""
    if isinstance(images, Tensor):
        return list(images), [None] * len(images)
    pictures: list[object] = []
    reasons: list[str | None] = []
    for row, image in enumerate(images):
        try:
            pictures.append(image if isinstance(image, Tensor) else to_pil(image, row))
            reasons.append(None)
        except (RewardsError, OSError) as error:
            pictures.append(None)
            reasons.append(str(error))
    return pictures, reasons


def _numbers(info: object, prefix: str) -> dict[str, float]:
    """The numbers of an info, under keys without the reward's own prefix; what is no number is left out."""
    numbers: dict[str, float] = {}
    for key, value in info.items() if isinstance(info, Mapping) else ():
        try:
            numbers[str(key).removeprefix(prefix)] = float(value)
        except (TypeError, ValueError):
            continue  # details that are no number belong to samples, not to curves
    return numbers


def _stacked(columns: Sequence[Tensor], count: int) -> Tensor:
    return torch.stack(list(columns), dim=1) if columns else torch.empty(count, 0)


async def _settled(result: Awaitable[object]) -> object:
    return await result
