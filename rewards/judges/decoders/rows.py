"""Rows of a decoder VLM, run picture by picture: what is equal is asked once, and a row that fails abstains alone."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from rewards.errors import InputError
from rewards.images import Picture
from rewards.judges.decoders.encoding import Encoder, Looked
from rewards.judges.decoders.plain import Plain
from rewards.judges.decoders.shared_prefix import ARCHITECTURES, SharedPrefix
from rewards.judges.pictures import pictures_of_rows
from rewards.judges.prompting import Prompting, added_tokens

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


class Row(NamedTuple):
    """One prompt about one row's pictures, and tokens that the judge is taken to have said already."""

    place: int
    pictures: tuple[Picture, ...]
    prompt: str
    then: tuple[int, ...] = ()


class Abstained(NamedTuple):
    """Why a row has no result."""

    reason: str


class PictureRows:
    """Groups rows by picture; a group runs through shared prefixes, or row by row where the architecture is unknown.

    Args:
        name: The judge's name, for messages.
        model: Its model.
        processor: Its processor.
        device: Where inputs go.
        token_budget: Most cache slots (rows x tokens) of a batch; halved for good when the device runs out of memory.
    """

    def __init__(self, name: str, model: Any, processor: Any, device: torch.device, token_budget: int) -> None:
        self.name = name
        self.token_budget = token_budget
        self.encoder = Encoder(processor, Prompting(processor), device, model.dtype)
        self.plain = Plain(model)
        self.shared: SharedPrefix | None = None
        if model.config.model_type in ARCHITECTURES:
            self.shared = SharedPrefix(model, processor)
        else:
            self._say_plain(f"{model.config.model_type} is not among the tested architectures")
        # What plain text may become: the unknown token, and single bytes where a tokenizer falls back to them.
        harmless = {processor.tokenizer.unk_token, *(f"<0x{byte:02X}>" for byte in range(256))}
        added = added_tokens(processor.tokenizer)
        self._controls = {token_id for token, token_id in added.items() if token not in harmless}
        self._context = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    def run(
        self,
        images: Sequence[object],
        rows: Sequence[tuple[str, tuple[int, ...]]],
        owners: Sequence[int],
        shared: Callable[[Looked, list[list[int]], list[Row], int], Sequence[Result]],
        plain: Callable[[dict[str, torch.Tensor], Row], Result],
    ) -> list[Result | Abstained]:
        """Run rows picture by picture.

        Args:
            images: The caller's images.
            rows: A prompt and the tokens after it.
            owners: Which image each row is about.
            shared: Results for distinct token sequences about one picture.
            plain: Result for one row, from the processor's own inputs.
        """
        results: list[Result | Abstained] = [Abstained("not reached")] * len(rows)
        groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        seen = list(pictures_of_rows(images, keep_tensors=self.encoder.takes_tensors))
        for index, (owner, (prompt, then)) in enumerate(zip(owners, rows)):
            pictures = seen[owner]
            if isinstance(pictures, InputError):
                results[index] = Abstained(str(pictures))
            else:
                groups[tuple(one.key for one in pictures)].append(Row(index, pictures, prompt, then))
        for group in groups.values():
            for row, result in zip(group, self._one_picture(group, owners, shared, plain)):
                if isinstance(result, Abstained):
                    logger.warning("judge %s abstains: %s", self.name, result.reason)
                results[row.place] = result
        return results

    def _one_picture(
        self,
        group: list[Row],
        owners: Sequence[int],
        shared: Callable[[Looked, list[list[int]], list[Row], int], Sequence[Result]],
        plain: Callable[[dict[str, torch.Tensor], Row], Result],
    ) -> list[Result | Abstained]:
        if self.shared is not None:
            try:
                return self._one_picture_shared(group, owners, shared)
            except InputError as error:
                return [Abstained(f"row {owners[row.place]}: {error}") for row in group]
            except NotImplementedError as error:
                self.shared = None
                self._say_plain(str(error))
        results: list[Result | Abstained] = []
        for row in group:
            try:
                inputs = self.encoder.full_inputs(row.pictures, row.prompt)
                allowed = self.control_count(self.encoder.full_inputs(row.pictures, "")["input_ids"][0].tolist())
                self._check(inputs["input_ids"][0].tolist(), allowed)
                results.append(plain(self.encoder.to_device(inputs), row))
            except InputError as error:
                results.append(Abstained(f"row {owners[row.place]}: {error}"))
            except torch.OutOfMemoryError:
                results.append(Abstained(f"row {owners[row.place]}: does not fit into the device's memory"))
        return results

    def _one_picture_shared(
        self,
        group: list[Row],
        owners: Sequence[int],
        run: Callable[[Looked, list[list[int]], list[Row], int], Sequence[Result]],
    ) -> list[Result | Abstained]:
        looked = self.encoder.look(group[0].pictures)
        allowed = self.control_count(self.encoder.ids(looked, ""))
        results: dict[int, Result | Abstained] = {}
        distinct: dict[tuple[tuple[int, ...], int], list[Row]] = defaultdict(list)
        encoded: dict[str, list[int]] = {}
        for row in group:
            if row.prompt not in encoded:
                encoded[row.prompt] = self.encoder.ids(looked, row.prompt)
            try:
                self._check(encoded[row.prompt], allowed)
            except InputError as error:
                results[row.place] = Abstained(f"row {owners[row.place]}: {error}")
                continue
            distinct[(*encoded[row.prompt], *row.then), len(row.then)].append(row)
        same = list(distinct.values())
        sequences = [list(sequence) for sequence, _ in distinct]
        found = self._within_memory(
            lambda budget: run(looked, sequences, [rows[0] for rows in same], budget), sequences
        )
        for rows, result in zip(same, found):
            for row in rows:
                results[row.place] = result
        return [results[row.place] for row in group]

    def _within_memory(
        self, run: Callable[[int], Sequence[Result]], sequences: Sequence[Sequence[int]]
    ) -> Sequence[Result | Abstained]:
        """Run with a token budget, halved for good on out-of-memory; rows that do not fit one at a time abstain."""
        if not sequences:
            return []
        longest = max(len(sequence) for sequence in sequences)
        while True:
            try:
                return run(self.token_budget)
            except torch.OutOfMemoryError:
                if self.token_budget <= longest:
                    return [Abstained("does not fit into the device's memory, one row at a time")] * len(sequences)
                self.token_budget //= 2
                logger.warning("judge %s: out of memory; token budget is now %d", self.name, self.token_budget)
            if torch.cuda.is_available():  # here, the failed batch is no longer held by the exception
                torch.cuda.empty_cache()

    def _check(self, ids: Sequence[int], allowed: int) -> None:
        """A prompt must fit the context, and hold no control token beyond those of the template."""
        if self._context is not None and len(ids) > self._context:
            raise InputError(f"the prompt has {len(ids)} tokens; the judge's context has {self._context}")
        if self.control_count(ids) != allowed:
            raise InputError("the text holds control tokens of the judge that cannot be written as plain text")

    def control_count(self, ids: Sequence[int]) -> int:
        """How many control tokens are among some ids."""
        counts = Counter(ids)
        return sum(counts[control] for control in self._controls)

    def _say_plain(self, why: str) -> None:
        logger.warning("judge %s takes the plain path, one full prompt at a time: %s", self.name, why)
