"""TIFA as a reward (TIFA §3): the share of a prompt's questions that a VQA model answers right on the picture."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from PIL import Image

from rewards.errors import InputError
from rewards.images import unbatch
from rewards.judges.base import Judge
from rewards.judges.pictures import picture as judgeable_picture
from rewards.reward import Details, Json, Reward, Scores, number_or_none
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.question import Question, right_choices
from rewards.tifa.scoring import accuracy_by_type, faithfulness
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


@dataclass
class TIFAScores(Scores):
    """Scores of N pictures: the share of right answers in [0, 1], its parts by element type, and every answer.

    Attributes:
        answers: a row for every question asked, by picture and then in the store's order.
    """

    answers: list[AnswerRow] = field(default_factory=list)

    @property
    def unmatched(self) -> int:
        """Number of answers that match no choice (they count as wrong)."""
        return sum(row.how == "unmatched" for row in self.answers)

    def by_element_type(self) -> dict[str, tuple[float, int]]:
        """Mean score and number of questions of each element type, pooled over the batch."""
        return accuracy_by_type((row.question.element_type, row.score) for row in self.answers)

    @classmethod
    def of(cls, answers: list[AnswerRow], reasons: Sequence[str | None], element_types: Sequence[str]) -> TIFAScores:
        """Scores from the answers.

        Args:
            answers: of all pictures, by picture.
            reasons: N texts: why a picture could not be judged, or None.
            element_types: types that are parts whether or not this batch asks for them.
        """
        by_image: list[list[AnswerRow]] = [[] for _ in reasons]
        for row in answers:
            by_image[row.image].append(row)
        names = tuple(sorted({*element_types, *(row.question.element_type or "other" for row in answers)}))
        parts = torch.full((len(reasons), len(names)), math.nan, dtype=torch.float64)
        counts = torch.zeros(len(reasons), len(names), dtype=torch.float64)
        for image, rows in enumerate(by_image):
            for column, name in enumerate(names):
                scores = [row.score for row in rows if (row.question.element_type or "other") == name]
                if scores and not any(math.isnan(score) for score in scores):
                    parts[image, column], counts[image, column] = math.fsum(scores) / len(scores), len(scores)
        return cls(
            torch.tensor([faithfulness([row.score for row in rows]) for rows in by_image], dtype=torch.float32),
            reasons,
            names,
            parts,
            counts,
            sums={"unmatched": torch.tensor([sum(row.how == "unmatched" for row in rows) for rows in by_image])},
            details=[_details(rows) for rows in by_image],
            answers=answers,
        )


class TIFA(Reward):
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
        UnsupportedAbility: A judge that cannot answer, or choose.
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

    judges = "pictures"

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
        judge.require("answer" if answer == "free_form" else "choose")
        self.judge = judge
        self.questions = questions
        self.answer = answer
        self.soft = soft
        self.matcher = matcher or AnswerMatcher()
        if answer == "free_form":
            self.matcher.load()  # a missing sentence model must not be found out after the judge has answered
        self.__name__ = "TIFA"

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """What must be recorded with a score for it to be made again, the fingerprint of the questions included."""
        return {
            "reward": self.__name__,
            "judge": self.judge.identity(),
            "answer": self.answer,
            "soft": self.soft,
            "matching": self.matcher.identity() if self.answer == "free_form" else None,
            "questions": self.questions.fingerprint() if texts is None else self.questions.fingerprint(texts),
        }

    def check_prompts(self, texts: Sequence[str]) -> None:
        """All prompts must have questions.

        Raises:
            InputError: naming those that have none.
        """
        self.questions.prepare(texts)

    def for_evaluation(self) -> TIFA:
        """The same questions with right and wrong answers counted, which is what TIFA is; `soft` is for training."""
        hard = copy.copy(self)
        hard.soft = False
        return hard

    def score(
        self, images: Sequence[object], prompts: Sequence[str | int | None], /, **columns: Sequence[object]
    ) -> TIFAScores:
        """Score one picture a prompt.

        Args:
            images: N pictures: a list of anything that :func:`rewards.images.to_pil` takes, or a batched tensor or
                array `(N, C, H, W)` or `(N, H, W, C)`.
            prompts: N prompts, or ids in the question store. None abstains.
            columns: not looked at.

        Returns:
            N scores. A picture that cannot be read, holds NaN, is black throughout (what a half-precision VAE makes
            of an overflow), or has a question that the judge could not answer abstains: NaN with a reason, never 0.

        Raises:
            InputError: N differs, or prompts without questions (all are looked up before the judge starts).
        """
        pictures = unbatch(images)
        if len(pictures) != len(prompts):
            raise InputError(f"got {len(pictures)} images but {len(prompts)} prompts; expected one a row")
        known = [prompt for prompt in prompts if prompt is not None]
        asked = iter(self.questions.prepare(known))
        reasons: list[str | None] = [None] * len(pictures)
        rows: list[tuple[int, Question]] = []
        loaded: dict[int, Image.Image | torch.Tensor] = {}
        for index, (picture, prompt) in enumerate(zip(pictures, prompts, strict=True)):
            if prompt is None:
                reasons[index] = f"image {index} has no prompt"
                continue
            questions = next(asked)
            try:
                loaded[index] = _usable(picture, index)
            except (InputError, OSError) as error:
                reasons[index] = str(error)
                continue
            rows.extend((index, question) for question in questions)
        answers = self._ask(rows, [loaded[index] for index, _ in rows])
        for row in answers:
            if row.how == "abstained" and reasons[row.image] is None:
                reasons[row.image] = f"the judge could not answer {row.question.text!r}"
        return TIFAScores.of(answers, reasons, [name or "other" for name in self.questions.element_types()])

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


def _details(rows: Sequence[AnswerRow]) -> Details:
    return {
        "answers": [
            {
                "question": row.question.text,
                "element": row.question.element,
                "element_type": row.question.element_type,
                "answer": row.question.answer,
                "free_form": row.free_form,
                "choice": row.choice,
                "how": row.how,
                "right": row.right,
                "score": number_or_none(row.score),
            }
            for row in rows
        ]
    }


def _usable(image: object, index: int) -> Image.Image | torch.Tensor:
    pixels = judgeable_picture(image, index, keep_tensors=True).pixels  # a tensor stays on its device
    black = not pixels.any() if isinstance(pixels, torch.Tensor) else pixels.getextrema() == ((0, 0),) * 3
    if black:
        raise InputError(f"image {index} is black throughout")
    return pixels
