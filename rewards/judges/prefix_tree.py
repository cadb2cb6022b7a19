"""Where token sequences part: the plan by which their common beginnings are computed once.

A plan has two levels below the root: root (the picture and the words common to all), branches (a criterion, or a
candidate), leaves (what only one sequence has). The root is computed once, each branch once on top of it, and each leaf
on top of its branch; the work is the number of tokens in the plan instead of in the sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field


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
    _, branches = _cheapest(order, shared, limits, root) if levels > 1 else (0, None)
    if branches is None:
        branches = [Branch(root, root, [index]) for index in order]
    return Plan(root, branches)


def _cheapest(order: list[int], shared: list[int], limits: list[int], root: int) -> tuple[int, list[Branch]]:
    """Tokens saved over leaves alone, and the branches that save them, among the sequences in `order`.

    Sequences that share `depth` tokens are parted where neighbours share no more than that; each part keeps its own
    branches or joins a branch of that depth, whichever saves more.
    """
    # Iterative: a recursion would be as deep as the longest chain of nested prefixes.
    pending: list[tuple[int, int, bool]] = [(0, len(order), False)]
    best: dict[tuple[int, int], tuple[int, list[Branch]]] = {}
    while pending:
        first, last, children_done = pending.pop()
        if last - first == 1:
            best[first, last] = (0, [Branch(root, root, [order[first]])])
            continue
        depth = min(shared[first : last - 1])
        cuts = [at + 1 for at in range(first, last - 1) if shared[at] == depth]
        parts = list(zip([first, *cuts], [*cuts, last]))
        if not children_done:
            pending.append((first, last, True))
            pending.extend((start, stop, False) for start, stop in parts)
            continue
        best[first, last] = _join(parts, [best.pop(part) for part in parts], order, root, depth)
    return best[0, len(order)]


def _join(
    parts: list[tuple[int, int]], own: list[tuple[int, list[Branch]]], order: list[int], root: int, depth: int
) -> tuple[int, list[Branch]]:
    """A branch of `depth` tokens saves `(n - 1) * (depth - root)` for n sequences: all but one computation of it."""
    joining = [(last - first) * (depth - root) > saved for (first, last), (saved, _) in zip(parts, own)]
    joined = [order[at] for (first, last), joins in zip(parts, joining) if joins for at in range(first, last)]
    apart = [entry for entry, joins in zip(own, joining) if not joins]
    saved_apart = sum(saved for saved, _ in own)
    saved_joined = (len(joined) - 1) * (depth - root) + sum(saved for saved, _ in apart)
    if joined and saved_joined > saved_apart:
        return saved_joined, [Branch(root, depth, joined), *(branch for _, branches in apart for branch in branches)]
    return saved_apart, [branch for _, branches in own for branch in branches]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:  # comparing slices is far quicker than a loop over thousands of image tokens
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
