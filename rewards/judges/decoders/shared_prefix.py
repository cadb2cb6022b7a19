"""Next-token logits of many prompts about one picture, with everything that they share computed once.

The picture and the words common to all prompts go through the model once and stay in the key-value cache. Branches
(what some prompts share beyond that) and leaves follow it as one row of tokens, in which each sees only its own past
(:mod:`rewards.judges.decoders.packing`). Models with sliding windows, and attention that takes no mask of its own,
get them as batches on copies of the cache instead. See :mod:`rewards.judges.decoders.prefix_tree` for which token goes
where.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache

from rewards.judges.decoders.packing import Segment, pack, rows_of, tokens_of
from rewards.judges.decoders.prefix_tree import Branch, Plan, plan

ARCHITECTURES = (
    "llava", "llava_next", "idefics3", "smolvlm", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "gemma3",
)  # fmt: skip
"""Model types whose shared-prefix logits are tested to equal those of independent full prompts."""

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

    cache: Any
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
    """Runs a decoder VLM over token sequences that share their pictures.

    Args:
        model: A transformers model of one of :data:`ARCHITECTURES`, with `.model` inside it.
        processor: Its processor: tells which ids stand for a picture.
    """

    def __init__(self, model: Any, processor: Any) -> None:
        self.model = model
        self.processor = processor
        parameters = inspect.signature(type(model.model).forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"  # renamed in transformers 5.24
        self._type_ids = next((name for name in ("mm_token_type_ids", "token_type_ids") if name in parameters), None)
        self._rotary_3d = hasattr(model.model, "get_rope_index")
        text_config = model.config.get_text_config()
        layers = DynamicCache(config=text_config).layers
        # A window counts every cache slot, padding included: with holes it would reach less far back than it should.
        self._holes_allowed = not any(getattr(layer, "is_sliding", False) for layer in layers)
        self._text_config = text_config
        self._packs = self._holes_allowed and text_config._attn_implementation in ("sdpa", "eager")

    @torch.no_grad()
    def run(
        self,
        inputs: dict[str, torch.Tensor],
        sequences: Sequence[Sequence[int]],
        keep: Sequence[int],
        reduce: Callable[[int, torch.Tensor], torch.Tensor],
        token_budget: int,
    ) -> list[torch.Tensor]:
        """Reduce the last logits of each sequence.

        Args:
            inputs: The picture's inputs for the vision tower.
            sequences: Distinct token ids, all beginning with the same pictures.
            keep: How many last positions of each sequence are needed.
            reduce: From a sequence's index and its float32 logits `(keep, V)` to what should be kept of them.
            token_budget: Most cache slots (rows x length) that a batch may have.

        Returns:
            What `reduce` gave, in the order of the sequences.
        """
        results: dict[int, torch.Tensor] = {}
        if len(sequences) == 1:
            hidden = self._start(inputs, sequences[0])[0][:, -keep[0] :]
            return [reduce(0, self._logits(hidden[0]))]
        tree = plan(sequences, keep)
        _, root = self._start(inputs, sequences[0][: tree.root])
        leaves = self._packed_leaves if self._packs else self._batched_leaves
        for member, hidden in leaves(root, tree, sequences, token_budget):
            results[member] = reduce(member, self._logits(hidden[-keep[member] :]))
        return [results[index] for index in range(len(sequences))]

    @torch.no_grad()
    def greedy(
        self,
        inputs: dict[str, torch.Tensor],
        sequences: Sequence[Sequence[int]],
        stop_tokens: Sequence[int],
        longest: int,
        token_budget: int,
    ) -> list[list[int]]:
        """Continue each distinct sequence greedily until a stop token (left out) or `longest` tokens."""
        tree = plan(sequences, [1] * len(sequences), levels=1)
        _, root = self._start(inputs, sequences[0][: tree.root])
        answers: list[list[int]] = [[] for _ in sequences]
        tails = [list(sequence[tree.root :]) for sequence in sequences]
        for batch in _batches(tails, tree.root + longest, token_budget, equal_lengths=not self._holes_allowed):
            hidden, state = self._extend(root.take([0] * len(batch)), [tails[at] for at in batch])
            last = torch.tensor([len(tails[at]) - 1 for at in batch], device=hidden.device)
            running = list(range(len(batch)))
            for _ in range(longest):
                step = self._logits(hidden[torch.arange(len(running), device=hidden.device), last]).argmax(-1).tolist()
                going = [row for row, token in enumerate(step) if token not in stop_tokens]
                for row in going:
                    answers[batch[running[row]]].append(step[row])
                if not going:
                    break
                if len(going) < len(running):
                    state, running = state.take(going), [running[row] for row in going]
                hidden, state = self._extend(state, [[step[row]] for row in going])
                last = torch.zeros(len(running), dtype=torch.long, device=hidden.device)
        return answers

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
            _, state = self._extend(root.fork(), [sequences[branch.members[0]][branch.start : branch.stop]])
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
            for batch in _batches(tails, state.mask.shape[1], token_budget):
                hidden, _ = self._extend(state.take([leaves[at][0] for at in batch]), [tails[at] for at in batch])
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
        for batch in _batches(tokens, root.mask.shape[1], token_budget, equal_lengths=not self._holes_allowed):
            _, state = self._extend(root.take([0] * len(batch)), [tokens[at] for at in batch])
            yield [grown[at] for at in batch], state

    def _start(self, inputs: dict[str, torch.Tensor], ids: Sequence[int]) -> tuple[torch.Tensor, State]:
        """The first pass, pictures included: hidden states `(1, T, D)` and the state after them."""
        device = self.model.device
        tokens = torch.tensor([list(ids)], device=device)
        mask = torch.ones_like(tokens)
        extra: dict[str, Any] = dict(inputs)
        if self._type_ids:
            extra[self._type_ids] = torch.tensor(self.processor.create_mm_token_type_ids([list(ids)]), device=device)
        next_position = len(ids)
        if self._rotary_3d:
            self.model.model.rope_deltas = None  # left there by the last picture; it would shift this one
            if "image_grid_thw" in inputs:
                positions, _ = self.model.model.get_rope_index(
                    tokens,
                    mm_token_type_ids=extra["mm_token_type_ids"],
                    image_grid_thw=inputs["image_grid_thw"],
                    attention_mask=mask,
                )
                extra["position_ids"] = positions
                next_position = int(positions.max()) + 1
        cache = DynamicCache(config=self._text_config)
        output = self.model.model(
            input_ids=tokens, attention_mask=mask, use_cache=True, **{self._cache_name: cache}, **extra
        )
        state = State(cache, mask, torch.tensor([next_position], device=device))
        return output.last_hidden_state, state

    def _extend(self, state: State, tails: Sequence[Sequence[int]]) -> tuple[torch.Tensor, State]:
        """Append one tail to each row, padded on the right: hidden states `(B, S, D)` and the new state.

        Tokens never attend to padding after them; padding before later tokens is masked out, and positions go on
        where the row's own tokens ended.
        """
        device = state.mask.device
        lengths = torch.tensor([len(tail) for tail in tails], device=device)
        longest = int(lengths.max())
        tokens = torch.tensor([list(tail) + [0] * (longest - len(tail)) for tail in tails], device=device)
        steps = torch.arange(longest, device=device)
        mask = torch.cat([state.mask, (steps < lengths[:, None]).to(state.mask.dtype)], dim=1)
        positions = state.next_position[:, None] + steps
        if self._rotary_3d:
            positions = positions.expand(3, -1, -1)
        output = self.model.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache_name: state.cache},
        )
        return output.last_hidden_state, State(state.cache, mask, state.next_position + lengths)

    def _extend_packed(self, state: State, segments: Sequence[Segment]) -> tuple[torch.Tensor, list[int]]:
        """Append segments to a prefix of one row without holes: hidden states `(T, D)`, and where each segment ends."""
        if len(segments) == 1:  # perhaps a very long one: a mask of our own would be as large as its square
            hidden, _ = self._extend(state, [segments[0].tokens])
            return hidden[0], [len(segments[0].tokens)]
        row = pack(segments, state.mask.device)
        visible = torch.cat([state.mask.bool().expand(len(row.tokens), -1), row.visible], dim=1)
        dtype = self.model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        mask.masked_fill_(~visible, torch.finfo(dtype).min)
        positions = (state.next_position + row.depths)[None]
        if self._rotary_3d:
            positions = positions.expand(3, -1, -1)
        output = self.model.model(
            input_ids=row.tokens[None],
            attention_mask=mask[None, None],
            position_ids=positions,
            use_cache=True,
            **{self._cache_name: state.cache},
        )
        return output.last_hidden_state[0], row.stops

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.model.get_output_embeddings()(hidden).float()


def _batches(
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
