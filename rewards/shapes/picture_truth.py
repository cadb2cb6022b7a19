"""The truth about a picture of a prompt, read by the oracle: what it shows and nobody asked for counts as well."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from rewards.errors import InputError
from rewards.images import to_pil, to_pil_list
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.scores import Scores
from rewards.shapes.language import Description, Phrase
from rewards.shapes.oracle import Seen, look
from rewards.shapes.questions import meaning
from rewards.shapes.scenes import IMAGE_SIZE, relation

Look = tuple[str | None, str | None]
"""Colour and shape."""
PARTS = ("objects", "surplus", "relation", "background", "form")


class PictureTruth(Reward):
    """How much of a picture of the shapes world is as its prompt says, in [0, 1]: for auditing, never for training.

    The mean of: `objects` (share of the phrases whose objects are there in the number said), `surplus` (1 without an
    object too many), `relation` and `background` where the prompt states them, and `form` (1 where every blob is a
    whole shape). TIFA's questions ask what the prompt says; an object that nobody asked for lowers only this score.

    Example:
        >>> from rewards.shapes.render import render
        >>> from rewards.shapes.scenes import Scene
        >>> PictureTruth().score([render(Scene((), "gray"))], ["a red circle"]).parts[0, :2].tolist()
        [0.0, 1.0]
    """

    __name__ = "picture_truth_reward"
    judges = "pictures"

    def score(self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score`; `surplus` in the details is the number of objects too many.

        Raises:
            InputError: a picture that is not of this world.
        """
        rows = [_read(picture, text) for picture, text in zip(to_pil_list(images), texts, strict=True)]
        parts = torch.tensor([row[0] for row in rows]).view(-1, len(PARTS))
        return Scores(
            overall=parts.nanmean(1),
            reasons=["no prompt" if text is None else None for text in texts],
            part_names=PARTS,
            parts=parts,
            counts=(~parts.isnan()).float(),
            details=[{"surplus": surplus} for _, surplus in rows],
        )

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """Its name: the truth has no settings."""
        return {"reward": self.__name__, "function": f"{__name__}:{self.__name__}"}


picture_truth_reward = PictureTruth()


def surplus_objects(picture: object, prompt: str) -> int:
    """How many objects a picture shows that its prompt does not name, or names fewer of.

    Args:
        picture: anything that :func:`rewards.images.to_pil` takes, 32 x 32.
        prompt: words of the grammar in :mod:`rewards.shapes.language`.

    Raises:
        InputError: a picture that is not of this world.
    """
    return (_shown(_seen(to_pil(picture))) - _asked(meaning(prompt))).total()


def _seen(picture: object) -> Seen:
    array = np.asarray(picture, np.float32) / 127.5 - 1
    if array.shape != (IMAGE_SIZE, IMAGE_SIZE, 3):
        raise InputError(f"a picture is {array.shape}; the oracle reads pictures of {IMAGE_SIZE} x {IMAGE_SIZE}")
    return look(array)


def _asked(said: Description) -> Counter[Look]:
    return Counter({(phrase.color, phrase.shape): phrase.count or 1 for phrase in said.phrases})


def _shown(seen: Seen) -> Counter[Look]:
    return Counter((shape.color, shape.shape) for shape in seen.shapes)


def _read(picture: object, prompt: str | None) -> tuple[list[float], int | None]:
    if prompt is None:
        return [math.nan] * len(PARTS), None
    seen, said = _seen(picture), meaning(prompt)
    asked, shown = _asked(said), _shown(seen)
    objects = float(np.mean([shown[look] == count for look, count in asked.items()])) if asked else math.nan
    surplus = (shown - asked).total()
    related = math.nan if said.relation is None else float(_holds(seen, said.phrases[:2], said.relation))
    background = math.nan if said.background is None else float(seen.background == said.background)
    return [objects, float(surplus == 0), related, background, float(seen.sure)], surplus


def _holds(seen: Seen, phrases: Sequence[Phrase], said: str) -> bool:
    first, second = (seen.find(phrase.color, phrase.shape) for phrase in phrases)
    return any(relation((a.y, a.x), (b.y, b.x)) == said for a in first for b in second if a is not b)
