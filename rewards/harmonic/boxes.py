"""The target of a referring expression, marked on the image."""

from __future__ import annotations

from math import isfinite

from PIL import Image, ImageDraw

from rewards.errors import InputError


def draw_box(image: Image.Image, box: object) -> Image.Image:
    """Draw the target box in red on a copy of the image (HarmonicEval section 3.1: "marked by a bounding box").

    Args:
        image: RGB image.
        box: left, top, right, bottom in pixels, as torchvision's `xyxy`; parts outside the image are cut off.

    Returns:
        A new image of the same size. The line is 1/100 of the longer side wide, at least 1 pixel (in an image too
        small for a box and its line, the line covers part of the object).

    Raises:
        InputError: if the box is not four finite numbers, is empty, or lies outside the image.

    Example:
        >>> draw_box(Image.new("RGB", (8, 8)), (2, 2, 6, 6)).getpixel((2, 4))
        (255, 0, 0)
    """
    try:
        corners = [float(value) for value in box]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        corners = []
    if len(corners) != 4 or not all(isfinite(value) for value in corners):
        raise InputError(f"a box is (left, top, right, bottom) in pixels, got {box}")
    left, top, right, bottom = corners
    if left >= right or top >= bottom:
        raise InputError(f"box {corners} is empty: expected left < right and top < bottom, in pixels")
    if right <= 0 or bottom <= 0 or left >= image.width or top >= image.height:
        raise InputError(f"box {corners} lies outside the image of {image.width} x {image.height} pixels")
    marked = image.copy()
    inside = (max(left, 0), max(top, 0), min(right, image.width) - 1, min(bottom, image.height) - 1)
    # A box thinner than a pixel still gets a line.
    corner = (max(inside[2], inside[0]), max(inside[3], inside[1]))
    line = max(1, round(max(image.size) / 100))
    ImageDraw.Draw(marked).rectangle((*inside[:2], *corner), outline=(255, 0, 0), width=line)
    return marked
