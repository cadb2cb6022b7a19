"""Calling a reward on pictures: broken pictures and failed judges abstain, and nothing is ever scored 0 for them.

The convention is that of the diffusion field (ddpo-pytorch, flow_grpo): ``reward(images, prompts, metadata)`` with
images (N, 3, H, W), float32 in [0, 1], returning N rewards, or ``(rewards, info)``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rewards.errors import InputError, RewardsError

logger = logging.getLogger(__name__)

Reward = Callable[..., Any]


@dataclass
class Scored:
    """Rewards of a batch of pictures.

    Attributes:
        values: (N,) float32, NaN where the picture could not be judged.
        info: What the reward told about them, flat numeric values, a (mapping, number of judged pictures) a call.
        broken: Pictures that were black or not finite, and were not shown to the judge.
        error: Why the reward failed on some batch, or None.
        fatal: The reward refused its input: the run cannot go on.
    """

    values: np.ndarray
    info: list[tuple[dict[str, float], int]] = field(default_factory=list)
    broken: int = 0
    error: str | None = None
    fatal: bool = False

    @staticmethod
    def concatenate(parts: Sequence[Scored]) -> Scored:
        """One result for the pictures of several."""
        return Scored(
            values=np.concatenate([part.values for part in parts]) if parts else np.zeros(0, np.float32),
            info=[row for part in parts for row in part.info],
            broken=sum(part.broken for part in parts),
            error=next((part.error for part in parts if part.error is not None), None),
            fatal=any(part.fatal for part in parts),
        )


def reward_name(reward: Reward) -> str:
    """The name under which a reward's curves are kept: its ``__name__``, or its class."""
    return str(getattr(reward, "__name__", type(reward).__name__)).replace("/", "_")


def usable_pictures(images: Tensor) -> Tensor:
    """(N,) bool: pictures that are finite and not wholly black (what an overflow in half precision leaves).

    Args:
        images: (N, 3, H, W) in [0, 1].
    """
    flat = images.flatten(1)
    return torch.isfinite(flat).all(dim=1) & (flat.nan_to_num().amax(dim=1) >= 1 / 255)


def score_pictures(
    reward: Reward, images: Tensor, prompts: Sequence[str], metadata: Sequence[Mapping[str, Any]]
) -> Scored:
    """Score pictures; what cannot be judged is NaN.

    Args:
        reward: See the module.
        images: (N, 3, H, W) float32 in [0, 1].
        prompts: N texts.
        metadata: N mappings, given on to the reward.

    Returns:
        The scores. A reward that raises leaves the whole batch NaN and says why in ``error``; ``InputError`` (a prompt
        without questions, say) and a wrong number of rewards are marked ``fatal``. The caller raises on all processes
        at once, since one that raises alone would leave the others waiting.
    """
    usable = usable_pictures(images)
    rows = torch.nonzero(usable).flatten().tolist()
    scored = Scored(np.full(len(images), np.nan, dtype=np.float32), broken=len(images) - len(rows))
    if not rows:
        return scored
    try:
        returned = reward(images[usable], [prompts[i] for i in rows], [metadata[i] for i in rows])
        values, info = returned if isinstance(returned, tuple) else (returned, {})
        scored.values[rows] = as_rewards(values, len(rows))
    except Exception as error:
        scored.error = f"{reward_name(reward)}: {type(error).__name__}: {error}"
        scored.fatal = isinstance(error, InputError)
        logger.warning("a batch of %d pictures could not be scored: %s", len(rows), scored.error, exc_info=error)
        return scored
    scored.info = [(_numbers(info), int(np.isfinite(scored.values).sum()))]
    return scored


def as_rewards(values: Any, count: int) -> np.ndarray:
    """Whatever a reward returned as (N,) float32 with NaN for None and for what is not finite.

    Raises:
        InputError: Not ``count`` numbers.
    """
    if isinstance(values, Tensor):
        values = values.detach().float().cpu().numpy()
    if not isinstance(values, np.ndarray):
        values = [math.nan if value is None else float(value) for value in values]
    array = np.asarray(values, dtype=np.float32).copy()
    if array.shape != (count,):
        raise InputError(f"the reward returned shape {array.shape} for {count} pictures; expected one number each")
    array[~np.isfinite(array)] = np.nan
    return array


def merge_info(rows: Sequence[tuple[Mapping[str, float], int]]) -> dict[str, float]:
    """Put the infos of several calls (batches, processes) together.

    Args:
        rows: (info, number of judged pictures) a call. Keys ending in ``/count``, ``/abstained`` or ``/unmatched`` are
            summed; any other value is averaged, weighted by the ``/count`` beside it where there is one and by the
            number of judged pictures elsewhere. Values that are not finite take no part.

    Returns:
        Flat values.

    Example:
        >>> merge_info([({"a/mean": 1.0, "a/count": 1}, 4), ({"a/mean": 0.0, "a/count": 3}, 4)])
        {'a/mean': 0.25, 'a/count': 4}
    """
    merged: dict[str, float] = {}
    weights: dict[str, float] = {}
    for info, judged in rows:
        for key, value in info.items():
            if not math.isfinite(value):
                merged.setdefault(key, math.nan)
                continue
            if key.rsplit("/", 1)[-1] in ("count", "abstained", "unmatched"):
                merged[key] = _plus(merged.get(key), value)
                continue
            weight = info.get(key.rsplit("/", 1)[0] + "/count", judged)
            if weight > 0:
                merged[key] = _plus(merged.get(key), value * weight)
                weights[key] = weights.get(key, 0) + weight
            else:
                merged.setdefault(key, math.nan)
    return {key: value / weights[key] if key in weights else value for key, value in merged.items()}


def raise_if_fatal(errors: Sequence[tuple[str | None, bool]]) -> None:
    """Raise the first fatal error of any process, on every process.

    Raises:
        RewardsError: With the reward's own message.
    """
    for error, fatal in errors:
        if fatal:
            raise RewardsError(f"the reward refused its input: {error}")


def _plus(total: float | None, value: float) -> float:
    return value if total is None or math.isnan(total) else total + value


def _numbers(info: Any) -> dict[str, float]:
    if not isinstance(info, Mapping):
        return {}
    numbers: dict[str, float] = {}
    for key, value in info.items():
        try:
            numbers[str(key)] = value if isinstance(value, int) else float(value)
        except (TypeError, ValueError):
            continue  # details that are no number (answers, texts) belong to samples, not to curves
    return numbers
