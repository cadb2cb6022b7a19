"""Advantages: how much better a picture is than the others of its prompt (DDPO section 5, per-prompt statistics)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from rewards.errors import InputError


class PromptStatistics:
    """Mean and deviation of the rewards of each prompt over a running buffer.

    Args:
        buffer_size: Rewards kept a prompt, the newest ones.
        min_count: With fewer rewards in a prompt's buffer, the batch's mean and deviation are used for it instead.

    Example:
        >>> statistics = PromptStatistics(buffer_size=2, min_count=2)
        >>> statistics.advantages(["a", "a"], np.array([0.0, 1.0], dtype=np.float32)).tolist()
        [-1.0, 1.0]
    """

    def __init__(self, buffer_size: int, min_count: int) -> None:
        if buffer_size < 1 or min_count < 1:
            raise InputError(f"buffer_size and min_count must be at least 1, got {buffer_size} and {min_count}")
        self.buffer_size = buffer_size
        self.min_count = min_count
        self._buffers: dict[Hashable, deque[float]] = {}

    def advantages(
        self,
        prompts: Sequence[Hashable],
        rewards: np.ndarray,
        epsilon: float = 1e-8,
        deviation_of_all: bool = False,
    ) -> np.ndarray:
        """Add a batch of rewards to the buffers and return its advantages, `(r - mean) / (deviation + epsilon)`.

        Args:
            prompts: A key for each reward that tells prompts apart (an index: two prompts may share a text).
            rewards: (N,) floats; NaN marks a sample that could not be judged.
            epsilon: Added to the deviation. A value of the order of the reward's noise (the shapes recipe takes 0.05 on
                [0, 1]) keeps prompts with hardly any spread from being blown up.
            deviation_of_all: Divide by the deviation of the whole batch, which blows up no prompt either.

        Returns:
            (N,) float32. An abstained sample gets 0 and takes part in no mean or deviation; so does a prompt whose
            rewards are all equal.
        """
        rewards = np.asarray(rewards, dtype=np.float64)
        valid = np.isfinite(rewards)
        advantages = np.zeros(len(rewards), dtype=np.float32)
        if not valid.any():
            return advantages
        for prompt, reward in zip(prompts, rewards):
            if np.isfinite(reward):
                self._buffers.setdefault(prompt, deque(maxlen=self.buffer_size)).append(float(reward))
        batch_mean, batch_std = _mean_and_deviation(rewards[valid])
        groups: dict[Hashable, list[int]] = {}
        for index in np.flatnonzero(valid):
            groups.setdefault(prompts[int(index)], []).append(int(index))
        for prompt, members in groups.items():
            buffer = self._buffers[prompt]
            mean, std = batch_mean, batch_std
            if len(buffer) >= self.min_count:
                mean, std = _mean_and_deviation(np.array(buffer))
                std = batch_std if deviation_of_all else std
            advantages[members] = (rewards[members] - mean) / (std + epsilon)
        return advantages

    def state_dict(self) -> dict[str, list[list[object]]]:
        """The buffers as plain JSON values."""
        return {"buffers": [[prompt, list(buffer)] for prompt, buffer in self._buffers.items()]}

    def load_state_dict(self, state: Mapping[str, Sequence[tuple[Hashable, Sequence[float]]]]) -> None:
        """Take over what :meth:`state_dict` gave."""
        self._buffers = {prompt: deque(values, maxlen=self.buffer_size) for prompt, values in state["buffers"]}


def global_advantages(rewards: np.ndarray, epsilon: float = 1e-8) -> np.ndarray:
    """Advantages against the mean and deviation of the whole batch, whatever the prompt.

    Args:
        rewards: (N,) floats; NaN marks an abstention.
        epsilon: Added to the deviation.

    Returns:
        (N,) float32; 0 for abstentions.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    valid = np.isfinite(rewards)
    advantages = np.zeros(len(rewards), dtype=np.float32)
    if valid.any():
        mean, std = _mean_and_deviation(rewards[valid])
        advantages[valid] = (rewards[valid] - mean) / (std + epsilon)
    return advantages


def zero_deviation_groups(prompts: Sequence[Hashable], rewards: np.ndarray) -> float:
    """Share of this batch's prompts whose valid rewards are all equal, and which therefore teach nothing.

    Returns:
        A share in [0, 1]; NaN where no prompt has two valid rewards.
    """
    groups: dict[Hashable, list[float]] = {}
    for prompt, reward in zip(prompts, rewards):
        if np.isfinite(reward):
            groups.setdefault(prompt, []).append(float(reward))
    spreads = [max(values) - min(values) for values in groups.values() if len(values) > 1]
    return float(np.mean([spread < 1e-8 for spread in spreads])) if spreads else float("nan")


def _mean_and_deviation(values: np.ndarray) -> tuple[float, float]:
    # Equal values must give exactly equal to the mean: rounding over a tiny epsilon would invent an advantage.
    if values.max() == values.min():
        return float(values[0]), 0.0
    return float(values.mean()), float(values.std())
