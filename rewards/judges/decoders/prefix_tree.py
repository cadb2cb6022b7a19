"""Where token sequences part: the plan by which their common beginnings are computed once.

A plan has two levels below the root: root (the picture and the words common to all), branches (a criterion, or a
candidate), leaves (what only one sequence has). The root is computed once, each branch once on top of it, and each leaf
on top of its branch; the work is the number of tokens in the plan instead of in the sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class Branch:
    """Tokens `[start, stop)` shared by some sequences after the root; `start == stop` where nothing more is shared."""

    start: int
    stop: int
    members: list[int] = field(default_factory=list)


@dataclass
class Plan:
    """Tokens `[0, root)` are shared by all sequences; each belongs to one branch; the rest of it is its leaf."""

    root: int
    branches: list[Branch]

    def cost(self, lengths: Sequence[int]) -> int:
        """Tokens that are computed."""
        leaves = sum(lengths[member] - branch.stop for branch in self.branches for member in branch.members)
        return self.root + sum(branch.stop - branch.start for branch in self.branches) + leaves


def plan(sequences: Sequence[Sequence[int]], reserve: Sequence[int], levels: int = 2) -> Plan:
    """The two-level plan with the fewest tokens (where no sequence is the beginning of another).

    Args:
        sequences: Token ids; all distinct (equal sequences have nothing left to compute and are merged before).
        reserve: How many last tokens of each sequence must stay in its leaf, at least 1: logits are read there.
        levels: 1 for no branches.

    Example:
        >>> tree = plan([[1, 2, 3, 4], [1, 2, 3, 5], [1, 9, 9, 9]], reserve=[1, 1, 1])
        >>> tree.root, [(branch.start, branch.stop, branch.members) for branch in tree.branches]
        (1, [(1, 3, [0, 1]), (1, 1, [2])])
    """
    limits = [len(sequence) - kept for sequence, kept in zip(sequences, reserve)]
    order = sorted(range(len(sequences)), key=lambda index: list(sequences[index]))
    # In sorted order every common prefix belongs to neighbours: shared[i] is that of order[i] and order[i + 1].
    shared = [
        min(_common(sequences[here], sequences[there]), limits[here], limits[there])
        for here, there in itertools.pairwise(order)
    ]
    root = min([*shared, *limits])
    if levels == 1:
        return Plan(root, [Branch(root, root, [index]) for index in order])
    return Plan(root, _cheapest(order, shared, root))


def _cheapest(order: list[int], shared: list[int], root: int) -> list[Branch]:
    """The branches that save most over leaves alone.

    Sequences that share `depth` tokens are parted where neighbours share no more than that, which gives a tree of
    possible branches. A branch costs its tokens once and saves them for each of its members, and a member belongs to
    the deepest branch above it. So a part's savings depend on the rest of the tree only by which branch above is the
    nearest: they are computed for each of those, from the leaves up, and the branches then chosen from the top down.
    """
    parts = _parts(order, shared, root)
    gains: dict[tuple[int, int], NDArray[np.int64]] = {}  # of a part, by the nearest branch above it; 0 for none
    chosen: dict[tuple[int, int], NDArray[np.bool_]] = {}  # whether the part is a branch then
    for span in reversed(parts):
        part = parts[span]
        if not part.children:
            gains[span] = np.array(part.above, dtype=np.int64)
            continue
        below = np.sum([gains.pop(child) for child in part.children], axis=0)
        alone, branched = below[:-1], below[-1] - part.depth
        gains[span], chosen[span] = np.maximum(alone, branched), branched > alone

    branches: list[Branch] = []
    pending: list[tuple[tuple[int, int], int, Branch | None]] = [((0, len(order)), 0, None)]
    while pending:
        span, nearest, branch = pending.pop()
        part = parts[span]
        if not part.children:
            if branch is None:
                branches.append(Branch(root, root, [order[span[0]]]))
            else:
                branch.members.append(order[span[0]])
            continue
        if chosen[span][nearest]:
            nearest, branch = len(part.above), Branch(root, root + part.depth)
            branches.append(branch)
        pending.extend((child, nearest, branch) for child in reversed(part.children))
    return branches


@dataclass
class _Part:
    """Neighbours `[first, last)` in sorted order that share `depth` tokens after the root.

    Attributes:
        above: Depths of the parts around this one, outermost first, after a 0 that stands for no branch at all.
        children: The parts that it is made of; none for a single sequence.
    """

    depth: int
    above: list[int]
    children: list[tuple[int, int]] = field(default_factory=list)


def _parts(order: list[int], shared: list[int], root: int) -> dict[tuple[int, int], _Part]:
    """All parts by their span, each before those that it is made of."""
    parts: dict[tuple[int, int], _Part] = {}
    # Iterative: a recursion would be as deep as the longest chain of nested prefixes.
    pending: list[tuple[int, int, list[int]]] = [(0, len(order), [0])]
    while pending:
        first, last, above = pending.pop()
        if last - first == 1:
            parts[first, last] = _Part(0, above)
            continue
        depth = min(shared[first : last - 1])
        cuts = [at + 1 for at in range(first, last - 1) if shared[at] == depth]
        children = list(zip([first, *cuts], [*cuts, last]))
        parts[first, last] = _Part(depth - root, above, children)
        pending.extend((start, stop, [*above, depth - root]) for start, stop in children)
    return parts


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:  # comparing slices is far quicker than a loop over thousands of image tokens
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
