"""Decoder vision-language models as judges: they rate, answer and choose."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from transformers import AutoModelForImageTextToText

from rewards.errors import InputError
from rewards.judges.base import DEFAULT_RATINGS, Ratings, UnsupportedAbility, check_rows
from rewards.judges.encoding import Encoder, Looked
from rewards.judges.local import LocalJudge
from rewards.judges.pictures import Picture, pictures_of_row
from rewards.judges.plain import Plain, with_tokens
from rewards.judges.prompting import Prompting
from rewards.judges.rating_tokens import RatingTokens, continuation, find_rating_tokens
from rewards.judges.shared_prefix import ARCHITECTURES, SharedPrefix

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

ANSWER_PROMPT = "{question}\nAnswer the question using a single word or phrase."
"""How a question is put to a decoder: the short-answer prompt that LLaVA-1.5 was trained with, used for all of them."""

LONGEST_ANSWER = 16
"""Most new tokens of a free-form answer; TIFA's answers have one to three words."""

LONGEST_REASON = 128
"""Most new tokens of the reason for a rating."""

TOKEN_BUDGET = 16_384
"""Cache slots (rows x tokens) of the first batch; halved for good whenever the device runs out of memory."""


class Row(NamedTuple):
    """One prompt about one row's pictures, and tokens that the judge is taken to have said already."""

    place: int
    pictures: tuple[Picture, ...]
    prompt: str
    then: tuple[int, ...] = ()


class Abstained(NamedTuple):
    """Why a row has no result."""

    reason: str


class VLMJudge(LocalJudge):
    """Any `AutoModelForImageTextToText`.

    Rows are grouped by picture; within a picture, what prompts share is computed once for the architectures in
    :data:`rewards.judges.shared_prefix.ARCHITECTURES`. Others take one full prompt at a time, and say so once. Either
    way a result does not depend on the other rows (float32: to 1e-5).

    The rating is read at one fixed position, right after the generation prompt: digits in the text under judgment are
    never taken for it.

    Args:
        path: Checkpoint name or directory.
        token_budget: Most cache slots (rows x tokens) of a batch.
        options: As for :class:`rewards.judges.local.LocalJudge`.

    Example:
        >>> judge = VLMJudge("HuggingFaceTB/SmolVLM-256M-Instruct")  # doctest: +SKIP
        >>> judge.rate([picture], ["Rate from 1 to 5: a dog."]).probabilities.shape  # doctest: +SKIP
        torch.Size([1, 5])
    """

    model_class = AutoModelForImageTextToText

    def __init__(self, path: str, *, token_budget: int = TOKEN_BUDGET, **options: Any) -> None:
        super().__init__(path, **options)
        self.token_budget = token_budget
        self.prompting = Prompting(self.processor)
        self.tokenizer = self.processor.tokenizer
        self.encoder = Encoder(self.processor, self.prompting, self.device, self.model.dtype)
        self.plain = Plain(self.model)
        self.shared: SharedPrefix | None = None
        if self.model.config.model_type in ARCHITECTURES:
            self.shared = SharedPrefix(self.model, self.processor)
        else:
            self._say_plain(f"{self.model.config.model_type} is not among the tested architectures")
        # What plain text may become: the unknown token, and single bytes where a tokenizer falls back to them.
        harmless = {self.tokenizer.unk_token, *(f"<0x{byte:02X}>" for byte in range(256))}
        added = self.tokenizer.get_added_vocab()
        self._controls = {token_id for token, token_id in added.items() if token not in harmless}
        self._context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        self._stop_tokens = _stop_tokens(self.model, self.tokenizer)
        self._rating_tokens: dict[tuple[str, ...], RatingTokens] = {}
        self._picture_forms: set[str] = set()
        try:
            self.rating_tokens(DEFAULT_RATINGS)
        except UnsupportedAbility as error:  # it may still answer questions; rate() raises
            logger.warning("judge %s cannot rate on %s: %s", self.name, DEFAULT_RATINGS, error)

    def identity(self) -> dict[str, Any]:
        """As :meth:`LocalJudge.identity`, and how pictures came so far: as PIL images or tensors."""
        return {**super().identity(), "pictures": sorted(self._picture_forms)}

    def rating_tokens(self, ratings: Sequence[str]) -> RatingTokens:
        """The verified token ids of a scale.

        Raises:
            UnsupportedAbility: A rating is no single token.
        """
        key = tuple(str(rating) for rating in ratings)
        if key not in self._rating_tokens:
            self._rating_tokens[key] = find_rating_tokens(self.tokenizer, self.prompting.tail, key)
        return self._rating_tokens[key]

    def rate(self, images: Sequence[Any], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS) -> Ratings:
        """Probability of each rating after each prompt; see :meth:`rewards.judges.base.Judge.rate`."""
        check_rows(images, prompts, "prompt")
        tokens = self.rating_tokens(ratings)

        def read(row: Row, logits: torch.Tensor) -> torch.Tensor:
            probabilities = logits[-1].softmax(-1)
            return torch.stack([probabilities[ids].sum() for ids in tokens.variants])

        rows = [(prompt, tuple(tokens.bridge)) for prompt in prompts]
        results = self._read_logits(images, rows, list(range(len(rows))), read, keep_all=False)
        probabilities = torch.full((len(prompts), len(ratings)), torch.nan)
        reasons = [result.reason if isinstance(result, Abstained) else None for result in results]
        for index, result in enumerate(results):
            if isinstance(result, torch.Tensor):
                probabilities[index] = result
        return Ratings(probabilities, probabilities.sum(-1), tuple(reasons))

    def choose(
        self, images: Sequence[Any], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice and then the end of the turn; see :meth:`rewards.judges.base.Judge.choose`."""
        check_rows(images, questions, "question")
        if len(choices) != len(questions):
            raise InputError(f"got {len(questions)} questions but {len(choices)} lists of choices")

        def read(row: Row, logits: torch.Tensor) -> torch.Tensor:
            log_probs = logits.log_softmax(-1)
            said = torch.tensor(row.then, dtype=torch.long, device=logits.device)
            spoken = log_probs[:-1].gather(1, said[:, None]).sum()
            return spoken + log_probs[-1, self._stop_tokens].logsumexp(-1)

        rows, owners = [], []
        for index, (question, offered) in enumerate(zip(questions, choices)):
            for choice in offered:
                said = continuation(self.tokenizer, self.prompting.tail, self.prompting.plain(choice))
                rows.append((ANSWER_PROMPT.format(question=question), tuple(said)))
                owners.append(index)
        scores: list[list[torch.Tensor]] = [[] for _ in questions]
        for owner, result in zip(owners, self._read_logits(images, rows, owners, read, keep_all=True)):
            scores[owner].append(result if isinstance(result, torch.Tensor) else torch.tensor(torch.nan))
        return [torch.stack(row) if row else torch.empty(0) for row in scores]

    def answer(self, images: Sequence[Any], questions: Sequence[str]) -> list[str | None]:
        """Greedy free-form answers; None where a row's picture cannot be read."""
        check_rows(images, questions, "question")
        rows = [(ANSWER_PROMPT.format(question=question), ()) for question in questions]
        return self._write(images, rows, LONGEST_ANSWER)

    def explain(self, images: Sequence[Any], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """Why the judge gave each prompt its rating; see :meth:`rewards.judges.base.Judge.explain`."""
        check_rows(images, prompts, "prompt")
        check_rows(images, ratings, "rating")
        why = self.tokenizer.encode(self.prompting.why(), add_special_tokens=False)
        said = [continuation(self.tokenizer, self.prompting.tail, self.prompting.plain(rating)) for rating in ratings]
        rows = [(prompt, (*spoken, *why)) for prompt, spoken in zip(prompts, said)]
        return self._write(images, rows, LONGEST_REASON)

    def _write(
        self, images: Sequence[Any], rows: Sequence[tuple[str, tuple[int, ...]]], longest: int
    ) -> list[str | None]:
        """Greedy continuations of prompts, decoded; None for rows that abstain."""

        def shared(looked: Looked, sequences: list[list[int]], found: list[Row], budget: int) -> list[list[int]]:
            assert self.shared is not None
            return self.shared.greedy(looked.inputs, sequences, self._stop_tokens, longest, budget)

        def plain(inputs: dict[str, torch.Tensor], row: Row) -> list[int]:
            return self.plain.greedy(with_tokens(inputs, row.then), self._stop_tokens, longest)

        results = self._by_picture(images, rows, list(range(len(rows))), shared, plain)
        return [
            None if isinstance(ids, Abstained) else self.tokenizer.decode(ids, skip_special_tokens=True).strip()
            for ids in results
        ]

    def _read_logits(
        self,
        images: Sequence[Any],
        rows: Sequence[tuple[str, tuple[int, ...]]],
        owners: Sequence[int],
        read: Callable[[Row, torch.Tensor], torch.Tensor],
        keep_all: bool,
    ) -> list[torch.Tensor | Abstained]:
        """What `read` makes of each row's logits: after the prompt and each token of `then`, or the last ones alone."""

        def shared(looked: Looked, sequences: list[list[int]], found: list[Row], budget: int) -> list[torch.Tensor]:
            assert self.shared is not None
            keep = [len(row.then) + 1 if keep_all else 1 for row in found]
            return self.shared.run(
                looked.inputs, sequences, keep, lambda index, logits: read(found[index], logits), budget
            )

        def plain(inputs: dict[str, torch.Tensor], row: Row) -> torch.Tensor:
            return read(row, self.plain.logits(inputs, row.then))

        results: list[torch.Tensor | Abstained] = []
        for index, result in enumerate(self._by_picture(images, rows, owners, shared, plain)):
            if isinstance(result, torch.Tensor):
                result = result.float().cpu()
                if not torch.isfinite(result).all():
                    result = Abstained(f"row {owners[index]}: the judge's logits are not finite")
            results.append(result)
        return results

    def _by_picture(
        self,
        images: Sequence[Any],
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
        self._onload()
        results: list[Result | Abstained] = [Abstained("not reached")] * len(rows)
        seen: dict[int, tuple[Picture, ...] | Abstained] = {}
        groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        for index, (owner, (prompt, then)) in enumerate(zip(owners, rows)):
            same = id(images[owner])  # callers repeat one object for all of its prompts: convert and hash it once
            if same not in seen:
                seen[same] = self._pictures(images[owner], owner)
            pictures = seen[same]
            if isinstance(pictures, Abstained):
                results[index] = pictures
            else:
                groups[tuple(one.key for one in pictures)].append(Row(index, pictures, prompt, then))
        for group in groups.values():
            for row, result in zip(group, self._one_picture(group, owners, shared, plain)):
                if isinstance(result, Abstained):
                    logger.warning("judge %s abstains: %s", self.name, result.reason)
                results[row.place] = result
        return results

    def _pictures(self, image: Any, owner: int) -> tuple[Picture, ...] | Abstained:
        try:
            pictures = pictures_of_row(image, owner, keep_tensors=self.encoder.takes_tensors)
        except InputError as error:
            return Abstained(str(error))
        self._picture_forms |= {one.form for one in pictures}
        return pictures

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
                allowed = self._control_count(self.encoder.full_inputs(row.pictures, "")["input_ids"][0].tolist())
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
        allowed = self._control_count(self.encoder.ids(looked, ""))
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
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                if self.token_budget <= longest:
                    return [Abstained("does not fit into the device's memory, one row at a time")] * len(sequences)
                self.token_budget //= 2
                logger.warning("judge %s: out of memory; token budget is now %d", self.name, self.token_budget)

    def _check(self, ids: Sequence[int], allowed: int) -> None:
        """A prompt must fit the context, and hold no control token beyond those of the template."""
        if self._context is not None and len(ids) > self._context:
            raise InputError(f"the prompt has {len(ids)} tokens; the judge's context has {self._context}")
        if self._control_count(ids) != allowed:
            raise InputError("the text holds control tokens of the judge that cannot be written as plain text")

    def _control_count(self, ids: Sequence[int]) -> int:
        counts = Counter(ids)
        return sum(counts[control] for control in self._controls)

    def _say_plain(self, why: str) -> None:
        logger.warning("judge %s takes the plain path, one full prompt at a time: %s", self.name, why)


def _stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    configured = getattr(model.generation_config, "eos_token_id", None)
    if configured is None:
        configured = tokenizer.eos_token_id
    return [configured] if isinstance(configured, int) else list(configured or [])
