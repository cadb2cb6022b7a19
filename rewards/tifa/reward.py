"""TIFA as a reward (TIFA §3): the share of a prompt's questions that a VQA model answers right on the picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from rewards.errors import InputError
from rewards.images import unbatch
from rewards.judges.base import Judge
from rewards.judges.pictures import picture as judgeable_picture
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.question import Question, right_choices
from rewards.tifa.scoring import accuracy_by_type, faithfulness, pooled_accuracy
from rewards.tifa.store.store import QuestionStore


@dataclass(frozen=True)
class AnswerRow:
    """One question asked about one picture.

    Attributes:
        image: Position of the picture in the batch.
        question: What was asked.
        free_form: The judge's own words, or None where it chose among the choices or could not answer.
        choice: The choice that it gave or that its words were matched to; None for no answer or no match.
        how: "exact", "sentence", "unmatched" (see :class:`rewards.tifa.matching.Match`), "chosen", or "abstained".
        right: Whether `choice` is the right one; None where the judge could not answer.
        score: 1 or 0, or with `soft` the probability of the right choice; NaN where the judge could not answer.
    """

    image: int
    question: Question
    free_form: str | None
    choice: str | None
    how: str
    right: bool | None
    score: float


@dataclass(frozen=True)
class TIFAScores:
    """Scores of N pictures.

    Attributes:
        overall: `(N,)` float32 on the CPU, in [0, 1]; NaN for a picture that could not be judged.
        answers: A row for every question asked, by picture and then in the store's order.
        reasons: N texts: why a picture could not be judged, or None.
    """

    overall: torch.Tensor
    answers: list[AnswerRow]
    reasons: list[str | None]

    @property
    def abstained(self) -> torch.Tensor:
        """`(N,)` bool: which pictures could not be judged."""
        return self.overall.isnan()

    @property
    def unmatched(self) -> int:
        """Number of answers that match no choice (they count as wrong)."""
        return sum(row.how == "unmatched" for row in self.answers)

    def by_element_type(self) -> dict[str, tuple[float, int]]:
        """Mean score and number of questions of each element type, pooled over the batch."""
        return accuracy_by_type((row.question.element_type, row.score) for row in self.answers)


class TIFA:
    """Text-to-image faithfulness by question answering, as a picklable reward.

    Args:
        judge: Answers questions about pictures (see :func:`rewards.judges.loading.load_judge`).
        questions: Where the questions of every prompt are.
        answer: "free_form": the judge answers in its own words, which are matched to a choice (the paper's way for VQA
            models); "choices": the most probable choice is taken (TIFA eq. 1; the paper's way for BLIP-2). Default:
            "free_form", or "choices" with `soft`.
        soft: Score each question by the probability of its right choice among the choices instead of 0 or 1: a denser
            reward, with fewer groups in which all samples score the same. Needs `answer="choices"`.
        matcher: Maps free-form answers to choices; default: :class:`rewards.tifa.matching.AnswerMatcher`.

    Raises:
        InputError: An unknown `answer`, `soft` with free-form answers, or a sentence model that cannot be loaded.

    Example:
        >>> import tempfile
        >>> from rewards import Question, QuestionStore, load_judge
        >>> store = QuestionStore(tempfile.mkdtemp() + "/questions.sqlite")
        >>> color = Question("what color is the circle?", ("red", "blue"), "red", "red", "color", "a red circle")
        >>> store.add([color]).new
        1
        >>> tifa = TIFA(load_judge("shapes-vqa"), store, answer="choices")
        >>> rewards, info = tifa([Image.new("RGB", (32, 32), "white")], ["a red circle"])
        >>> rewards.shape, int(info["rewards/TIFA/color/count"])
        ((1,), 1)
    """

    def __init__(
        self,
        judge: Judge,
        questions: QuestionStore,
        answer: str | None = None,
        soft: bool = False,
        matcher: AnswerMatcher | None = None,
    ) -> None:
        answer = answer or ("choices" if soft else "free_form")
        if answer not in ("free_form", "choices"):
            raise InputError(f"answer is {answer!r}; expected 'free_form' or 'choices'")
        if soft and answer == "free_form":
            raise InputError("soft=True needs answer='choices': a free-form answer has no probability for each choice")
        self.judge = judge
        self.questions = questions
        self.answer = answer
        self.soft = soft
        self.matcher = matcher or AnswerMatcher()
        if answer == "free_form":
            self.matcher.load()  # a missing sentence model must not be found out after the judge has answered
        self.__name__ = "TIFA"

    def identity(self) -> dict[str, Any]:
        """What must be recorded with a score for it to be made again, except the questions (their fingerprint)."""
        matching = self.matcher.identity() if self.answer == "free_form" else None
        return {"judge": self.judge.identity(), "answer": self.answer, "soft": self.soft, "matching": matching}

    def score(self, images: Any, prompts: Sequence[str | int]) -> TIFAScores:
        """Score one picture a prompt.

        Args:
            images: N pictures: a list of anything that :func:`rewards.images.to_pil` takes, or a batched tensor or
                array `(N, C, H, W)` or `(N, H, W, C)`.
            prompts: N prompts, or ids in the question store.

        Returns:
            N scores. A picture that cannot be read, holds NaN, is black throughout (what a half-precision VAE makes
            of an overflow), or has a question that the judge could not answer abstains: NaN with a reason, never 0.

        Raises:
            InputError: N differs, or prompts without questions (all are looked up before the judge starts).
        """
        pictures = unbatch(images)
        if len(pictures) != len(prompts):
            raise InputError(f"got {len(pictures)} images but {len(prompts)} prompts; expected one a row")
        asked = self.questions.prepare(prompts)
        reasons: list[str | None] = [None] * len(pictures)
        rows: list[tuple[int, Question]] = []
        loaded: dict[int, Image.Image | torch.Tensor] = {}
        for index, picture in enumerate(pictures):
            try:
                loaded[index] = _usable(picture, index)
            except (InputError, OSError) as error:
                reasons[index] = str(error)
                continue
            rows.extend((index, question) for question in asked[index])
        answers = self._ask(rows, [loaded[index] for index, _ in rows])
        overall = _overall(answers, reasons)
        return TIFAScores(torch.tensor(overall, dtype=torch.float32), answers, reasons)

    def __call__(
        self,
        images: Any = None,
        prompts: Sequence[Any] | None = None,
        metadata: Any = None,
        *,
        completions: Sequence[Any] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> tuple[np.ndarray, dict[str, float]] | list[float | None]:
        """Reward a batch, in the convention of the caller.

        Diffusion trainers call `(images, prompts, metadata=None)` and get a float32 array `(N,)` with NaN for
        abstentions and the metrics of :meth:`metrics`. TRL calls `(prompts=..., completions=..., log_metric=...,
        **columns)`, with pictures as completions (plain, or in an assistant message), and gets a list with None for
        abstentions.

        Raises:
            InputError: As :meth:`score`, or a completion without a picture.
        """
        if prompts is None:
            raise InputError("TIFA needs the prompts of the pictures")
        if completions is None:
            scores = self.score(images, prompts)
            return scores.overall.numpy(), self.metrics(scores)
        scores = self.score(
            [_picture(completion, index) for index, completion in enumerate(completions)],
            [_plain_prompt(prompt, index) for index, prompt in enumerate(prompts)],
        )
        if log_metric is not None:
            for key, value in self.metrics(scores).items():
                if not math.isnan(value):
                    log_metric(key, value)
        return [None if math.isnan(value) else value for value in scores.overall.tolist()]

    def metrics(self, scores: TIFAScores) -> dict[str, float]:
        """Flat metrics of a batch under `rewards/TIFA/`.

        `overall/mean` and `overall/count` are over the pictures that were judged; `<element type>/mean` and `/count`
        over the questions, for every type in the store (NaN and 0 where the batch has none, so that all processes log
        the same keys); `abstained` counts pictures, `unmatched` answers.
        """
        by_type = scores.by_element_type()
        types = sorted({*by_type, *(name or "other" for name in self.questions.element_types())})
        groups = {"overall": pooled_accuracy(scores.overall.tolist())}
        groups |= {name: by_type.get(name, (math.nan, 0)) for name in types}
        prefix = f"rewards/{self.__name__}"
        metrics: dict[str, float] = {}
        for name, (mean, count) in groups.items():
            metrics |= {f"{prefix}/{name}/mean": mean, f"{prefix}/{name}/count": float(count)}
        metrics[f"{prefix}/abstained"] = float(scores.abstained.sum())
        metrics[f"{prefix}/unmatched"] = float(scores.unmatched)
        return metrics

    def _ask(
        self, rows: Sequence[tuple[int, Question]], pictures: Sequence[Image.Image | torch.Tensor]
    ) -> list[AnswerRow]:
        if not rows:
            return []
        texts = [question.text for _, question in rows]
        choices = [list(question.choices) for _, question in rows]
        if self.answer == "choices":
            chosen = self.judge.choose(pictures, texts, choices)
            return [
                _chosen(image, question, logs, self.soft) for (image, question), logs in zip(rows, chosen, strict=True)
            ]
        words = self.judge.answer(pictures, texts)
        answered = [row for row, text in enumerate(words) if text is not None]
        matches = self.matcher.match([words[row] or "" for row in answered], [choices[row] for row in answered])
        matched = dict(zip(answered, matches))
        results = []
        for row, (image, question) in enumerate(rows):
            if row not in matched:
                results.append(AnswerRow(image, question, None, None, "abstained", None, math.nan))
                continue
            index = matched[row].index
            right = index is not None and index in right_choices(question.answer, question.choices)
            choice = None if index is None else question.choices[index]
            results.append(AnswerRow(image, question, words[row], choice, matched[row].how, right, float(right)))
        return results


def _chosen(image: int, question: Question, log_probabilities: torch.Tensor, soft: bool) -> AnswerRow:
    if log_probabilities.isnan().any() or not log_probabilities.isfinite().any():
        return AnswerRow(image, question, None, None, "abstained", None, math.nan)
    right_ones = right_choices(question.answer, question.choices)
    index = int(log_probabilities.argmax())  # the first of equal ones
    right = index in right_ones
    # The judge's probabilities are of all answers there are; TIFA asks which of the choices it is.
    probability = float(log_probabilities.float().softmax(0)[right_ones].sum().clamp(max=1.0))
    score = probability if soft else float(right)
    return AnswerRow(image, question, None, question.choices[index], "chosen", right, score)


def _overall(answers: Sequence[AnswerRow], reasons: list[str | None]) -> list[float]:
    by_image: dict[int, list[float]] = {}
    for row in answers:
        by_image.setdefault(row.image, []).append(row.score)
        if row.how == "abstained" and reasons[row.image] is None:
            reasons[row.image] = f"the judge could not answer {row.question.text!r}"
    return [faithfulness(by_image.get(index, [])) for index in range(len(reasons))]


def _usable(image: Any, index: int) -> Image.Image | torch.Tensor:
    pixels = judgeable_picture(image, index, keep_tensors=True).pixels  # a tensor stays on its device
    black = not pixels.any() if isinstance(pixels, torch.Tensor) else pixels.getextrema() == ((0, 0),) * 3
    if black:
        raise InputError(f"image {index} is black throughout")
    return pixels


def _picture(completion: Any, index: int) -> Any:
    """The picture of a TRL completion: itself, or the last image block of the assistant's message."""
    if not isinstance(completion, (list, tuple)):
        return completion
    for message in reversed(completion):
        content = message.get("content") if isinstance(message, dict) else None
        for block in reversed(content if isinstance(content, list) else []):
            if isinstance(block, dict) and block.get("type") == "image" and block.get("image") is not None:
                return block["image"]
    raise InputError(f"completion {index} holds no picture; TIFA rewards models that draw")


def _plain_prompt(prompt: Any, index: int) -> str | int:
    """The text of a prompt: itself, or the text of the last user message."""
    if isinstance(prompt, (str, int)):
        return prompt
    for message in reversed(prompt):
        if message.get("role") == "user":
            content = message["content"]
            if isinstance(content, str):
                return content
            return "".join(block.get("text") or "" for block in content if block.get("type") == "text")
    raise InputError(f"prompt {index} has no user message")
