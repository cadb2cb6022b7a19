"""Decoder vision-language models as judges: they rate, answer and choose."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import nn
from torch.nn.functional import pad
from transformers import AutoModelForImageTextToText

from rewards.judges.base import DEFAULT_RATINGS, Ability, Ratings, UnsupportedAbility, check_choices, check_rows
from rewards.judges.decoders.encoding import Encoder
from rewards.judges.decoders.engine import Engine
from rewards.judges.decoders.first_tokens import first_tokens
from rewards.judges.decoders.inputs import ARCHITECTURES
from rewards.judges.decoders.rating_tokens import RatingTokens, continuation, find_rating_tokens, following_tokens
from rewards.judges.decoders.reading import Reading
from rewards.judges.decoders.rows import Abstained, Asked
from rewards.judges.decoders.tasks import Read, Write
from rewards.judges.local import LocalJudge, LocalOptions
from rewards.judges.pictures import with_gradient
from rewards.judges.prompting import Prompting, Tokenizer

logger = logging.getLogger(__name__)

ANSWER_PROMPT = "{question}\nAnswer the question using a single word or phrase."
"""How a question is put to a decoder: the short-answer prompt that LLaVA-1.5 was trained with, used for all of them."""

LONGEST_ANSWER = 16
"""Most new tokens of a free-form answer; TIFA's answers have one to three words."""

LONGEST_REASON = 128
"""Most new tokens of the reason for a rating."""

TOKEN_BUDGET = 16_384
"""Slots (rows x tokens) of the first batch; halved for good whenever the device runs out of memory."""


class VLMJudge(LocalJudge):
    """Any `AutoModelForImageTextToText`.

    Rows are grouped by picture; what its prompts share is computed once, and several pictures go through together, for
    the architectures in :data:`rewards.judges.decoders.inputs.ARCHITECTURES`. Others take one full prompt at a time,
    and say so once. Either way a result does not depend on the other rows (float32: to 1e-5).

    The rating is read at one fixed position, right after the generation prompt: digits in the text under judgment are
    never taken for it.

    Args:
        path: Checkpoint name or directory.
        token_budget: Most slots (rows x tokens) of a batch.
        options: As for :class:`rewards.judges.local.LocalJudge`.

    Example:
        >>> judge = VLMJudge("HuggingFaceTB/SmolVLM-256M-Instruct")  # doctest: +SKIP
        >>> judge.rate([picture], ["Rate from 1 to 5: a dog."]).probabilities.shape  # doctest: +SKIP
        torch.Size([1, 5])
    """

    model_class = AutoModelForImageTextToText

    def __init__(self, path: str, *, token_budget: int = TOKEN_BUDGET, **options: Unpack[LocalOptions]) -> None:
        super().__init__(path, **options)
        self.prompting = Prompting(self.processor)
        encoder = Encoder(self.processor, self.prompting, self.device, self.model.dtype)
        self.takes_tensors = encoder.takes_tensors
        self.engine = Engine(self.name, self.model, encoder, self.device, token_budget)
        self.tokenizer = self.processor.tokenizer
        self._stop_tokens = _stop_tokens(self.model, self.tokenizer)
        self._rating_tokens: dict[tuple[str, ...], RatingTokens] = {}
        self._can_rate = False
        try:
            self.rating_tokens(DEFAULT_RATINGS)
            self._can_rate = True
        except UnsupportedAbility as error:  # it may still answer questions; rate() raises
            logger.warning("judge %s cannot rate on %s: %s", self.name, DEFAULT_RATINGS, error)

    def _parts(self) -> list[nn.Module]:
        # Shared prefixes go through the model below the language head, the plain path through the whole.
        return [self.model.model] if self.model.config.model_type in ARCHITECTURES else [self.model]

    @property
    def abilities(self) -> frozenset[Ability]:
        """All of them, without rating where the tokenizer has no single token for a rating."""
        return super().abilities - (frozenset() if self._can_rate else {"rate", "rate_with_grad"})

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
        """Probability of each rating after each prompt; see :meth:`rewards.judges.base.Judge.rate`.

        Where the tokenizer puts a token of its own before a rating, the probability of that token is a factor.
        """
        return self._rate_at_once(check_rows(images, prompts, "prompt"), prompts, ratings, grad=False)

    def rate_with_grad(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """See :meth:`rewards.judges.base.Judge.rate_with_grad`."""
        check_rows(images, prompts, "prompt")
        return self._rate_at_once(with_gradient(images), prompts, ratings, grad=True)

    def _rate_at_once(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str], grad: bool
    ) -> Ratings:
        tokens = self.rating_tokens(ratings)
        bridge = tuple(((token,),) for token in tokens.bridge)
        return self._rate(images, prompts, [(tokens, bridge)] * len(prompts), len(ratings), grad)

    def rate_after(
        self, images: Sequence[object], prompts: Sequence[str], said: Sequence[str], ratings: Sequence[str]
    ) -> Ratings:
        """Probability of each rating after what was said; see :meth:`rewards.judges.base.Judge.rate_after`."""
        images = check_rows(images, prompts, "prompt")
        check_rows(images, said, "text that was said")
        tokens = {text: following_tokens(self.tokenizer, self.prompting.tail, text, ratings) for text in set(said)}
        return self._rate(images, prompts, [(tokens[text], ()) for text in said], len(ratings))

    def _rate(
        self,
        images: Sequence[object],
        prompts: Sequence[str],
        tokens: Sequence[tuple[RatingTokens, tuple[tuple[tuple[int, ...], ...], ...]]],
        count: int,
        grad: bool = False,
    ) -> Ratings:
        """Probability of each of `count` ratings after each prompt.

        Args:
            images: One a row.
            prompts: One a row.
            tokens: Where each row's ratings stand, and the tokens before them whose probability is a factor: none
                where words were put into the judge's mouth.
            count: How many ratings there are.
            grad: Keep the gradient to the pictures.
        """
        asked = [
            Asked(at, prompt, tuple(found.bridge), Reading((*factors, tuple(map(tuple, found.variants)))))
            for at, (prompt, (found, factors)) in enumerate(zip(prompts, tokens, strict=True))
        ]
        found = self._read(images, asked, grad)
        unread = torch.full((count,), torch.nan, device=self.device if grad else "cpu")
        rows = [unread if isinstance(read, Abstained) else (read[-1] + read[:-1, 0].sum()).exp() for read in found]
        probabilities = torch.stack(rows) if rows else torch.empty(0, count)
        reasons = tuple(read.reason if isinstance(read, Abstained) else None for read in found)
        return Ratings(probabilities, probabilities.sum(-1), reasons)

    def choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice and then the end of the turn; see :meth:`rewards.judges.base.Judge.choose`."""
        return self._choose(check_rows(images, questions, "question"), questions, choices, grad=False)

    def choose_with_grad(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """See :meth:`rewards.judges.base.Judge.choose_with_grad`."""
        check_rows(images, questions, "question")
        return self._choose(with_gradient(images), questions, choices, grad=True)

    def _choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]], grad: bool
    ) -> list[torch.Tensor]:
        check_choices(questions, choices)
        asked = []
        for at, (question, offered) in enumerate(zip(questions, choices)):
            for choice in offered:
                said = continuation(self.tokenizer, self.prompting.tail, self.prompting.plain(choice))
                reading = Reading((*(((token,),) for token in said), (tuple(self._stop_tokens),)))
                asked.append(Asked(at, ANSWER_PROMPT.format(question=question), tuple(said), reading))
        unread = torch.tensor(torch.nan, device=self.device if grad else "cpu")
        scores: list[list[torch.Tensor]] = [[] for _ in questions]
        for row, read in zip(asked, self._read(images, asked, grad)):
            scores[row.owner].append(unread if isinstance(read, Abstained) else read.sum())
        return [torch.stack(row) if row else torch.empty(0) for row in scores]

    def mass(self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        """Probability that the answer begins as one of some texts; see :meth:`rewards.judges.base.Judge.mass`."""
        return self._mass(check_rows(images, prompts, "prompt"), prompts, forms, grad=False)

    def mass_with_grad(
        self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]
    ) -> torch.Tensor:
        """See :meth:`rewards.judges.base.Judge.mass_with_grad`."""
        check_rows(images, prompts, "prompt")
        return self._mass(with_gradient(images), prompts, forms, grad=True)

    def _mass(
        self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]], grad: bool
    ) -> torch.Tensor:
        check_choices(prompts, forms)
        tokens = [tuple(first_tokens(self.tokenizer, spelled)) for spelled in forms]
        # Rows of one prompt are run once, whatever answer they ask for: each run is read for all of them.
        wanted: dict[str, dict[tuple[int, ...], int]] = {}
        for prompt, ids in zip(prompts, tokens):
            wanted.setdefault(prompt, {}).setdefault(ids, len(wanted[prompt]))
        asked = [Asked(at, prompt, reading=Reading((tuple(wanted[prompt]),))) for at, prompt in enumerate(prompts)]
        unread = torch.tensor(torch.nan, device=self.device if grad else "cpu")
        masses = [
            unread if isinstance(read, Abstained) else read[-1, wanted[prompt][ids]].exp().clamp(max=1.0)
            for read, prompt, ids in zip(self._read(images, asked, grad), prompts, tokens)
        ]
        return torch.stack(masses) if masses else torch.empty(0)

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """Greedy free-form answers; None where a row's picture cannot be read."""
        images = check_rows(images, questions, "question")
        asked = [Asked(at, ANSWER_PROMPT.format(question=question)) for at, question in enumerate(questions)]
        return self._write(images, asked, LONGEST_ANSWER)

    def explain(self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """Why the judge gave each prompt its rating; see :meth:`rewards.judges.base.Judge.explain`."""
        images = check_rows(images, prompts, "prompt")
        check_rows(images, ratings, "rating")
        why = self.tokenizer.encode(self.prompting.why(), add_special_tokens=False)
        said = [continuation(self.tokenizer, self.prompting.tail, self.prompting.plain(rating)) for rating in ratings]
        asked = [Asked(at, prompt, (*spoken, *why)) for at, (prompt, spoken) in enumerate(zip(prompts, said))]
        return self._write(images, asked, LONGEST_REASON)

    def _write(self, images: Sequence[object], asked: Sequence[Asked], longest: int) -> list[str | None]:
        """Greedy continuations of prompts, decoded; None for rows that abstain."""
        with self._lock:
            self._onload()
            results = self.engine.run(images, asked, Write(self._stop_tokens, longest))
        return [
            None if isinstance(ids, Abstained) else self.tokenizer.decode(ids, skip_special_tokens=True).strip()
            for ids in results
        ]

    def _read(
        self, images: Sequence[object], asked: Sequence[Asked], grad: bool = False
    ) -> list[torch.Tensor | Abstained]:
        """What each row reads, `(keep, S)` on the CPU: the host waits for the device once, at the end. With `grad` on
        the device."""
        if grad:
            self.require("choose_with_grad")
        with self._lock:
            self._onload()
            results = self.engine.run(images, asked, Read(grad))
        if grad:
            return [one if isinstance(one, Abstained) else _checked(row, one) for row, one in zip(asked, results)]
        read = [result for result in results if isinstance(result, torch.Tensor)]
        widest = max((one.shape[1] for one in read), default=0)
        filled = [pad(one, (0, widest - one.shape[1])) for one in read]
        copied = iter(torch.cat(filled).cpu().split([len(one) for one in read]) if read else ())
        return [
            result if isinstance(result, Abstained) else _checked(row, next(copied)[:, : result.shape[1]])
            for row, result in zip(asked, results)
        ]


def _checked(row: Asked, read: torch.Tensor) -> torch.Tensor | Abstained:
    """What a row reads, unless the judge's numbers broke down on the way."""
    sizes = [len(sets) for sets in row.reading.wanted]
    values = [value for one, size in zip(read.tolist(), sizes) for value in one[:size]]
    if any(math.isnan(value) for value in values):
        return Abstained(f"row {row.owner}: the judge's logits are not finite")
    return read


def _stop_tokens(model: Any, tokenizer: Tokenizer) -> list[int]:
    configured = getattr(model.generation_config, "eos_token_id", None)
    if configured is None:
        configured = tokenizer.eos_token_id
    return [configured] if isinstance(configured, int) else list(configured or [])
