"""Decoder vision-language models as judges: they rate, answer and choose."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForImageTextToText

from rewards.errors import InputError
from rewards.judges.base import DEFAULT_RATINGS, Ratings, UnsupportedAbility, check_rows
from rewards.judges.local import LocalJudge, judgeable_row
from rewards.judges.prompting import Prompting
from rewards.judges.rating_tokens import RatingTokens, continuation, find_rating_tokens

logger = logging.getLogger(__name__)

ANSWER_PROMPT = "{question}\nAnswer the question using a single word or phrase."
"""How a question is put to a decoder: the short-answer prompt that LLaVA-1.5 was trained with, used for all of them."""

LONGEST_ANSWER = 16
"""Most new tokens of a free-form answer; TIFA's answers have one to three words."""


class VLMJudge(LocalJudge):
    """Any `AutoModelForImageTextToText` whose tokenizer has the ratings as single tokens.

    The rating is read at one fixed position, right after the generation prompt: digits in the text under judgment are
    never taken for it.

    Example:
        >>> judge = VLMJudge("HuggingFaceTB/SmolVLM-256M-Instruct")  # doctest: +SKIP
        >>> judge.rate([picture], ["How good is this caption, from 1 to 5? A dog."]).probabilities.shape  # doctest: +SKIP
        torch.Size([1, 5])
    """

    model_class = AutoModelForImageTextToText

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self.prompting = Prompting(self.processor)
        self.tokenizer = self.processor.tokenizer
        self._accepted = set(inspect.signature(self.model.forward).parameters)
        self._stop_tokens = _stop_tokens(self.model, self.tokenizer)
        self._rating_tokens: dict[tuple[str, ...], RatingTokens] = {}
        try:
            self.rating_tokens(DEFAULT_RATINGS)
        except UnsupportedAbility as error:  # it may still answer questions; rate() raises
            logger.warning("judge %s cannot rate on %s: %s", self.name, DEFAULT_RATINGS, error)

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
        probabilities = torch.full((len(prompts), len(ratings)), torch.nan)
        reasons: list[str | None] = [None] * len(prompts)
        for index, (image, prompt) in enumerate(zip(images, prompts)):
            try:
                logits = self._next_token_logits(self._encode(image, prompt, index), tokens.bridge)[-1]
            except InputError as error:
                reasons[index] = str(error)
                continue
            row = torch.stack([logits.softmax(-1)[ids].sum() for ids in tokens.variants]).cpu()
            if torch.isfinite(row).all():
                probabilities[index] = row
            else:
                reasons[index] = f"row {index}: the judge's logits are not finite"
        return Ratings(probabilities, probabilities.sum(-1), tuple(reasons))

    def answer(self, images: Sequence[Any], questions: Sequence[str]) -> list[str | None]:
        """Greedy free-form answers; None where a row's picture cannot be read."""
        check_rows(images, questions, "question")
        answers: list[str | None] = []
        for index, (image, question) in enumerate(zip(images, questions)):
            try:
                inputs = self._encode(image, ANSWER_PROMPT.format(question=question), index)
            except InputError as error:
                logger.warning("no answer: %s", error)
                answers.append(None)
                continue
            with torch.no_grad():
                ids = self.model.generate(
                    **inputs, max_new_tokens=LONGEST_ANSWER, do_sample=False, pad_token_id=self.tokenizer.pad_token_id
                )
            new = ids[0, inputs["input_ids"].shape[1] :]
            answers.append(self.tokenizer.decode(new, skip_special_tokens=True).strip())
        return answers

    def choose(
        self, images: Sequence[Any], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice followed by the end of the turn; see :meth:`rewards.judges.base.Judge.choose`."""
        check_rows(images, questions, "question")
        if len(choices) != len(questions):
            raise InputError(f"got {len(questions)} questions but {len(choices)} lists of choices")
        rows = []
        for index, (image, question) in enumerate(zip(images, questions)):
            try:
                inputs = self._encode(image, ANSWER_PROMPT.format(question=question), index)
                rows.append(torch.stack([self._log_likelihood(inputs, choice) for choice in choices[index]]))
            except InputError as error:
                logger.warning("no choice: %s", error)
                rows.append(torch.full((len(choices[index]),), torch.nan))
        return rows

    def _log_likelihood(self, inputs: dict[str, torch.Tensor], choice: str) -> torch.Tensor:
        ids = continuation(self.tokenizer, self.prompting.tail, self.prompting.plain(choice))
        log_probs = self._next_token_logits(inputs, ids).log_softmax(-1)
        spoken = log_probs[torch.arange(len(ids)), torch.tensor(ids)].sum()
        return (spoken + log_probs[-1, self._stop_tokens].logsumexp(-1)).cpu()

    def _encode(self, image: Any, prompt: str, index: int) -> dict[str, torch.Tensor]:
        """The processor's own inputs for one row, on the device.

        Raises:
            InputError: The picture cannot be read, or the processor refuses it.
        """
        pictures = judgeable_row(image, index)
        text = self.prompting.render(prompt, len(pictures))
        try:
            inputs = self.processor(
                images=[pictures],
                text=[text],
                return_tensors="pt",
                add_special_tokens=not self.prompting.begins_with_bos,
            )
        except ValueError as error:
            raise InputError(f"row {index}: the judge's processor refuses the input: {error}") from error
        self._onload()
        floating = {"dtype": self.model.dtype}
        return {
            key: value.to(self.device, **(floating if value.is_floating_point() else {}))
            for key, value in inputs.items()
            if isinstance(value, torch.Tensor)
        }

    @torch.no_grad()
    def _next_token_logits(self, inputs: dict[str, torch.Tensor], then: Sequence[int]) -> torch.Tensor:
        """Float32 logits `(1 + len(then), V)` after the prompt and after each token of `then`."""
        full = dict(inputs)
        if then:
            added = torch.tensor([list(then)], device=self.device)
            full["input_ids"] = torch.cat([inputs["input_ids"], added], dim=1)
            for key, value in inputs.items():  # masks and token types cover the added text tokens too
                if key in ("attention_mask", "mm_token_type_ids", "token_type_ids"):
                    filler = torch.ones_like(added) if key == "attention_mask" else torch.zeros_like(added)
                    full[key] = torch.cat([value, filler.to(value.dtype)], dim=1)
        if "logits_to_keep" in self._accepted:
            full["logits_to_keep"] = len(then) + 1  # type: ignore[assignment]
        return self.model(**full, use_cache=False).logits[0, -(len(then) + 1) :].float()


def _stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    configured = getattr(model.generation_config, "eos_token_id", None)
    if configured is None:
        configured = tokenizer.eos_token_id
    return [configured] if isinstance(configured, int) else list(configured or [])
