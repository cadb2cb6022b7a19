"""Next-token states of many prompts about one picture whose tree is too long for one row.

The picture and the words common to all prompts go through the model once and stay in the key-value cache. Branches
(what some prompts share beyond that) and leaves follow it as one row of tokens, in which each sees only its own past
(:mod:`rewards.judges.decoders.packing`). Models with sliding windows, and attention that takes no mask of its own,
get them as batches on copies of the cache instead. See :mod:`rewards.judges.decoders.prefix_tree` for which token goes
where, and :mod:`rewards.judges.decoders.forest` for trees that fit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from transformers import DynamicCache

from rewards.judges.decoders.inputs import TextModel, sent
from rewards.judges.decoders.packing import Segment, pack, rows_of, tokens_of
from rewards.judges.decoders.prefix_tree import Branch, Plan, plan
from rewards.judges.decoders.rows import Group

PACKED_TOKENS = 512
"""About how many tokens of branches and leaves make one row. Each is compared with all others in the row, so that
longer rows waste attention; shorter ones waste matrix products, and copy the prefix's keys and values more often."""


class State(NamedTuple):
    """A batch of B prefixes of padded length P in the cache.

    Attributes:
        cache: Keys and values.
        mask: `(B, P)` 1 where a token is, 0 where padding left a hole.
        next_position: `(B,)` rotary position of the next token. With pictures in 2-D positions it is not the length.
    """

    cache: DynamicCache
    mask: torch.Tensor
    next_position: torch.Tensor

    def fork(self) -> State:
        """The same state for another continuation: a cache grows into new tensors and leaves those it began with."""
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        return State(cache, self.mask, self.next_position)

    def take(self, rows: Sequence[int]) -> State:
        """A state with the given rows, repeated as given; this state stays as it is."""
        index = torch.tensor(list(rows), device=self.mask.device)
        taken = self.fork()
        taken.cache.batch_select_indices(index)
        return State(taken.cache, self.mask[index], self.next_position[index])


class SharedPrefix:
    """Runs a decoder VLM over token sequences that begin with the same pictures, on one cache.

    Args:
        model: The model, one of :data:`rewards.judges.decoders.inputs.ARCHITECTURES`.
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def hidden(self, group: Group, token_budget: int) -> torch.Tensor:
        """The states `(K, D)` at the positions that the group reads, sequence by sequence.

        Args:
            group: What is asked about some pictures.
            token_budget: Most cache slots (rows x length) that a batch may have.
        """
        sequences, keep = group.sequences, [reading.keep for reading in group.readings]
        if len(sequences) == 1:
            return self.start([group], [len(sequences[0])])[0][0, -keep[0] :]
        tree = plan(sequences, keep)
        _, root = self.start([group], [tree.root])
        leaves = self._packed_leaves if self.model.packs else self._batched_leaves
        found = {member: hidden[-keep[member] :] for member, hidden in leaves(root, tree, sequences, token_budget)}
        return torch.cat([found[index] for index in range(len(sequences))])

    def start(self, groups: Sequence[Group], roots: Sequence[int]) -> tuple[torch.Tensor, State]:
        """The first tokens of B groups, pictures included: states `(B, T, D)`, and what follows goes on from there.

        Args:
            groups: A row each.
            roots: How many tokens of a group's sequences (all the same) go in; shorter rows are filled up on the right.
        """
        model = self.model
        rows = [group.sequences[0][:root] for group, root in zip(groups, roots)]
        longest = max(roots)
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows]).to(model.device)
        positions, following = model.positions(rows, groups)
        cache = DynamicCache(config=model.text_config)
        pictures = model.moved(model.pictures(rows, groups, longest))
        hidden = model.forward(tokens.to(model.device), mask, sent(positions, model.device), pictures, cache=cache)
        return hidden, State(cache, mask, torch.tensor(following, device=model.device))

    def _packed_leaves(
        self, root: State, tree: Plan, sequences: Sequence[Sequence[int]], token_budget: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Each sequence and the hidden states `(T, D)` of its leaf, the prefix never copied."""
        small: list[Branch] = []
        for branch in tree.branches:
            room = min(PACKED_TOKENS, token_budget - tree.root)
            if branch.stop == branch.start or tokens_of(branch, sequences) <= room:
                small.append(branch)
                continue
            # More leaves than one row takes: the branch becomes a prefix of its own.
            _, state = self.extend(root.fork(), [sequences[branch.members[0]][branch.start : branch.stop]])
            yield from self._leaves_of_rows(state, [replace(branch, start=branch.stop)], sequences, token_budget)
        yield from self._leaves_of_rows(root, small, sequences, token_budget)

    def _leaves_of_rows(
        self, prefix: State, branches: list[Branch], sequences: Sequence[Sequence[int]], token_budget: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        room = min(PACKED_TOKENS, token_budget - prefix.mask.shape[1])
        for row in rows_of(branches, sequences, room):
            hidden, stops = self._extend_packed(prefix.fork(), row)
            for segment, stop in zip(row, stops):
                if segment.member is not None:
                    yield segment.member, hidden[stop - len(segment.tokens) : stop]

    def _batched_leaves(
        self, root: State, tree: Plan, sequences: Sequence[Sequence[int]], token_budget: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Each sequence and the hidden states `(T, D)` of its leaf, by batches on copies of the prefix."""
        for branches, state in self._branch_states(root, tree.branches, sequences, tree.root, token_budget):
            leaves = [(row, member) for row, branch in enumerate(branches) for member in branch.members]
            tails = [list(sequences[member][branches[row].stop :]) for row, member in leaves]
            for batch in batches(tails, state.mask.shape[1], token_budget):
                hidden, _ = self.extend(state.take([leaves[at][0] for at in batch]), [tails[at] for at in batch])
                for row, at in enumerate(batch):
                    yield leaves[at][1], hidden[row, : len(tails[at])]

    def _branch_states(
        self, root: State, branches: list[Branch], sequences: Sequence[Sequence[int]], start: int, token_budget: int
    ) -> Iterator[tuple[list[Branch], State]]:
        """Batches of branches with their states; branches without tokens of their own share the root's."""
        bare = [branch for branch in branches if branch.stop == branch.start]
        if bare:
            merged = Branch(start, start, [member for branch in bare for member in branch.members])
            yield [merged], root
        grown = [branch for branch in branches if branch.stop > branch.start]
        tokens = [list(sequences[branch.members[0]][branch.start : branch.stop]) for branch in grown]
        for batch in batches(tokens, root.mask.shape[1], token_budget, equal_lengths=not self.model.holes_allowed):
            _, state = self.extend(root.take([0] * len(batch)), [tokens[at] for at in batch])
            yield [grown[at] for at in batch], state

    def extend(self, state: State, tails: Sequence[Sequence[int]]) -> tuple[torch.Tensor, State]:
        """Append one tail to each row, padded on the right: hidden states `(B, S, D)` and the new state.

        Tokens never attend to padding after them; padding before later tokens is masked out, and positions go on
        where the row's own tokens ended.
        """
        device = state.mask.device
        longest = max(map(len, tails))
        lengths = torch.tensor([len(tail) for tail in tails], device=device)
        tokens = torch.tensor([list(tail) + [0] * (longest - len(tail)) for tail in tails], device=device)
        steps = torch.arange(longest, device=device)
        mask = torch.cat([state.mask, (steps < lengths[:, None]).to(state.mask.dtype)], dim=1)
        hidden = self.model.forward(tokens, mask, state.next_position[:, None] + steps, {}, cache=state.cache)
        return hidden, State(state.cache, mask, state.next_position + lengths)

    def _extend_packed(self, state: State, segments: Sequence[Segment]) -> tuple[torch.Tensor, list[int]]:
        """Append segments to a prefix of one row without holes: hidden states `(T, D)`, and where each segment ends."""
        if len(segments) == 1:  # perhaps a very long one: a mask of our own would be as large as its square
            hidden, _ = self.extend(state, [segments[0].tokens])
            return hidden[0], [len(segments[0].tokens)]
        row = pack(segments, state.mask.device)
        visible = torch.cat([state.mask.bool().expand(len(row.tokens), -1), row.visible], dim=1)
        positions = (state.next_position + row.depths)[None]
        hidden = self.model.forward(row.tokens[None], self.model.mask(visible[None]), positions, {}, cache=state.cache)
        return hidden[0], row.stops


def batches(
    tails: Sequence[Sequence[int]], prefix: int, token_budget: int, equal_lengths: bool = False
) -> Iterator[list[int]]:
    """Indices of tails of similar length, in batches of at most `token_budget` slots, each row's prefix included."""
    order = sorted(range(len(tails)), key=lambda index: len(tails[index]))
    batch: list[int] = []
    for index in order:
        slots = (len(batch) + 1) * (prefix + len(tails[index]))
        if batch and (slots > token_budget or (equal_lengths and len(tails[index]) != len(tails[batch[0]]))):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
