"""One pass over whole trees: a vision forward and a language forward for several pictures and all that is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from rewards.judges.decoders.forest import Forest, Tree, plant
from rewards.judges.decoders.inputs import TextModel, sent
from rewards.judges.decoders.rows import Group


class Prepared(NamedTuple):
    """A pass's inputs, still on the host.

    Attributes:
        forest: The trees.
        positions: `(B, T)` or `(3, B, T)`.
        pictures: As :meth:`TextModel.pictures` gives them.
    """

    forest: Forest
    positions: torch.Tensor
    pictures: dict[str, torch.Tensor]


class WholeTrees:
    """Runs a decoder VLM over the trees of several groups at once.

    Args:
        model: The model; it must take a mask of ours (:attr:`TextModel.packs`).
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def prepare(self, groups: Sequence[Group], trees: Sequence[Tree]) -> Prepared:
        """All that needs no device: another thread may do it while the model is busy."""
        forest = plant(trees)
        rows = [tree.tokens.tolist() for tree in trees]
        pictures = self.model.pictures(rows, groups, forest.tokens.shape[1])
        return Prepared(forest, self._positions(groups, trees, forest.depths), pictures)

    def hidden(self, prepared: Prepared) -> torch.Tensor:
        """The states `(K, D)` at the positions that the groups read, group by group, sequence by sequence."""
        model = self.model
        forest = prepared.forest.to(model.device)
        states = model.forward(
            forest.tokens,
            forest.mask(model.model.dtype),
            sent(prepared.positions, model.device),
            model.moved(prepared.pictures),
        )
        return states.flatten(0, 1)[forest.kept]

    def _positions(self, groups: Sequence[Group], trees: Sequence[Tree], depths: torch.Tensor) -> torch.Tensor:
        """After the root, positions count on from its last, which need not be its length where pictures are 2-D."""
        roots = [tree.tokens[: tree.root].tolist() for tree in trees]
        at_roots, following = self.model.positions(roots, groups)
        if at_roots.ndim == 2:
            return depths
        ends = torch.tensor([tree.root for tree in trees])[:, None]
        positions = (depths - ends + torch.tensor(following)[:, None]).expand(3, -1, -1).clone()
        inside = torch.arange(at_roots.shape[2]) < ends
        positions[:, :, : at_roots.shape[2]] = torch.where(inside, at_roots, positions[:, :, : at_roots.shape[2]])
        return positions
