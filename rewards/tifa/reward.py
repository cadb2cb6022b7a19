"""TIFA as a reward (TIFA §3): the share of a prompt's questions that a VQA model answers right on the picture.

Its successors are options of the same class: Soft-TIFA (GenEval 2) takes the probability of the right answer
(`soft="mass"`) and the geometric mean; DSG lets one question depend on others (`dependencies`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal

import torch

from rewards.errors import InputError
from rewards.images import Picture, as_list, unbatch
from rewards.judges.base import Ability, Judge
from rewards.judges.pictures import read_at_once
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.tifa.answers import DEPENDENCIES, AnswerRow, TIFAScores, with_dependencies
from rewards.tifa.asking import among_choices, by_mass, in_own_words
from rewards.tifa.gradient import among_choices_with_grad, by_mass_with_grad, soft_scores
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.pictures import usable_picture
from rewards.tifa.questions.question import Question
from rewards.tifa.scoring import AGGREGATES
from rewards.tifa.store.store import QuestionStore

__all__ = ["TIFA", "AnswerRow", "TIFAScores"]


class TIFA(Reward):
    """Text-to-image faithfulness by question answering, as a picklable reward.

    Args:
        judge: Answers questions about pictures (see :func:`rewards.judges.loading.load_judge`).
        questions: Where the questions of every prompt are.
        answer: "free_form": the judge answers in its own words, which are matched to a choice (the paper's way for VQA
            models); "choices": the most probable choice is taken (TIFA eq. 1; the paper's way for BLIP-2). Default:
            "free_form", or "choices" with `soft`.
        soft: Score each question by the probability of its right answer instead of 0 or 1: a denser reward, with fewer
            groups in which all samples score the same. True: among the choices; needs `answer="choices"`. "mass":
            among all answers there are, as Soft-TIFA does (see :meth:`rewards.judges.base.Judge.mass`).
        matcher: Maps free-form answers to choices; default: :class:`rewards.tifa.matching.AnswerMatcher`.
        none_of_these: Offer, beside the choices of every question that asks for more than yes or no, one that is always
            wrong: a judge need not name the colour of something that is not there. Helps judges that know such an
            answer; the shapes judge does not (`benchmarks/tifa_none_of_these.py`).
        aggregate: From the questions of a picture to its score: "arithmetic" (TIFA eq. 1; Soft-TIFA AM), "geometric"
            (Soft-TIFA GM) or "all" (1 where all are right).
        dependencies: What a question that depends on others loses when those are not fulfilled: "none": nothing;
            "hard": all of its score where a parent's own is 0 (DSG); "soft": it is multiplied by the parents' scores.

    Raises:
        UnsupportedAbility: A judge that cannot answer, choose, or tell the mass.
        InputError: An unknown option, `soft` with free-form answers, or a sentence model that cannot be loaded.

    Example:
        >>> import tempfile
        >>> from PIL import Image
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
        soft: bool | Literal["mass"] = False,
        matcher: AnswerMatcher | None = None,
        none_of_these: bool = False,
        aggregate: str = "arithmetic",
        dependencies: str = "none",
    ) -> None:
        answer = answer or ("mass" if soft == "mass" else "choices" if soft else "free_form")
        _check_options(answer, soft, none_of_these, aggregate, dependencies)
        needed: Ability = "answer" if answer == "free_form" else "choose" if answer == "choices" else "mass"
        self.judge = Judge.checked(judge, needed)
        self.questions = questions
        self.answer = answer
        self.soft = soft
        self.matcher = matcher or AnswerMatcher()
        self.none_of_these = none_of_these
        self.aggregate = aggregate
        self.dependencies = dependencies
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
            "none_of_these": self.none_of_these,
            "aggregate": self.aggregate,
            "dependencies": self.dependencies,
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
        """The same questions with right and wrong answers counted and averaged, which is what TIFA is; `soft` and the
        other means are for training."""
        hard = copy.copy(self)
        hard.soft, hard.aggregate = False, "arithmetic"
        return hard

    @property
    def takes_tensors(self) -> bool:
        """As the judge."""
        return self.judge.takes_tensors

    @property
    def gradient_problem(self) -> str | None:
        """Soft TIFA of either kind has a gradient, as a mean over all questions, where its judge has one."""
        if not self.soft or self.aggregate == "all" or self.dependencies != "none":
            return (
                f"{self.__name__} has a gradient with soft=True or soft='mass', aggregate='arithmetic' or 'geometric', "
                "and dependencies='none'"
            )
        return self.judge.problem("mass_with_grad" if self.soft == "mass" else "choose_with_grad")

    def score_with_grad(self, images: torch.Tensor, texts: Sequence[str], /, **columns: Sequence[object]) -> TIFAScores:
        """:meth:`score` with `grad=True`."""
        return self.score(images, texts, grad=True)  # type: ignore[arg-type]

    def score(  # type: ignore[override]  # no column is called "grad"
        self,
        images: Sequence[object],
        prompts: Sequence[str | int | None],
        /,
        *,
        grad: bool = False,
        **columns: Sequence[object],
    ) -> TIFAScores:
        """Score one picture a prompt.

        Args:
            images: N pictures: a list of anything that :func:`rewards.images.to_pil` takes, or a batched tensor or
                array `(N, C, H, W)` or `(N, H, W, C)`.
            prompts: N prompts, or ids in the question store. None abstains.
            grad: keep the gradient of the overall scores to the pixels: of soft TIFA, by a judge that can, of pictures
                that are one tensor `(N, 3, H, W)` in [0, 1]. The scores then stay on the judge's device.
            columns: not looked at.

        Returns:
            N scores. A picture that cannot be read, holds NaN, is black throughout (what a half-precision VAE makes
            of an overflow), or has a question that the judge could not answer abstains: NaN with a reason, never 0.

        Raises:
            InputError: N differs, prompts without questions (all are looked up before the judge starts), or `grad`
                with settings or a judge that have none.
        """
        if grad and (problem := self.gradient_problem) is not None:
            raise InputError(problem)
        if isinstance(prompts, str):
            raise InputError(f"prompts must be a list, got a single string {prompts[:100]!r}")
        pictures = unbatch(images)
        if len(pictures) != len(prompts):
            raise InputError(f"got {len(pictures)} images but {len(prompts)} prompts; expected one a row")
        prompts = as_list(prompts) or []
        for index, prompt in enumerate(prompts):
            if isinstance(prompt, bool) or not isinstance(prompt, str | int | None):
                raise InputError(f"prompt {index} is a {type(prompt).__name__}; expected a text, or an id of the store")
        known = [prompt for prompt in prompts if prompt is not None]
        asked = iter(self.questions.prepare(known))
        reasons: list[str | None] = [None] * len(pictures)
        rows: list[tuple[int, Question]] = []
        loaded: dict[int, Picture] = {}
        for index, (picture, prompt) in enumerate(zip(read_at_once(pictures), prompts, strict=True)):
            if prompt is None:
                reasons[index] = f"image {index} has no prompt"
                continue
            questions = next(asked)
            try:
                loaded[index] = usable_picture(
                    picture.detach() if isinstance(picture, torch.Tensor) else picture, index
                )
            except (InputError, OSError) as error:
                reasons[index] = str(error)
                continue
            rows.extend((index, question) for question in questions)
        probabilities: list[torch.Tensor] = []
        if grad and rows:
            shown = [pictures[index] for index, _ in rows]
            if self.soft == "mass":
                answers, probabilities = by_mass_with_grad(self.judge, rows, shown)
            else:
                answers, probabilities = among_choices_with_grad(self.judge, rows, shown, self.none_of_these)
        else:
            answers = self._ask(rows, [loaded[index] for index, _ in rows])
        for row in answers:
            if row.how == "abstained" and reasons[row.image] is None:
                reasons[row.image] = f"the judge could not answer {row.question.text!r}"
        answers = with_dependencies(answers, self.dependencies)
        scores = TIFAScores.of(answers, reasons, self.questions.element_types(), self.aggregate)
        if grad:
            scores.overall = soft_scores(rows, probabilities, len(pictures), self.aggregate)
        return scores

    def _ask(self, rows: Sequence[tuple[int, Question]], pictures: Sequence[Picture]) -> list[AnswerRow]:
        if not rows:
            return []
        if self.answer == "mass":
            return by_mass(self.judge, rows, pictures, bool(self.soft))
        if self.answer == "choices":
            return among_choices(self.judge, rows, pictures, bool(self.soft), self.none_of_these)
        return in_own_words(self.judge, self.matcher, rows, pictures, self.none_of_these)


def _check_options(
    answer: str, soft: bool | Literal["mass"], none_of_these: bool, aggregate: str, dependencies: str
) -> None:
    if soft not in (True, False, "mass"):
        raise InputError(f"soft is {soft!r}; expected True, False or 'mass'")
    if answer not in ("free_form", "choices", "mass"):
        raise InputError(f"answer is {answer!r}; expected 'free_form' or 'choices'")
    if soft and answer == "free_form":
        raise InputError("soft=True needs answer='choices': a free-form answer has no probability for each choice")
    if (answer == "mass") != (soft == "mass"):
        raise InputError(f"answer is {answer!r}; soft='mass' reads the answer's own probability: leave out answer")
    if none_of_these and answer == "mass":
        raise InputError("none_of_these offers a choice; soft='mass' offers none")
    if aggregate not in AGGREGATES:
        raise InputError(f"aggregate is {aggregate!r}; expected one of {', '.join(map(repr, AGGREGATES))}")
    if dependencies not in DEPENDENCIES:
        raise InputError(f"dependencies is {dependencies!r}; expected one of {', '.join(map(repr, DEPENDENCIES))}")
