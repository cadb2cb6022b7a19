"""The oracle: reads a picture back into what it shows and answers without a network.

Colour distance finds the background, connected components the shapes, the best template (by overlap) each one's
kind. It is exact on drawn scenes and tolerant of slightly blurred or decoded ones; what it cannot name it calls
malformed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import ndimage

from rewards.errors import InputError
from rewards.images import to_pil_list
from rewards.judges.base import Judge
from rewards.shapes.language import NUMBERS, PLURALS, RELATIONS
from rewards.shapes.questions import SIDE
from rewards.shapes.render import signed_distance
from rewards.shapes.scenes import BACKGROUNDS, COLORS, IMAGE_SIZE, SHAPES, relation

_COLOR_NAMES, _BACKGROUND_NAMES = list(COLORS), list(BACKGROUNDS)
_COLOR_VALUES = np.array(list(COLORS.values()), np.float32) / 127.5 - 1
_BACKGROUND_VALUES = np.array(list(BACKGROUNDS.values()), np.float32) / 127.5 - 1
_TEMPLATE_SIZE = 16


@dataclass(frozen=True, slots=True)
class SeenShape:
    """A blob: its colour, its kind (None when malformed), its centre in pixels."""

    color: str
    shape: str | None
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What the oracle sees; ``sure`` when every blob is a well-formed shape of a palette colour."""

    shapes: tuple[SeenShape, ...]
    background: str
    sure: bool

    def find(self, color: str | None = None, shape: str | None = None) -> list[SeenShape]:
        """The blobs of that colour and shape; None matches any."""
        return [s for s in self.shapes if color in (None, s.color) and shape in (None, s.shape)]


def look(picture: np.ndarray) -> Seen:
    """Read one picture, float ``(32, 32, 3)`` in [-1, 1].

    Example:
        >>> from rewards.shapes.render import render_array
        >>> from rewards.shapes.scenes import Scene
        >>> look(render_array([Scene((), "gray")])[0]).background
        'gray'
    """
    to_background = ((picture[:, :, None] - _BACKGROUND_VALUES) ** 2).sum(-1)
    near = to_background.argmin(-1)[to_background.min(-1) < 0.3]
    background = int(np.bincount(near, minlength=len(BACKGROUNDS)).argmax())
    labels, count = ndimage.label(to_background[..., background] > 0.3)
    shapes, sure = [], near.size > IMAGE_SIZE**2 // 3
    for blob in range(1, count + 1):
        mask = labels == blob
        if mask.sum() < 25:
            sure &= bool(mask.sum() < 6)  # specks are noise, half a shape is not
            continue
        shape, clean = _read_blob(picture, mask, _BACKGROUND_VALUES[background])
        sure &= clean
        if shape is not None:
            shapes.append(shape)
    return Seen(tuple(shapes), _BACKGROUND_NAMES[background], sure)


def _read_blob(picture: np.ndarray, mask: np.ndarray, background: np.ndarray) -> tuple[SeenShape | None, bool]:
    core = ndimage.binary_erosion(mask, iterations=2)
    middle = np.median(picture[core if core.sum() > 6 else mask], 0)
    distances = ((_COLOR_VALUES - middle) ** 2).sum(-1)
    color = int(distances.argmin())
    axis = _COLOR_VALUES[color] - background
    covered = mask & (((picture - background) @ axis) / (axis @ axis) > 0.5)
    if covered.sum() < 20:
        return None, False
    ys, xs = np.where(covered)
    height, width = np.ptp(ys) + 1, np.ptp(xs) + 1
    kind = None
    if max(height, width) <= 15 and max(height, width) / min(height, width) < 1.6:
        names, templates = _templates()
        scaled = _scaled(covered)
        overlap = (templates & scaled).sum((1, 2)) / (templates | scaled).sum((1, 2))
        if overlap.max() > 0.7:
            kind = names[int(overlap.argmax())]
    seen = SeenShape(_COLOR_NAMES[color], kind, float(xs.min() + xs.max()) / 2, float(ys.min() + ys.max()) / 2)
    return seen, kind is not None and bool(distances[color] < 0.25)


@cache
def _templates() -> tuple[list[str], np.ndarray]:
    centres = np.arange(IMAGE_SIZE, dtype=np.float32) + 0.5 - IMAGE_SIZE / 2
    names, masks = [], []
    for index, name in enumerate(SHAPES):
        for radius in (5.0, 5.4, 5.8):
            for offset in (0.0, 0.25, 0.5):
                x, y = centres[None] - offset, centres[:, None] - offset
                names.append(name)
                masks.append(
                    _scaled(signed_distance(x, y, np.full((1, 1), radius, np.float32), np.full((1, 1), index)) < 0)
                )
    return names, np.array(masks)


def _scaled(mask: np.ndarray) -> np.ndarray:
    """The mask's bounding box, sampled to 16 x 16."""
    ys, xs = np.where(mask)
    box = mask[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
    rows, columns = (((np.arange(_TEMPLATE_SIZE) + 0.5) * n / _TEMPLATE_SIZE).astype(int) for n in box.shape)
    return box[rows][:, columns]


def answer(seen: Seen, question: str) -> str:
    """The true answer to a question of the shapes world; ``"none"`` where what is asked about is not there.

    Example:
        >>> answer(Seen((SeenShape("red", "circle", 8, 8),), "white", True), "how many red objects are there?")
        'one'
    """
    words = [PLURALS.get(w, w) for w in re.findall(r"[a-z]+", question.lower())]
    colors, shapes = [w for w in words if w in COLORS], [w for w in words if w in SHAPES]
    if "background" in words:
        return seen.background
    if words[:2] == ["how", "many"]:
        count = len(seen.find(*(colors or [None])[:1], *(shapes or [None])[:1]))
        return NUMBERS[count] if count < len(NUMBERS) else "many"
    if words[:2] == ["what", "color"]:
        found = seen.find(None, shapes[0])
        return found[0].color if found else "none"
    if words[:2] == ["what", "shape"]:
        found = seen.find(colors[0])
        return (found[0].shape or "none") if found else "none"
    if words[:2] == ["is", "there"]:
        return "yes" if seen.find(colors[0], shapes[0]) else "no"
    holds = [
        relation((a.y, a.x), (b.y, b.x))
        for a in seen.find(colors[0], shapes[0])
        for b in seen.find(colors[1], shapes[1])
        if a is not b
    ]
    if words[0] == "where":
        return SIDE[holds[0]] if holds and holds[0] else "none"
    asked = next(r for r in RELATIONS if r in question.lower())
    return "yes" if asked in holds else "no"


class Oracle(Judge):
    """The oracle as a judge, so that ``TIFA(Oracle(), questions)`` is the true score by the same code.

    Pictures larger than 32 x 32 are refused: they are not of this world.
    """

    name = "shapes-oracle"
    revision = "1"
    prompts = None

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """True answers, a question a row; a picture that several rows share is read once.

        Raises:
            InputError: a picture of another size.
        """
        pictures = to_pil_list(images)
        for index, picture in enumerate(pictures):
            if picture.size != (IMAGE_SIZE, IMAGE_SIZE):
                raise InputError(
                    f"image {index} is {picture.size}; the oracle reads pictures of {IMAGE_SIZE} x {IMAGE_SIZE}"
                )
        seen: dict[bytes, Seen] = {}
        for picture in pictures:
            key = picture.tobytes()
            if key not in seen:
                seen[key] = look(np.asarray(picture, np.float32) / 127.5 - 1)
        return [answer(seen[picture.tobytes()], question) for picture, question in zip(pictures, questions)]
