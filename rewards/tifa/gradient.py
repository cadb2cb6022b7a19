"""Soft TIFA and Soft-TIFA with a gradient: the mean probability of the right answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rewards.judges.base import Judge
from rewards.tifa.answers import AnswerRow
from rewards.tifa.asking import Asked, chosen, offered, weighed, wording
from rewards.tifa.questions.question import right_choices
from rewards.tifa.surface_forms import surface_forms


def among_choices_with_grad(
    judge: Judge, rows: Asked, pictures: Sequence[object], none_of_these: bool
) -> tuple[list[AnswerRow], list[Tensor]]:
    """:func:`rewards.tifa.asking.among_choices`, soft, and each row's probability with its gradient.

    Args:
        judge: Can choose with a gradient.
        rows: (image, question) of each row.
        pictures: Its tensor; rows about one picture hold the same one.
        none_of_these: As in :class:`rewards.TIFA`.
    """
    choices = [offered(question, none_of_these) for _, question in rows]
    found = judge.choose_with_grad(pictures, [question.text for _, question in rows], choices)
    answers, probabilities = [], []
    for (image, question), options, logs in zip(rows, choices, found, strict=True):
        answers.append(chosen(image, question, options, logs.detach().cpu(), True))
        right = right_choices(question.answer, question.options)
        probabilities.append(logs.softmax(0)[right].sum().clamp(max=1.0))
    return answers, probabilities


def by_mass_with_grad(judge: Judge, rows: Asked, pictures: Sequence[object]) -> tuple[list[AnswerRow], list[Tensor]]:
    """:func:`rewards.tifa.asking.by_mass`, soft, likewise."""
    questions = [question for _, question in rows]
    prompts = [wording(judge, question) for question in questions]
    masses = judge.mass_with_grad(pictures, prompts, [surface_forms(question.answer) for question in questions])
    values = masses.tolist()
    answers = [weighed(image, question, mass, True) for (image, question), mass in zip(rows, values, strict=True)]
    return answers, list(masses)


def soft_scores(rows: Asked, probabilities: Sequence[Tensor], count: int, aggregate: str) -> Tensor:
    """Scores of N images from the probabilities of their right answers.

    Args:
        rows: (image, question) of each row.
        probabilities: of its right answer, with a gradient.
        count: N, number of images.
        aggregate: "arithmetic" (TIFA eq. 1; Soft-TIFA AM) or "geometric" (Soft-TIFA GM).

    Returns:
        `(N,)` float32; NaN, without a gradient, for an image with no question, or with one that could not be answered.
    """
    if not count:
        return torch.empty(0)
    by_image: list[list[Tensor]] = [[] for _ in range(count)]
    for (image, _), probability in zip(rows, probabilities, strict=True):
        by_image[image].append(probability)
    device = probabilities[0].device if probabilities else torch.device("cpu")
    return torch.stack([_mean(scores, aggregate).to(device) for scores in by_image])


def _mean(scores: Sequence[Tensor], aggregate: str) -> Tensor:
    values = torch.stack(list(scores)) if scores else torch.tensor([math.nan])
    if not bool(values.isfinite().all()):
        return torch.tensor(math.nan)
    if aggregate == "arithmetic":
        return values.mean()
    return values.log().mean().exp() if bool((values > 0).all()) else torch.tensor(0.0)
