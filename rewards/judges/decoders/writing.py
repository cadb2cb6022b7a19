"""Greedy continuations of many prompts about many pictures, a token of all of them at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from rewards.judges.decoders.prefix_tree import plan
from rewards.judges.decoders.rows import Group
from rewards.judges.decoders.shared_prefix import SharedPrefix, State, batches


def write(
    prefix: SharedPrefix, groups: Sequence[Group], stop_tokens: Sequence[int], longest: int, token_budget: int
) -> list[list[list[int]]]:
    """Continue each distinct sequence until a stop token (left out) or `longest` tokens.

    Args:
        prefix: The model.
        groups: What is asked about several pictures; one group only where padding may not leave holes.
        stop_tokens: Ids that end a turn.
        longest: Most new tokens.
        token_budget: Most cache slots (rows x length) of a batch.

    Returns:
        For each group, the new tokens of each of its sequences.
    """
    roots = [plan(group.sequences, [1] * len(group.sequences), levels=1).root for group in groups]
    _, state = prefix.start(groups, roots)
    owners = [at for at, group in enumerate(groups) for _ in group.sequences]
    tails = [sequence[root:] for group, root in zip(groups, roots) for sequence in group.sequences]
    written: list[list[int]] = [[] for _ in tails]
    holes = prefix.model.holes_allowed
    for batch in batches(tails, max(roots) + longest, token_budget, equal_lengths=not holes):
        begun = state.take([owners[at] for at in batch])
        for row, token in _tokens(prefix, begun, [tails[at] for at in batch], stop_tokens, longest):
            written[batch[row]].append(token)
    flat = iter(written)
    return [[next(flat) for _ in group.sequences] for group in groups]


def _tokens(
    prefix: SharedPrefix, state: State, tails: Sequence[Sequence[int]], stop_tokens: Sequence[int], longest: int
) -> Iterator[tuple[int, int]]:
    """Rows and their next tokens; the device is waited for once a step for the whole batch."""
    hidden, state = prefix.extend(state, tails)
    last = torch.tensor([len(tail) - 1 for tail in tails], device=hidden.device)
    running = list(range(len(tails)))
    for step in range(longest):
        if step > 0:
            last = torch.zeros(len(running), dtype=torch.long, device=hidden.device)
        rows = torch.arange(len(running), device=hidden.device)
        said = prefix.model.logits(hidden[rows, last]).argmax(-1).tolist()
        going = [row for row, token in enumerate(said) if token not in stop_tokens]
        for row in going:
            yield running[row], said[row]
        if not going or step + 1 == longest:
            return
        if len(going) < len(running):
            state, running = state.take(going), [running[row] for row in going]
        hidden, state = prefix.extend(state, [[said[row]] for row in going])
