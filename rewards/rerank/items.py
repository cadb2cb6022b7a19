"""What is to be ranked: one prompt or picture, and n candidates for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rewards.errors import InputError
from rewards.jobs.sources.base import short


@dataclass(frozen=True)
class Item:
    """Candidates of which the best is wanted: texts about a picture, or pictures of a prompt.

    Attributes:
        candidates: n texts, or n pictures in any form that `rewards.images.to_pil` takes.
        image: the picture (or list of pictures) that the texts are about; None when the candidates are pictures.
        prompt: what the candidates were generated from: the text or id by which TIFA finds its questions, or the
            instruction to the model that wrote the texts (kept for preference pairs).
        question: for the tasks `vqa` and `document`.
        box: (left, top, right, bottom) in pixels, for the task `referring`.
        id: name of the item in outputs.
        extra: other columns, handed to reward functions in TRL's convention.

    Example:
        >>> Item(candidates=("a dog", "a cat"), image="pet.png").kind
        'texts'
    """

    candidates: tuple[Any, ...]
    image: object = None
    prompt: str | int | None = None
    question: str | None = None
    box: tuple[float, ...] | None = None
    id: str | int = ""
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """ "texts" or "pictures"."""
        return "pictures" if self.image is None else "texts"


def as_item(value: Item | Mapping[str, Any], index: int) -> Item:
    """An item from itself or from a mapping with the same names.

    Raises:
        InputError: unknown names, no candidates, texts that are not strings, or pictures without a prompt.
    """
    if not isinstance(value, Item):
        known = {f.name for f in fields(Item)}
        if unknown := sorted(set(value) - known):
            raise InputError(
                f"item {index} has unknown fields {', '.join(unknown)}; known are {', '.join(sorted(known))}; put "
                "other columns into 'extra'"
            )
        if "candidates" not in value:
            raise InputError(f"item {index} has no candidates; it has {', '.join(map(str, value)) or 'nothing'}")
        if isinstance(value["candidates"], str | bytes):
            raise InputError(f"item {index}: candidates are {short(value['candidates'])}; a list of them is needed")
        value = Item(**{**value, "candidates": tuple(value["candidates"])})
    if not value.candidates:
        raise InputError(f"item {index} has no candidates")
    if value.kind == "texts" and not all(isinstance(candidate, str) for candidate in value.candidates):
        raise InputError(f"item {index}: candidates about a picture must be texts")
    if value.kind == "pictures" and value.prompt is None:
        raise InputError(f"item {index} has neither an image (for texts) nor a prompt (for pictures)")
    return value
