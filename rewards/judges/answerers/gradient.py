"""The gradient of an answerer's choices to the pixels of the pictures.

Preprocessing is done by the judge's own processor, so that the value is that of an ordinary call; around it a smooth
resizing and normalisation carries the gradient (a straight-through estimate). Activations are recomputed in the
backward pass, a group of rows at a time, so that memory is bounded by one group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.checkpoint import checkpoint

from rewards.images import Picture
from rewards.judges.answerers.vqa import Asked, VQAJudge
from rewards.judges.pictures import pictures_of_rows

Choose = Callable[[Asked], list[Tensor]]


def choose_with_grad(
    judge: VQAJudge,
    choose: Choose,
    images: Sequence[Tensor],
    questions: Sequence[str],
    choices: Sequence[Sequence[str]],
) -> list[Tensor]:
    """Log-probabilities of choices with a gradient, for an answerer whose `choose` keeps one.

    Args:
        judge: Whose processor and tokenizer are used.
        choose: Log-probabilities of a batch, pixels in.
        images, questions, choices: As :meth:`rewards.judges.base.Judge.choose_with_grad`.
    """
    distinct, owner = _distinct(images)
    pixels = judge_pixels(judge, torch.stack(distinct).to(judge.device))
    order = sorted(range(len(questions)), key=owner.__getitem__)  # rows about one picture stand together
    found: dict[int, Tensor] = {}
    for rows in _groups(order, owner, judge.rows_a_batch):
        used = sorted({owner[row] for row in rows})
        asked = Asked(
            {"pixel_values": pixels[used]},
            torch.tensor([used.index(owner[row]) for row in rows], device=judge.device),
            [judge._plain(questions[row]) for row in rows],
            [[judge._plain(choice) for choice in choices[row]] for row in rows],
        )
        logs = checkpoint(lambda shown, asked=asked: choose(asked._replace(pixels={"pixel_values": shown})),
                          asked.pixels["pixel_values"], use_reentrant=False)  # fmt: skip
        found |= dict(zip(rows, logs, strict=True))
    return [found[row].float() for row in range(len(questions))]


def judge_pixels(judge: VQAJudge, images: Tensor) -> Tensor:
    """What the judge's processor makes of pictures, with the gradient of a smooth resizing and normalisation.

    Args:
        judge: With a processor that resizes to a fixed size and normalises.
        images: `(P, 3, H, W)` in [0, 1] on the judge's device.

    Returns:
        `(P, 3, h, w)`, equal to the processor's output.
    """
    with torch.no_grad():
        exact = torch.cat([judge._preprocess(_read(image, judge), i)["pixel_values"] for i, image in enumerate(images)])
    size = exact.shape[-2:]
    smooth = images
    if images.shape[-2:] != size:
        smooth = interpolate(images, size, mode="bicubic", antialias=True, align_corners=False)
    processor = judge.processor.image_processor
    mean, std = (
        torch.tensor(value, device=images.device).view(1, 3, 1, 1)
        for value in (processor.image_mean, processor.image_std)
    )
    smooth = ((smooth - mean) / std).to(exact.dtype)
    return smooth + (exact - smooth).detach()


def _read(image: Tensor, judge: VQAJudge) -> Picture:
    """A picture as an ordinary call reads it, 8 bits and all."""
    (read,) = pictures_of_rows([image.detach()], keep_tensors=judge._takes_tensors)
    if not isinstance(read, tuple):
        raise read
    return read[0]


def _distinct(images: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """The different tensors among the rows, and which of them each row is about."""
    place: dict[tuple[int, int], int] = {}
    distinct: list[Tensor] = []
    owner = []
    for image in images:
        key = (image.data_ptr(), image.stride(0))
        if key not in place:
            place[key] = len(distinct)
            distinct.append(image)
        owner.append(place[key])
    return distinct, owner


def _groups(order: Sequence[int], owner: Sequence[int], size: int) -> list[list[int]]:
    """Rows in groups of about `size`, no picture in two of them."""
    groups: list[list[int]] = []
    for row in order:
        if groups and (owner[groups[-1][-1]] == owner[row] or len(groups[-1]) < size):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups
