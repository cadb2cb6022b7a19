"""One pass over whole trees: a vision forward and a language forward for several pictures and all that is asked."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rewards.judges.decoders.forest import Tree, plant
from rewards.judges.decoders.inputs import TextModel
from rewards.judges.decoders.rows import Group


class WholeTrees:
    """Runs a decoder VLM over the trees of several groups at once.

    Args:
        model: The model; it must take a mask of ours (:attr:`TextModel.packs`).
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def hidden(self, groups: Sequence[Group], trees: Sequence[Tree]) -> torch.Tensor:
        """The states `(K, D)` at the positions that the groups read, group by group, sequence by sequence."""
        model = self.model
        forest = plant(trees, model.device)
        rows = [tree.tokens.tolist() for tree in trees]
        states = model.forward(
            forest.tokens,
            model.mask(forest.visible()),
            self._positions(groups, trees, forest.depths),
            model.pictures(rows, groups, forest.tokens.shape[1]),
        )
        return states.flatten(0, 1)[forest.kept]

    def _positions(self, groups: Sequence[Group], trees: Sequence[Tree], depths: torch.Tensor) -> torch.Tensor:
        """After the root, positions count on from its last, which need not be its length where pictures are 2-D."""
        roots = [tree.tokens[: tree.root].tolist() for tree in trees]
        at_roots, following = self.model.positions(roots, groups)
        if at_roots.ndim == 2:
            return depths
        ends = torch.tensor([tree.root for tree in trees], device=depths.device)[:, None]
        after = depths - ends + torch.tensor(following, device=depths.device)[:, None]
        positions = after.expand(3, -1, -1).clone()
        inside = torch.arange(at_roots.shape[2], device=depths.device) < ends
        positions[:, :, : at_roots.shape[2]] = torch.where(inside, at_roots, positions[:, :, : at_roots.shape[2]])
        return positions
