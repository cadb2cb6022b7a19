"""A moving average of the trained parameters: what is evaluated and saved, where it is switched on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from rewards.trainers.diffusion.policy.base import Policy


class MovingAverage:
    """`d * average + (1 - d) * parameters` after every epoch.

    Args:
        policy: Whose parameters.
        decay: d in [0, 1); None switches it off, and nothing is kept.
    """

    def __init__(self, policy: Policy, decay: float | None) -> None:
        self.policy = policy
        self.decay = decay
        self._values = [] if decay is None else [p.detach().clone() for p in policy.parameters]

    def update(self) -> None:
        """Take the parameters as they are now."""
        if self.decay is not None:
            torch._foreach_lerp_(self._values, [p.detach() for p in self.policy.parameters], 1 - self.decay)

    def held(self) -> AbstractContextManager[None]:
        """Within this block the policy has the averaged parameters."""
        return nullcontext() if self.decay is None else self.policy.holding(self._values)

    def state(self) -> dict[str, list[Tensor]]:
        """What a checkpoint keeps."""
        return {} if self.decay is None else {"moving_average": self._values}

    def load_state(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        """Take over what :meth:`state` gave."""
        if self.decay is not None:
            torch._foreach_copy_(self._values, [value.to(self.policy.device) for value in state["moving_average"]])
