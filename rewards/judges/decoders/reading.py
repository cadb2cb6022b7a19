"""Which probabilities are read after a prompt, and how they are read from logits: on the device, in one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Reading(NamedTuple):
    """What is read at the last positions of a sequence.

    Attributes:
        wanted: For each of the last K positions, S sets of tokens; the probability of a set is that of its tokens
            together. A rating's spellings are a set; so are the tokens that end a turn.
    """

    wanted: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def keep(self) -> int:
        """How many last positions are read."""
        return len(self.wanted)


def table(readings: Sequence[Reading]) -> torch.Tensor:
    """Token ids `(K, S, M)` of several readings, one after the other, filled up with -1.

    Example:
        >>> table([Reading((((7,),), ((1, 2), (3,))))]).tolist()
        [[[7, -1], [-1, -1]], [[1, 2], [3, -1]]]
    """
    positions = [sets for reading in readings for sets in reading.wanted]
    most = max(map(len, positions))
    widest = max(len(tokens) for sets in positions for tokens in sets)
    empty = (-1,) * widest
    return torch.tensor(
        [
            [(*tokens, *empty[len(tokens) :]) for tokens in sets] + [empty] * (most - len(sets))
            for sets in positions
        ]
    )  # fmt: skip


def log_probabilities(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Log-probability `(K, S)` of each set of tokens at each position.

    Args:
        logits: `(K, V)`.
        wanted: `(K, S, M)` token ids, -1 where a set has fewer.

    Example:
        >>> log_probabilities(torch.zeros(1, 4), torch.tensor([[[0, 1], [2, -1]]])).exp()
        tensor([[0.5000, 0.2500]])
    """
    every = logits.float().log_softmax(-1)
    found = every.gather(1, wanted.clamp(min=0).flatten(1)).view(wanted.shape)
    return found.masked_fill(wanted < 0, -torch.inf).logsumexp(-1)
