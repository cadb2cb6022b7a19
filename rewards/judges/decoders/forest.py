"""Whole trees as rows: several pictures, each with everything that is asked about it, in one forward pass.

A row is a picture, the words common to all of its prompts, and after them branches and leaves one after the other; a
token sees its own past only. No cache is needed, and no token is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rewards.judges.decoders.inputs import sent
from rewards.judges.decoders.prefix_tree import plan

Integers = NDArray[np.int64]


class Tree(NamedTuple):
    """T tokens of a picture's tree.

    Attributes:
        tokens: `(T,)` ids.
        depths: `(T,)` how many tokens of its sequence stand before each one.
        owners: `(T,)` which segment each belongs to; 0 is the root.
        parents: `(T,)` the segment that its own continues (the root continues itself).
        kept: `(K,)` where the positions are that are read, sequence by sequence.
        root: How many tokens the root has.
    """

    tokens: Integers
    depths: Integers
    owners: Integers
    parents: Integers
    kept: Integers
    root: int

    def __len__(self) -> int:
        return len(self.tokens)


def grow(sequences: Sequence[Sequence[int]], keep: Sequence[int]) -> Tree:
    """The tree of some distinct sequences.

    Args:
        sequences: Token ids, beginning with the same pictures.
        keep: How many last positions of each are read, at least 1.

    Example:
        >>> tree = grow([[1, 2, 3, 4], [1, 2, 3, 5]], [1, 1])
        >>> tree.tokens.tolist(), tree.depths.tolist(), tree.kept.tolist(), tree.root
        ([1, 2, 3, 4, 5], [0, 1, 2, 3, 3], [3, 4], 3)
    """
    planned = plan(sequences, keep)
    segments: list[tuple[Sequence[int], int, int]] = [(sequences[0][: planned.root], 0, 0)]
    ends: dict[int, int] = {}
    length = planned.root
    for branch in planned.branches:
        above = 0
        if branch.stop > branch.start:
            above = len(segments)
            segments.append((sequences[branch.members[0]][branch.start : branch.stop], branch.start, 0))
            length += branch.stop - branch.start
        for member in branch.members:
            leaf = sequences[member][branch.stop :]
            segments.append((leaf, branch.stop, above))
            length += len(leaf)
            ends[member] = length
    lengths = [len(tokens) for tokens, _, _ in segments]
    starts = np.cumsum([0, *lengths[:-1]], dtype=np.int64)
    begins = np.repeat(np.array([depth for _, depth, _ in segments], dtype=np.int64) - starts, lengths)
    return Tree(
        tokens=np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens, _, _ in segments]),
        depths=np.arange(length, dtype=np.int64) + begins,
        owners=np.repeat(np.arange(len(segments)), lengths),
        parents=np.repeat([parent for _, _, parent in segments], lengths),
        kept=np.concatenate([np.arange(ends[at] - kept, ends[at]) for at, kept in enumerate(keep)]),
        root=planned.root,
    )


class Forest(NamedTuple):
    """B trees as the rows of one batch, filled up to T tokens on the right.

    Attributes:
        tokens: `(B, T)` ids; 0 where a row is over.
        depths: `(B, T)`.
        owners: `(B, T)`; -1 where a row is over.
        parents: `(B, T)`.
        kept: `(K,)` places in the flattened batch, tree by tree.
        root: Tokens of the shortest root.
    """

    tokens: torch.Tensor
    depths: torch.Tensor
    owners: torch.Tensor
    parents: torch.Tensor
    kept: torch.Tensor
    root: int

    def to(self, device: torch.device) -> Forest:
        """The same on the device."""
        tokens, depths, owners, parents, kept = (sent(tensor, device) for tensor in self[:5])
        return Forest(tokens, depths, owners, parents, kept, self.root)

    def mask(self, dtype: torch.dtype) -> torch.Tensor:
        """`(B, 1, T, T)` on the forest's device: 0 where a token (row) sees another (column), else the dtype's least.

        A token sees root, branch and own segment, up to itself. Roots see their past and are seen by all: what lies
        beyond the shortest root, often a tenth of the whole, is all that has to be compared.

        Example:
            >>> (plant([grow([[1, 2], [1, 3]], [1, 1])]).mask(torch.float32)[0, 0] == 0).int().tolist()
            [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
        """
        rows, length = self.tokens.shape
        hidden = torch.finfo(dtype).min
        past = torch.full((length, length), hidden, dtype=dtype, device=self.tokens.device).triu_(1)
        mask = past.repeat(rows, 1, 1)
        owners, parents = self.owners[:, self.root :], self.parents[:, self.root :, None]
        columns = owners[:, None, :]
        seen = (columns == owners[:, :, None]) | (columns == parents) | (columns == 0)
        mask[:, self.root :, self.root :].masked_fill_(~seen, hidden)
        return mask[:, None]


def plant(trees: Sequence[Tree]) -> Forest:
    """Trees as one batch, on the host."""
    longest = max(map(len, trees))
    rows = np.zeros((4, len(trees), longest), dtype=np.int64)
    rows[2:] = -1
    for at, tree in enumerate(trees):
        rows[:, at, : len(tree)] = tree.tokens, tree.depths, tree.owners, tree.parents
    kept = np.concatenate([tree.kept + at * longest for at, tree in enumerate(trees)])
    tokens, depths, owners, parents = torch.from_numpy(rows)
    return Forest(tokens, depths, owners, parents, torch.from_numpy(kept), min(tree.root for tree in trees))
