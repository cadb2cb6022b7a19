"""How a decoder judge's rows reach its model: prepared ahead, in batches across pictures, within the device's memory.

A picture's way: :class:`Rows` reads it, prepares it and encodes what is asked about it (a :class:`Group`); groups whose
trees fit go through the model together (:class:`~rewards.judges.decoders.trees.WholeTrees`); longer ones one by one on
a cache (:class:`~rewards.judges.decoders.shared_prefix.SharedPrefix`); architectures that are not known one prompt at
a time (:class:`~rewards.judges.decoders.plain.Plain`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch

from rewards.errors import InputError
from rewards.judges.decoders.encoding import Encoder
from rewards.judges.decoders.forest import grow
from rewards.judges.decoders.inputs import ARCHITECTURES, TextModel, stackable
from rewards.judges.decoders.plain import Plain
from rewards.judges.decoders.rows import Abstained, Asked, Group, Pictured, Rows
from rewards.judges.decoders.tasks import Batch, Task
from rewards.judges.decoders.trees import WholeTrees

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
T = TypeVar("T")

ROW_TOKENS = {"cpu": 1024}
"""Longest tree that goes through as one row: in it every leaf is compared with every other, which a CPU feels."""

ROW_TOKENS_ELSEWHERE = 4096
"""As :data:`ROW_TOKENS`, on an accelerator: launching another pass costs it more than masked attention does."""


class Engine:
    """Runs the rows of a call.

    Args:
        name: The judge's name, for messages.
        model: Its model.
        encoder: Its processor.
        device: Where the model is to run.
        token_budget: Most slots (rows x tokens) of a batch; halved for good when the device runs out of memory.
    """

    def __init__(
        self, name: str, model: PreTrainedModel, encoder: Encoder, device: torch.device, token_budget: int
    ) -> None:
        self.name = name
        self.encoder = encoder
        self.token_budget = token_budget
        self.device = device
        self.rows = Rows(encoder, model)
        self.plain = Plain(model)
        self.text_model: TextModel | None = None
        if model.config.model_type in ARCHITECTURES:
            self.text_model = TextModel(model, encoder.processor, device)
        else:
            self._say_plain(f"{model.config.model_type} is not among the tested architectures")

    @property
    def row_tokens(self) -> int:
        """Longest tree that goes through as one row."""
        return ROW_TOKENS.get(self.device.type, ROW_TOKENS_ELSEWHERE)

    def run(self, images: Sequence[object], asked: Sequence[Asked], task: Task[Result]) -> list[Result | Abstained]:
        """The result of each row, or why it has none.

        Args:
            images: The caller's images.
            asked: What is asked about them.
            task: What is done with the rows.
        """
        pictured, refused = self.rows.by_picture(images, asked)
        results: dict[int, Result | Abstained] = {place: Abstained(reason) for place, reason in refused.items()}
        if self.text_model is not None:
            try:
                for batch in _ahead(self._prepared(self.text_model, pictured, asked, task)):
                    for group, values in self._within_memory(self.text_model, batch, task):
                        for places, value in zip(group.places, values):
                            results.update(dict.fromkeys(places, value))
                        results |= {place: Abstained(reason) for place, reason in group.refused.items()}
            except NotImplementedError as error:
                self.text_model = None
                self._say_plain(str(error))
        for one in pictured:
            for place in one.places:
                if place not in results:
                    alone: Result | Abstained = self._alone(one, asked[place], task)
                    results[place] = alone
        for place in range(len(asked)):
            if isinstance(result := results[place], Abstained):
                logger.warning("judge %s abstains: %s", self.name, result.reason)
        return [results[place] for place in range(len(asked))]

    def _prepared(
        self, model: TextModel, pictured: Sequence[Pictured], asked: Sequence[Asked], task: Task[Result]
    ) -> Iterator[Batch]:
        """Batches, those of whole trees with the inputs of their pass."""
        for batch in self._batches(model, pictured, asked, task):
            trees = WholeTrees(model).prepare(batch.groups, batch.trees) if batch.trees else None
            yield batch._replace(prepared=trees)

    def _batches(
        self, model: TextModel, pictured: Sequence[Pictured], asked: Sequence[Asked], task: Task[Result]
    ) -> Iterator[Batch]:
        """Groups in batches within the token budget."""
        batch = Batch([], [])
        rows = longest = 0
        for group in self.rows.groups(pictured, asked):
            if not group.sequences:
                yield Batch([group], [])
                continue
            tree = None
            if task.whole_trees and model.packs:
                tree = grow(group.sequences, [reading.keep for reading in group.readings])
                tree = tree if len(tree) <= min(self.row_tokens, self.token_budget) else None
            more, length = task.slots(group, tree)
            fits = (rows + more) * max(longest, length) <= self.token_budget
            if tree is None if task.whole_trees else not model.holes_allowed:
                yield Batch([group], [])
                continue
            if batch.groups and not (fits and stackable(group) == stackable(batch.groups[0])):
                yield batch
                batch, rows, longest = Batch([], []), 0, 0
            batch.groups.append(group)
            batch.trees.extend([tree] if tree is not None else [])
            rows, longest = rows + more, max(longest, length)
        if batch.groups:
            yield batch

    def _within_memory(
        self, model: TextModel, batch: Batch, task: Task[Result]
    ) -> Iterator[tuple[Group, Sequence[Result | Abstained]]]:
        """Each group with its results; halves the batch, and for good the budget, while the device has no room."""
        if not batch.groups[0].sequences:
            yield batch.groups[0], []
            return
        try:
            found = task.together(model, batch, self.token_budget)
        except torch.OutOfMemoryError:
            found = None
        if found is not None:
            yield from zip(batch.groups, found)
            return
        if torch.cuda.is_available():  # here, the failed batch is no longer held by the exception
            torch.cuda.empty_cache()
        group, exhausted = batch.groups[0], self.token_budget
        if len(batch.groups) == 1 and exhausted <= max(map(len, group.sequences)):
            nothing = Abstained("does not fit into the device's memory, one row at a time")
            yield group, [nothing] * len(group.sequences)
            return
        self.token_budget //= 2
        logger.warning("judge %s: out of memory; token budget is now %d", self.name, self.token_budget)
        middle = len(batch.groups) // 2
        halves = [slice(middle), slice(middle, None)] if middle else [slice(None)]
        for half in halves:
            trees = batch.trees[half]
            fitting = trees if sum(map(len, trees)) <= self.token_budget or len(trees) > 1 else []
            yield from self._within_memory(model, Batch(batch.groups[half], fitting), task)

    def _alone(self, one: Pictured, row: Asked, task: Task[Result]) -> Result | Abstained:
        """A row through the processor's own inputs and the model's own forward."""
        try:
            inputs = self.encoder.full_inputs(one.pictures, row.prompt)
            empty = self.encoder.full_inputs(one.pictures, "")["input_ids"][0].tolist()
            why = self.rows.problem(inputs["input_ids"][0].tolist(), self.rows.control_count(empty))
            if why is not None:
                return Abstained(f"row {row.owner}: {why}")
            return task.alone(self.plain, self.encoder.to_device(inputs), row)
        except InputError as error:
            return Abstained(f"row {row.owner}: {error}")
        except torch.OutOfMemoryError:
            return Abstained(f"row {row.owner}: does not fit into the device's memory")

    def _say_plain(self, why: str) -> None:
        logger.warning("judge %s takes the plain path, one full prompt at a time: %s", self.name, why)


def _ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, the next one made in another thread while the caller is busy with this one."""
    upcoming = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prepare") as pool:
        following = pool.submit(next, upcoming, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, upcoming, None)
            yield item
