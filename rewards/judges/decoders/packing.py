"""Several continuations of one prefix as a single row of tokens.

A batch of continuations needs a copy of the prefix's keys and values a row, and padding. In one row the prefix stays
where it is: each token sees the prefix, the segment that its own continues, and its own segment up to itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from rewards.judges.decoders.prefix_tree import Branch


class Segment(NamedTuple):
    """Tokens that go on after the prefix, or after an earlier segment of the row.

    Attributes:
        tokens: Their ids.
        parent: Place of the segment that they continue, or None for the prefix itself.
        member: Which sequence ends here, or None where others continue it.
    """

    tokens: Sequence[int]
    parent: int | None = None
    member: int | None = None


class PackedRow(NamedTuple):
    """T tokens of some segments, one after the other.

    Attributes:
        tokens: `(T,)` ids.
        depths: `(T,)` how many tokens stand between the prefix and each one: its position, counted from there.
        visible: `(T, T)` bool, which of the row's tokens (columns) each one (rows) sees.
        stops: Where each segment ends.
    """

    tokens: torch.Tensor
    depths: torch.Tensor
    visible: torch.Tensor
    stops: list[int]


def pack(segments: Sequence[Segment], device: torch.device | str = "cpu") -> PackedRow:
    """Lay out segments as one row.

    Example:
        >>> row = pack([Segment([7, 8]), Segment([5], parent=0), Segment([6], parent=0)])
        >>> row.depths.tolist(), row.stops, row.visible[3].tolist()
        ([0, 1, 2, 2], [2, 3, 4], [True, True, False, True])
    """
    tokens = [token for segment in segments for token in segment.tokens]
    owner = torch.tensor([at for at, segment in enumerate(segments) for _ in segment.tokens], device=device)
    continued = torch.tensor([-1 if segment.parent is None else segment.parent for segment in segments], device=device)
    before = [0 if segment.parent is None else len(segments[segment.parent].tokens) for segment in segments]
    depths = [
        start + place for segment, start in zip(segments, before, strict=True) for place in range(len(segment.tokens))
    ]
    seen = (owner[None, :] == owner[:, None]) | (owner[None, :] == continued[owner][:, None])
    stops = torch.tensor([len(segment.tokens) for segment in segments]).cumsum(0).tolist()
    return PackedRow(
        torch.tensor(tokens, device=device), torch.tensor(depths, device=device), seen.tril(), [int(at) for at in stops]
    )


def rows_of(branches: Sequence[Branch], sequences: Sequence[Sequence[int]], room: int) -> Iterator[list[Segment]]:
    """Branches and their leaves in rows of about `room` tokens; a branch never parts from its leaves.

    A row is longer only where one leaf or one branch with its leaves is; see :func:`leaves_of` for such a branch.
    """
    row: list[Segment] = []
    for branch in branches:
        leaves = list(leaves_of(branch, sequences))
        if branch.stop > branch.start:
            shared = sequences[branch.members[0]][branch.start : branch.stop]
            families = [[Segment(shared), *(leaf._replace(parent=0) for leaf in leaves)]]
        else:
            families = [[leaf] for leaf in leaves]
        for family in families:
            if row and _length(row) + _length(family) > room:
                yield row
                row = []
            place = len(row)
            row += [one if one.parent is None else one._replace(parent=place) for one in family]
    if row:
        yield row


def leaves_of(branch: Branch, sequences: Sequence[Sequence[int]]) -> Iterator[Segment]:
    """What each member of a branch has to itself."""
    for member in branch.members:
        yield Segment(sequences[member][branch.stop :], member=member)


def tokens_of(branch: Branch, sequences: Sequence[Sequence[int]]) -> int:
    """Tokens of a branch and its leaves."""
    return branch.stop - branch.start + sum(len(leaf.tokens) for leaf in leaves_of(branch, sequences))


def _length(segments: Sequence[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments)
