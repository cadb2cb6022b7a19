"""How a judge and its client write pictures and results as JSON: no pickle, nothing executable."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence

import torch
from PIL import Image

from rewards.errors import InputError
from rewards.runs.files import Json

PROTOCOL = 1
"""Counted up with every change that an older client or server would misread."""


def write_picture(picture: Image.Image) -> str:
    """A picture as base64 of a PNG: without loss, so that a judge behind a server sees what a local one would see."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def read_picture(text: str, index: int) -> bytes:
    """The encoded bytes of a picture; the judge decodes them itself and abstains where they are broken.

    Raises:
        InputError: `text` is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InputError(f"image {index} is not base64: {error}") from error


def write_numbers(values: torch.Tensor) -> list[Json]:
    """A vector as a list: NaN is None, minus infinity is the string "-inf" (JSON has neither).

    Example:
        >>> write_numbers(torch.tensor([0.5, float("nan"), float("-inf")]))
        [0.5, None, '-inf']
    """
    return [None if math.isnan(value) else "-inf" if value == -math.inf else value for value in values.tolist()]


def read_numbers(values: Sequence[Json]) -> torch.Tensor:
    """The float32 vector that :func:`write_numbers` wrote.

    Raises:
        InputError: An entry is neither a number nor what stands for one.

    Example:
        >>> read_numbers([0.5, None, "-inf"])
        tensor([0.5000,    nan,   -inf])
    """
    return torch.tensor([_number(value) for value in values], dtype=torch.float32)


def _number(value: Json) -> float:
    if value is None:
        return math.nan
    if value == "-inf":
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{value!r} is not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise InputError("a number is too large") from error
