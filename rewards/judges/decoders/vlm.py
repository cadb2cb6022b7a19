"""Decoder vision-language models as judges: they rate, answer and choose."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForImageTextToText

from rewards.judges.base import DEFAULT_RATINGS, Ability, Ratings, UnsupportedAbility, check_choices, check_rows
from rewards.judges.decoders.encoding import Looked
from rewards.judges.decoders.first_tokens import first_tokens
from rewards.judges.decoders.plain import with_tokens
from rewards.judges.decoders.rating_tokens import RatingTokens, continuation, find_rating_tokens, following_tokens
from rewards.judges.decoders.rows import Abstained, PictureRows, Row
from rewards.judges.decoders.shared_prefix import ARCHITECTURES
from rewards.judges.local import LocalJudge

logger = logging.getLogger(__name__)

ANSWER_PROMPT = "{question}\nAnswer the question using a single word or phrase."
"""How a question is put to a decoder: the short-answer prompt that LLaVA-1.5 was trained with, used for all of them."""

LONGEST_ANSWER = 16
"""Most new tokens of a free-form answer; TIFA's answers have one to three words."""

LONGEST_REASON = 128
"""Most new tokens of the reason for a rating."""

TOKEN_BUDGET = 16_384
"""Cache slots (rows x tokens) of the first batch; halved for good whenever the device runs out of memory."""


class VLMJudge(LocalJudge):
    """Any `AutoModelForImageTextToText`.

    Rows are grouped by picture; within a picture, what prompts share is computed once for the architectures in
    :data:`rewards.judges.decoders.shared_prefix.ARCHITECTURES`. Others take one full prompt at a time, and say so
    once. Either way a result does not depend on the other rows (float32: to 1e-5).

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
        self.rows = PictureRows(self.name, self.model, self.processor, self.device, token_budget)
        self.prompting = self.rows.encoder.prompting
        self.tokenizer = self.processor.tokenizer
        self._stop_tokens = _stop_tokens(self.model, self.tokenizer)
        self._rating_tokens: dict[tuple[str, ...], RatingTokens] = {}
        self._can_rate = False
        try:
            self.rating_tokens(DEFAULT_RATINGS)
            self._can_rate = True
        except UnsupportedAbility as error:  # it may still answer questions; rate() raises
            logger.warning("judge %s cannot rate on %s: %s", self.name, DEFAULT_RATINGS, error)

    def _parts(self) -> list[Any]:
        # Shared prefixes go through the model below the language head, the plain path through the whole.
        return [self.model.model] if self.model.config.model_type in ARCHITECTURES else [self.model]

    @property
    def abilities(self) -> frozenset[Ability]:
        """All of them, without rating where the tokenizer has no single token for a rating."""
        return super().abilities - (frozenset() if self._can_rate else {"rate"})

    def rating_tokens(self, ratings: Sequence[str]) -> RatingTokens:
        """The verified token ids of a scale.

        Raises:
            UnsupportedAbility: A rating is no single token.
        """
        key = tuple(str(rating) for rating in ratings)
        if key not in self._rating_tokens:
            self._rating_tokens[key] = find_rating_tokens(self.tokenizer, self.prompting.tail, key)
        return self._rating_tokens[key]

    def rate(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """Probability of each rating after each prompt; see :meth:`rewards.judges.base.Judge.rate`."""
        images = check_rows(images, prompts, "prompt")
        return self._rate(images, prompts, [self.rating_tokens(ratings)] * len(prompts), len(ratings))

    def rate_after(
        self, images: Sequence[object], prompts: Sequence[str], said: Sequence[str], ratings: Sequence[str]
    ) -> Ratings:
        """Probability of each rating after what was said; see :meth:`rewards.judges.base.Judge.rate_after`."""
        images = check_rows(images, prompts, "prompt")
        check_rows(images, said, "text that was said")
        tokens = {text: following_tokens(self.tokenizer, self.prompting.tail, text, ratings) for text in set(said)}
        return self._rate(images, prompts, [tokens[text] for text in said], len(ratings))

    def _rate(
        self, images: Sequence[object], prompts: Sequence[str], tokens: Sequence[RatingTokens], count: int
    ) -> Ratings:
        """Probability of each of `count` ratings after each prompt and its bridge."""
        variants = {tuple(found.bridge): found.variants for found in tokens}

        def read(row: Row, logits: torch.Tensor) -> torch.Tensor:
            probabilities = logits[-1].softmax(-1)
            return torch.stack([probabilities[ids].sum() for ids in variants[row.then]])

        rows = [(prompt, tuple(found.bridge)) for prompt, found in zip(prompts, tokens, strict=True)]
        results = self._read_logits(images, rows, list(range(len(rows))), read, keep_all=False)
        probabilities = torch.full((len(prompts), count), torch.nan)
        reasons = [result.reason if isinstance(result, Abstained) else None for result in results]
        for index, result in enumerate(results):
            if isinstance(result, torch.Tensor):
                probabilities[index] = result
        return Ratings(probabilities, probabilities.sum(-1), tuple(reasons))

    def choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice and then the end of the turn; see :meth:`rewards.judges.base.Judge.choose`."""
        images = check_rows(images, questions, "question")
        check_choices(questions, choices)

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

    def mass(self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        """Probability that the answer begins as one of some texts; see :meth:`rewards.judges.base.Judge.mass`."""
        images = check_rows(images, prompts, "prompt")
        check_choices(prompts, forms)
        tokens = [tuple(first_tokens(self.tokenizer, spelled)) for spelled in forms]
        # Rows of one prompt are run once, whatever answer they ask for: each run is read for all of them.
        asked: dict[str, list[tuple[int, ...]]] = {}
        for prompt, ids in zip(prompts, tokens):
            asked.setdefault(prompt, []).append(ids)

        def read(row: Row, logits: torch.Tensor) -> torch.Tensor:
            probabilities = logits[-1].softmax(-1)
            return torch.stack([probabilities[list(ids)].sum() for ids in asked[row.prompt]])

        rows: list[tuple[str, tuple[int, ...]]] = [(prompt, ()) for prompt in prompts]
        results = self._read_logits(images, rows, list(range(len(rows))), read, keep_all=False)
        masses = torch.full((len(prompts),), torch.nan)
        for index, (result, prompt, ids) in enumerate(zip(results, prompts, tokens)):
            if isinstance(result, torch.Tensor):
                masses[index] = result[asked[prompt].index(ids)]
        return masses

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """Greedy free-form answers; None where a row's picture cannot be read."""
        images = check_rows(images, questions, "question")
        rows = [(ANSWER_PROMPT.format(question=question), ()) for question in questions]
        return self._write(images, rows, LONGEST_ANSWER)

    def explain(self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """Why the judge gave each prompt its rating; see :meth:`rewards.judges.base.Judge.explain`."""
        images = check_rows(images, prompts, "prompt")
        check_rows(images, ratings, "rating")
        why = self.tokenizer.encode(self.prompting.why(), add_special_tokens=False)
        said = [continuation(self.tokenizer, self.prompting.tail, self.prompting.plain(rating)) for rating in ratings]
        rows = [(prompt, (*spoken, *why)) for prompt, spoken in zip(prompts, said)]
        return self._write(images, rows, LONGEST_REASON)

    def _write(
        self, images: Sequence[object], rows: Sequence[tuple[str, tuple[int, ...]]], longest: int
    ) -> list[str | None]:
        """Greedy continuations of prompts, decoded; None for rows that abstain."""

        def shared(looked: Looked, sequences: list[list[int]], found: list[Row], budget: int) -> list[list[int]]:
            assert self.rows.shared is not None
            return self.rows.shared.greedy(looked.inputs, sequences, self._stop_tokens, longest, budget)

        def plain(inputs: dict[str, torch.Tensor], row: Row) -> list[int]:
            return self.rows.plain.greedy(with_tokens(inputs, row.then), self._stop_tokens, longest)

        with self._lock:
            self._onload()
            results = self.rows.run(images, rows, list(range(len(rows))), shared, plain)
        return [
            None if isinstance(ids, Abstained) else self.tokenizer.decode(ids, skip_special_tokens=True).strip()
            for ids in results
        ]

    def _read_logits(
        self,
        images: Sequence[object],
        rows: Sequence[tuple[str, tuple[int, ...]]],
        owners: Sequence[int],
        read: Callable[[Row, torch.Tensor], torch.Tensor],
        keep_all: bool,
    ) -> list[torch.Tensor | Abstained]:
        """What `read` makes of each row's logits: after the prompt and each token of `then`, or the last ones alone."""

        def shared(looked: Looked, sequences: list[list[int]], found: list[Row], budget: int) -> list[torch.Tensor]:
            assert self.rows.shared is not None
            keep = [len(row.then) + 1 if keep_all else 1 for row in found]
            return self.rows.shared.run(
                looked.inputs, sequences, keep, lambda index, logits: read(found[index], logits), budget
            )

        def plain(inputs: dict[str, torch.Tensor], row: Row) -> torch.Tensor:
            return read(row, self.rows.plain.logits(inputs, row.then))

        with self._lock:
            self._onload()
            found = self.rows.run(images, rows, owners, shared, plain)
        results: list[torch.Tensor | Abstained] = []
        for index, result in enumerate(found):
            if isinstance(result, torch.Tensor):
                result = result.float().cpu()
                if not torch.isfinite(result).all():
                    result = Abstained(f"row {owners[index]}: the judge's logits are not finite")
            results.append(result)
        return results


def _stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    configured = getattr(model.generation_config, "eos_token_id", None)
    if configured is None:
        configured = tokenizer.eos_token_id
    return [configured] if isinstance(configured, int) else list(configured or [])
