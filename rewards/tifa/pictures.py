"""Pictures that can be judged."""

from __future__ import annotations

import torch
from PIL import Image

from rewards.errors import InputError
from rewards.judges.pictures import picture as judgeable_picture


def usable_picture(image: object, index: int) -> Image.Image | torch.Tensor:
    """A picture for a judge; a tensor stays on its device.

    Raises:
        InputError: It cannot be read, holds NaN, or is black throughout (what a half-precision VAE makes of an
            overflow).
    """
    pixels = judgeable_picture(image, index, keep_tensors=True).pixels
    black = not pixels.any() if isinstance(pixels, torch.Tensor) else pixels.getextrema() == ((0, 0),) * 3
    if black:
        raise InputError(f"image {index} is black throughout")
    return pixels
