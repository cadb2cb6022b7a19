"""Audit of a reward of pictures: a picture that shows its prompt against pictures that must score lower.

With a `scene` column (the shapes world) objects are added, taken away and changed by the scene; elsewhere the picture's
own pixels are all there is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from rewards.audit.findings import CONTROL, Findings
from rewards.audit.texts import blank, draw_of, noise, stranger
from rewards.audit.variants import TrueText, Variant, judge_variants
from rewards.images import to_pil
from rewards.reward import Reward
from rewards.shapes.datasets import scene_from_json
from rewards.shapes.false_pictures import false_pictures
from rewards.shapes.render import render

Font = ImageFont.ImageFont | ImageFont.FreeTypeFont
PATCHES = 4
"""Patches a side that are scrambled."""
_SIDES = re.compile(r"\b(?:left|right)\b", re.I)
_HEIGHTS = re.compile(r"\b(?:above|below|over|under|top|bottom)\b", re.I)


def audit_pictures(
    reward: Reward, rows: Sequence[TrueText], *, second: Reward | None = None, seed: int = 0, batch_size: int = 256
) -> Findings:
    """Score every true picture of its prompt, and what a policy could draw in its place.

    Args:
        reward: of pictures of prompts.
        rows: pictures with the prompts that they show (`text`); two at least. A column `scene` (see
            :func:`rewards.shapes.datasets.scene_to_json`) adds false pictures by the scene.
        second: a judge who knows better, or the truth (:mod:`rewards.shapes.picture_truth`): pictures that it does not
            score lower take no part.
        seed: chooses other pictures, patches and objects.
        batch_size: pictures handed to the reward at a time.

    Returns:
        As :func:`rewards.audit.texts.audit_texts`, by element type where the reward has them as parts. `half
        resolution` is a control: it shows the prompt as well as before.

    Raises:
        InputError: fewer than two rows, or what the reward refuses (a prompt without questions).

    Example:
        >>> audit_pictures(tifa, [TrueText("dog.jpg", "a dog"), TrueText("cat.jpg", "a cat")])  # doctest: +SKIP
    """
    reward.check_prompts([row.text for row in rows])

    def make(row: int) -> list[Variant]:
        own, draw = rows[row], draw_of(rows[row], seed)
        picture = to_pil(own.image)
        others = [to_pil(stranger(rows, row, draw).image) for _ in range(4)]
        found = [
            Variant("unseen picture", "blank", blank(picture.size), own.text, certain=True),
            Variant("unseen picture", "noise", noise(picture.size, draw), own.text, certain=True),
            Variant("unseen picture", "another prompt's picture", others[0], own.text),
            Variant("unseen picture", "scrambled", scrambled(picture, draw), own.text),
            Variant("unseen picture", "prompt as text", written(own.text, picture.size), own.text, certain=True),
            Variant("unseen picture", "collage", collage(others, picture.size), own.text),
            Variant("false detail", "tiled", collage([picture] * 4, picture.size), own.text),
            Variant("false detail", "colors swapped", colors_swapped(picture), own.text),
            Variant(CONTROL, "half resolution", half_resolution(picture), own.text),
        ]
        if _SIDES.search(own.text):
            found.append(Variant("false detail", "mirrored", ImageOps.mirror(picture), own.text))
        if _HEIGHTS.search(own.text):
            found.append(Variant("false detail", "upside down", ImageOps.flip(picture), own.text))
        if isinstance(scene := own.columns.get("scene"), str):
            changed = false_pictures(scene_from_json(scene), own.text, draw)
            found += [Variant("false detail", kind, render(other), own.text) for kind, other in changed.items()]
        else:
            found.append(Variant("false detail", "surplus", pasted(picture, others[1]), own.text))
        return found

    return judge_variants(reward, rows, make, {"kind": "pictures", "seed": seed}, second, batch_size)


def scrambled(picture: Image.Image, draw: random.Random) -> Image.Image:
    """The picture in patches, each in another's place."""
    xs, ys = (np.linspace(0, side, PATCHES + 1).astype(int).tolist() for side in picture.size)
    boxes = [(xs[i], ys[j], xs[i + 1], ys[j + 1]) for i in range(PATCHES) for j in range(PATCHES)]
    order = draw.sample(boxes, len(boxes))
    out = Image.new("RGB", picture.size)
    for (left, top, right, bottom), source in zip(boxes, order, strict=True):
        out.paste(picture.crop(source).resize((right - left, bottom - top)), (left, top))
    return out


def written(text: str, size: tuple[int, int]) -> Image.Image:
    """The prompt as words on a white picture, in PIL's own font, as large as they fit.

    Small pictures are drawn larger and scaled down, so that all words are in them whether or not they can be read.
    """
    factor = max(1, -(-256 // min(size)))
    width, height = size[0] * factor, size[1] * factor
    canvas = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(canvas)
    for points in range(height // 4, 7, -2):
        font = ImageFont.load_default(points)
        lines = _wrapped(text, pen, font, 0.92 * width)
        _, _, right, bottom = pen.multiline_textbbox((0, 0), "\n".join(lines), font)
        if right <= 0.92 * width and bottom <= 0.9 * height:
            break
    pen.multiline_text((0.04 * width, 0.04 * height), "\n".join(lines), "black", font)
    return canvas.resize(size, Image.Resampling.LANCZOS)


def _wrapped(text: str, pen: ImageDraw.ImageDraw, font: Font, width: float) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and pen.textlength(longer, font) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def collage(pictures: Sequence[Image.Image], size: tuple[int, int]) -> Image.Image:
    """Four pictures on one."""
    width, height = size
    half = (width // 2, height // 2)
    out = Image.new("RGB", size, "white")
    for place, picture in enumerate(pictures[:4]):
        corner = (place % 2 * half[0], place // 2 * half[1])
        out.paste(picture.resize((width - half[0], height - half[1]), Image.Resampling.LANCZOS), corner)
    return out


def pasted(picture: Image.Image, other: Image.Image) -> Image.Image:
    """Another picture in the lower right quarter of this one."""
    width, height = picture.size
    out = picture.copy()
    half = (width // 2, height // 2)
    out.paste(other.resize(half, Image.Resampling.LANCZOS), (width - half[0], height - half[1]))
    return out


def colors_swapped(picture: Image.Image) -> Image.Image:
    """Red for green, green for blue, blue for red."""
    red, green, blue = picture.split()
    return Image.merge("RGB", (blue, red, green))


def half_resolution(picture: Image.Image) -> Image.Image:
    """Halved and enlarged again."""
    width, height = picture.size
    half = picture.resize((max(1, width // 2), max(1, height // 2)), Image.Resampling.BILINEAR)
    return half.resize(picture.size, Image.Resampling.BILINEAR)
