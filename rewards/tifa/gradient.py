"""Soft TIFA with a gradient: the mean probability of the right choices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rewards.errors import InputError
from rewards.judges.base import Judge
from rewards.tifa.answers import AnswerRow
from rewards.tifa.asking import chosen, offered
from rewards.tifa.questions.question import Question, right_choices


def among_choices_with_grad(
    judge: Judge, rows: Sequence[tuple[int, Question]], pictures: Sequence[object], none_of_these: bool
) -> tuple[list[AnswerRow], list[Tensor]]:
    """:func:`rewards.tifa.asking.among_choices`, soft, with the log-probabilities and their gradient.

    Args:
        judge: Can choose with a gradient.
        rows: (image, question) of each row.
        pictures: Its tensor; rows about one picture hold the same one.
        none_of_these: As in :class:`rewards.TIFA`.

    Raises:
        InputError: A picture is no tensor.
    """
    if not rows:
        return [], []
    tensors = [picture for picture in pictures if isinstance(picture, Tensor)]
    if len(tensors) < len(pictures):
        raise InputError("grad=True needs the pictures as one tensor (N, 3, H, W) in [0, 1]")
    choices = [offered(question, none_of_these) for _, question in rows]
    logs = judge.choose_with_grad(tensors, [question.text for _, question in rows], choices)
    answers = [
        chosen(image, question, options, log.detach().cpu(), True)
        for (image, question), options, log in zip(rows, choices, logs, strict=True)
    ]
    return answers, logs


def soft_scores(rows: Sequence[tuple[int, Question]], log_probabilities: Sequence[Tensor], count: int) -> Tensor:
    """Soft TIFA (eq. 1 with probabilities for right and wrong) from the choices' log-probabilities.

    Args:
        rows: (image, question) of each row.
        log_probabilities: of its choices, with a gradient.
        count: N, number of images.

    Returns:
        `(N,)` float32; NaN, without a gradient, for an image with no question, or with one that could not be answered.
    """
    by_image: list[list[Tensor]] = [[] for _ in range(count)]
    for (image, question), logs in zip(rows, log_probabilities, strict=True):
        right = right_choices(question.answer, question.options)
        by_image[image].append(logs.float().softmax(0)[right].sum().clamp(max=1.0))
    means = [torch.stack(scores).mean() if scores else torch.tensor(math.nan) for scores in by_image]
    if not means:
        return torch.empty(0)
    device = log_probabilities[0].device if log_probabilities else torch.device("cpu")
    return torch.stack([mean if bool(mean.isfinite()) else torch.tensor(math.nan, device=device) for mean in means])
