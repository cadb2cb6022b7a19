"""Pictures that can be judged."""

from __future__ import annotations

from rewards.errors import InputError
from rewards.images import Picture
from rewards.judges.pictures import is_black
from rewards.judges.pictures import picture as judgeable_picture


def usable_picture(image: object, index: int) -> Picture:
    """A picture for a judge, read and hashed once for both; a tensor stays on its device.

    Raises:
        InputError: It cannot be read, holds NaN, or is black throughout (what a half-precision VAE makes of an
            overflow).
    """
    read = judgeable_picture(image, index, keep_tensors=True)
    if is_black(read):
        raise InputError(f"image {index} is black throughout")
    return read
