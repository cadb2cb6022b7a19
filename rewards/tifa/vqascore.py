"""VQAScore: one question about the whole prompt, answered by the probability of "yes" (Lin et al. 2024, 2404.01291)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rewards.errors import InputError
from rewards.images import unbatch
from rewards.judges.base import Judge
from rewards.judges.pictures import read_at_once
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.scores import Scores
from rewards.tifa.pictures import usable_picture
from rewards.tifa.surface_forms import surface_forms

WORDINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "vqascore": ('Does this figure show "{text}"? Please answer yes or no.', ("Yes",)),
    "geneval2": ('Does this image show "{text}"? Answer the question with Yes or No.', surface_forms("Yes")),
}
"""The question, and the spellings of the answer that count: as t2v_metrics asks, and as GenEval 2's script does."""


class VQAScore(Reward):
    """How probable it is that the judge answers "yes" when asked whether a picture shows its prompt.

    Args:
        judge: tells how probable an answer is among all (see :meth:`rewards.judges.base.Judge.mass`).
        wording: "vqascore" (t2v_metrics) or "geneval2"; they differ in question and counted spellings.
        name: of its curves.

    Raises:
        UnsupportedAbility: A judge that cannot tell.
        InputError: An unknown wording.

    Example:
        >>> VQAScore(load_judge("Qwen/Qwen3-VL-8B-Instruct")).score([picture], ["a red car"])  # doctest: +SKIP
    """

    judges = "pictures"

    def __init__(self, judge: Judge, wording: str = "vqascore", name: str = "VQAScore") -> None:
        if wording not in WORDINGS:
            raise InputError(f"wording is {wording!r}; expected one of {', '.join(map(repr, WORDINGS))}")
        self.judge = Judge.checked(judge, "mass")
        self.wording = wording
        self.__name__ = name

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """Judge and wording."""
        question, forms = WORDINGS[self.wording]
        return {
            "reward": self.__name__,
            "judge": self.judge.identity(),
            "wording": self.wording,
            "question": question,
            "answers": list(forms),
        }

    @property
    def takes_tensors(self) -> bool:
        """As the judge."""
        return self.judge.takes_tensors

    def score(self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score`; in [0, 1]."""
        return self._score(images, texts, grad=False)

    @property
    def gradient_problem(self) -> str | None:
        """None where the judge has a gradient."""
        return self.judge.problem("mass_with_grad")

    def score_with_grad(self, images: torch.Tensor, texts: Sequence[str], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score_with_grad`."""
        if (problem := self.gradient_problem) is not None:
            raise InputError(problem)
        return self._score(images, texts, grad=True)

    def _score(self, images: object, texts: Sequence[str | None], grad: bool) -> Scores:
        pictures, texts = unbatch(images), list(texts)
        if len(pictures) != len(texts):
            raise InputError(f"got {len(pictures)} images but {len(texts)} prompts; expected one a row")
        reasons: list[str | None] = [None] * len(texts)
        rows, usable = [], []
        for row, (picture, text) in enumerate(zip(read_at_once(pictures), texts, strict=True)):
            if not isinstance(text, str) or not text.strip():
                given = "no prompt" if text is None else f"the prompt {text!r}, which is no text"
                reasons[row] = f"image {row} has {given}"
                continue
            try:
                plain = picture.detach() if isinstance(picture, torch.Tensor) else picture
                usable.append(usable_picture(plain, row))
                rows.append(row)
            except (InputError, OSError) as error:
                reasons[row] = str(error)
        question, forms = WORDINGS[self.wording]
        overall = torch.full((len(texts),), torch.nan)
        if rows:
            asked = [question.replace("{text}", str(texts[row])) for row in rows]
            if grad:
                masses = self.judge.mass_with_grad([pictures[row] for row in rows], asked, [forms] * len(rows))
                overall = overall.to(masses.device).index_copy(0, torch.tensor(rows, device=masses.device), masses)
            else:
                overall[rows] = self.judge.mass(usable, asked, [forms] * len(rows))
        for row in rows:
            if overall[row].isnan():
                reasons[row] = f"the judge could not answer about image {row}"
        return Scores(overall, reasons)
