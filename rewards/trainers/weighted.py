"""Several rewards as one: weights, scales brought together, and a stated policy for abstentions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rewards.errors import InputError
from rewards.trainers.diffusion.scoring import as_rewards, reward_name


class WeightedReward:
    """A weighted sum of rewards, in the convention ``(images, prompts, metadata) -> (rewards, info)``.

    Args:
        rewards: The parts; each keeps its own curves under its own name.
        weights: One a part.
        standardize: "running" brings the parts to one scale: each is shifted and divided by the mean and deviation of
            all its values so far (Welford), so that weights mean importance and not units (flow_grpo issue 188).
            "none" adds the raw values.
        on_abstain: "abstain": a sample that one part cannot judge abstains as a whole. "renormalize": the other parts
            decide, with their weights scaled up to the same total. Never is an abstention counted as 0.

    Raises:
        InputError: Not one weight a reward, or two parts of the same name.

    Example:
        >>> red = lambda images, prompts, metadata=None: [0.0, 1.0]
        >>> red.__name__ = "red"
        >>> size = lambda images, prompts, metadata=None: [10.0, None]
        >>> size.__name__ = "size"
        >>> WeightedReward([red, size], [1.0, 0.1])([0, 0], ["a", "b"])[0].tolist()
        [1.0, nan]
    """

    def __init__(
        self,
        rewards: Sequence[Callable[..., Any]],
        weights: Sequence[float],
        standardize: Literal["none", "running"] = "none",
        on_abstain: Literal["abstain", "renormalize"] = "abstain",
    ) -> None:
        if len(rewards) != len(weights) or not rewards:
            raise InputError(f"expected one weight a reward, got {len(rewards)} rewards and {len(weights)} weights")
        names = [reward_name(reward) for reward in rewards]
        if len(set(names)) < len(names):
            raise InputError(f"rewards must have different names for their curves, got {names}; set __name__")
        if standardize not in ("none", "running") or on_abstain not in ("abstain", "renormalize"):
            raise InputError(f"unknown standardize={standardize!r} or on_abstain={on_abstain!r}")
        self.rewards = list(rewards)
        self.weights = np.asarray(weights, dtype=np.float64)
        self.standardize = standardize
        self.on_abstain = on_abstain
        self.names = names
        self.__name__ = "weighted"
        self._running = [_RunningMoments() for _ in rewards]

    def __call__(
        self, images: Any, prompts: Sequence[str], metadata: Any = None
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Score N pictures.

        Args:
            images: As the parts take them.
            prompts: N texts.
            metadata: Given on.

        Returns:
            (N,) float32 with NaN for abstentions, and the info of all parts with ``rewards/<part>/overall/mean``,
            ``/count`` and ``rewards/<part>/abstained`` for each.
        """
        columns: list[np.ndarray] = []
        info: dict[str, Any] = {}
        for name, reward in zip(self.names, self.rewards):
            returned = reward(images, prompts, metadata)
            values, own = returned if isinstance(returned, tuple) else (returned, {})
            column = as_rewards(values, len(prompts)).astype(np.float64)
            columns.append(column)
            info.update(own if isinstance(own, Mapping) else {})
            info.update(_overall(name, column))
        return self.combine(np.stack(columns, axis=1)).astype(np.float32), info

    def combine(self, values: np.ndarray) -> np.ndarray:
        """The weighted sum of (N, R) values with NaN for abstentions; with "running", updates the estimates."""
        if self.standardize == "running":
            for column, moments in enumerate(self._running):
                moments.update(values[:, column])
            shift = np.array([moments.mean for moments in self._running])
            scale = np.array([moments.deviation for moments in self._running])
            values = (values - shift) / scale
        if self.on_abstain == "abstain":
            return values @ self.weights
        judged = np.isfinite(values)
        total = np.where(judged, values * self.weights, 0.0).sum(axis=1)
        weight = np.abs(np.where(judged, self.weights, 0.0)).sum(axis=1)
        return np.where(weight > 0, total * np.abs(self.weights).sum() / np.where(weight > 0, weight, 1.0), np.nan)

    def state_dict(self) -> dict[str, Any]:
        """The running estimates, as plain JSON values, for checkpoints."""
        return {"running": [[m.count, m.mean, m.squares] for m in self._running]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""
        for moments, (count, mean, squares) in zip(self._running, state["running"]):
            moments.count, moments.mean, moments.squares = count, mean, squares

    def identity(self) -> dict[str, Any]:
        """Names, weights and policies, and each part's own identity, for records and the model card."""
        return {
            "weights": dict(zip(self.names, self.weights.tolist())),
            "standardize": self.standardize,
            "on_abstain": self.on_abstain,
            "parts": {n: r.identity() for n, r in zip(self.names, self.rewards) if hasattr(r, "identity")},
        }


class _RunningMoments:
    """Mean and deviation of all values so far (Chan's batched form of Welford's algorithm)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0

    def update(self, values: np.ndarray) -> None:
        values = values[np.isfinite(values)]
        if not len(values):
            return
        total = self.count + len(values)
        delta = float(values.mean()) - self.mean
        self.squares += float(((values - values.mean()) ** 2).sum()) + delta**2 * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count = total

    @property
    def deviation(self) -> float:
        """1 until the values have a spread, so that a constant reward is shifted to 0 and not blown up."""
        deviation = math.sqrt(self.squares / self.count) if self.count else 0.0
        return deviation if deviation > 1e-8 else 1.0


def _overall(name: str, column: np.ndarray) -> dict[str, float]:
    judged = column[np.isfinite(column)]
    return {
        f"rewards/{name}/overall/mean": float(judged.mean()) if len(judged) else math.nan,
        f"rewards/{name}/overall/count": len(judged),
        f"rewards/{name}/abstained": len(column) - len(judged),
    }
