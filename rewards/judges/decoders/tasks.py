"""What a judge does with its rows: it reads probabilities, or it writes. :class:`Engine` runs either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch.utils.checkpoint import checkpoint

from rewards.judges.decoders.forest import Tree
from rewards.judges.decoders.inputs import TextModel, sent
from rewards.judges.decoders.plain import Plain
from rewards.judges.decoders.reading import log_probabilities, table
from rewards.judges.decoders.rows import Asked, Group
from rewards.judges.decoders.shared_prefix import SharedPrefix
from rewards.judges.decoders.trees import Prepared, WholeTrees
from rewards.judges.decoders.writing import write

Result = TypeVar("Result")

POSITIONS_AT_ONCE = 256
"""Positions whose logits are made at a time: 150,000 words in float32 are 0.6 MB each."""


class Batch(NamedTuple):
    """Groups that go through the model together, with their trees where they go as whole trees.

    Attributes:
        prepared: The inputs of a pass over the trees, where they were made beside the one before.
    """

    groups: list[Group]
    trees: list[Tree]
    prepared: Prepared | None = None


class Task(ABC, Generic[Result]):
    """One kind of work on rows."""

    whole_trees: bool
    """Whether it needs one pass over everything that is asked about a picture, and so may run without a cache."""

    @abstractmethod
    def slots(self, group: Group, tree: Tree | None) -> tuple[int, int]:
        """How many rows a group makes in a batch, and how long they are."""

    @abstractmethod
    def together(self, model: TextModel, batch: Batch, token_budget: int) -> list[list[Result]]:
        """The results of each group's sequences; several groups only with their trees, or where padding may be."""

    @abstractmethod
    def alone(self, plain: Plain, inputs: Mapping[str, torch.Tensor], row: Asked) -> Result:
        """The result of one row from the processor's own inputs."""


class Read(Task[torch.Tensor]):
    """Log-probabilities `(keep, S)` of what each row wants to know, on the device.

    Args:
        grad: Keep the gradient to the pictures. Activations are made anew in the backward pass, a batch at a time.
    """

    whole_trees = True

    def __init__(self, grad: bool = False) -> None:
        self.grad = grad

    def slots(self, group: Group, tree: Tree | None) -> tuple[int, int]:
        """A tree is one row."""
        return 1, len(tree) if tree is not None else max(map(len, group.sequences))

    def together(self, model: TextModel, batch: Batch, token_budget: int) -> list[list[torch.Tensor]]:
        """One pass for whole trees; else the prefix, and then its continuations."""
        if self.grad:
            found: list[list[torch.Tensor]] = checkpoint(
                self._together, model, batch, token_budget, use_reentrant=False
            )
            return found
        with torch.no_grad():
            return self._together(model, batch, token_budget)

    def _together(self, model: TextModel, batch: Batch, token_budget: int) -> list[list[torch.Tensor]]:
        if batch.trees:
            trees = WholeTrees(model)
            hidden = trees.hidden(batch.prepared or trees.prepare(batch.groups, batch.trees))
        else:
            hidden = SharedPrefix(model).hidden(batch.groups[0], token_budget)
        readings = [reading for group in batch.groups for reading in group.readings]
        wanted = sent(table(readings), hidden.device)
        parts = zip(hidden.split(POSITIONS_AT_ONCE), wanted.split(POSITIONS_AT_ONCE))
        read = torch.cat([log_probabilities(model.logits(states), sets) for states, sets in parts])
        each = iter(read.split([reading.keep for reading in readings]))
        return [[next(each) for _ in group.sequences] for group in batch.groups]

    def alone(self, plain: Plain, inputs: Mapping[str, torch.Tensor], row: Asked) -> torch.Tensor:
        """As :meth:`together`, from the whole prompt."""
        if self.grad:
            read: torch.Tensor = checkpoint(self._alone, plain, inputs, row, use_reentrant=False)
            return read
        with torch.no_grad():
            return self._alone(plain, inputs, row)

    def _alone(self, plain: Plain, inputs: Mapping[str, torch.Tensor], row: Asked) -> torch.Tensor:
        logits = plain.logits(inputs, row.then)[-row.reading.keep :]
        return log_probabilities(logits, table([row.reading]).to(logits.device))


class Write(Task[list[int]]):
    """The tokens with which the judge goes on after each row, the likeliest at each step.

    Args:
        stop_tokens: Ids that end a turn (left out).
        longest: Most new tokens.
    """

    whole_trees = False

    def __init__(self, stop_tokens: Sequence[int], longest: int) -> None:
        self.stop_tokens, self.longest = stop_tokens, longest

    def slots(self, group: Group, tree: Tree | None) -> tuple[int, int]:
        """A sequence is one row, with room for what is written."""
        return len(group.sequences), max(map(len, group.sequences)) + self.longest

    @torch.no_grad()
    def together(self, model: TextModel, batch: Batch, token_budget: int) -> list[list[list[int]]]:
        """A token of every row at a time, on a cache that begins with the pictures."""
        return write(SharedPrefix(model), batch.groups, self.stop_tokens, self.longest, token_budget)

    def alone(self, plain: Plain, inputs: Mapping[str, torch.Tensor], row: Asked) -> list[int]:
        """As :meth:`together`, by the model's own generation."""
        return plain.greedy(inputs, row.then, self.stop_tokens, self.longest)
