"""Pictures as a judge takes them: RGB PIL images, or 8-bit tensors that stay on their device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from PIL import Image

from rewards.errors import InputError
from rewards.images import FLOAT_TOLERANCE, MAX_PIXELS, channel_axis, to_pil

SMALLEST_SIDE = 28
"""Pictures with a shorter side are enlarged to it (pixels repeated): one patch of the usual encoders. Several
processors crash below it or refuse the resulting aspect ratio."""


class Picture(NamedTuple):
    """One picture and the key under which equal pictures meet.

    Attributes:
        pixels: An RGB PIL image, or a uint8 tensor `(3, H, W)` on any device.
        key: Equal for equal pixels; the picture's :func:`rewards.images.content_hash`, unless the tensor is on an
            accelerator, where two 64-bit sums are computed there instead of copying the picture off it.
    """

    pixels: Image.Image | torch.Tensor
    key: str

    @property
    def form(self) -> str:
        """`"tensor"` or `"pil"`: which preprocessing path the picture takes."""
        return "tensor" if isinstance(self.pixels, torch.Tensor) else "pil"


def picture(image: Any, index: int, *, keep_tensors: bool) -> Picture:
    """One usable picture from anything that :func:`rewards.images.to_pil` takes.

    Args:
        image: The user's image.
        index: Its row, named in errors.
        keep_tensors: Leave a torch tensor of three channels a tensor, rounded to 8 bits as the PIL path rounds it, so
            that both paths give the processor the same bytes.

    Raises:
        InputError: The image cannot be used.
    """
    if keep_tensors and isinstance(image, torch.Tensor) and image.ndim == 3 and 3 in (image.shape[0], image.shape[-1]):
        pixels = _eight_bits(image, f"image {index}")
        return Picture(_enlarged_tensor(pixels), _tensor_key(pixels))
    rgb = to_pil(image, index)
    return Picture(_enlarged(rgb), _key(rgb.width, rgb.height, rgb.tobytes()))


def pictures_of_row(entry: Any, index: int, *, keep_tensors: bool) -> tuple[Picture, ...]:
    """The pictures of one row: `entry` is one image, or a list of images."""
    entries: Sequence[Any] = entry if isinstance(entry, (list, tuple)) else [entry]
    if not entries:
        raise InputError(f"row {index} has no image")
    return tuple(picture(image, index, keep_tensors=keep_tensors) for image in entries)


def _enlarged(image: Image.Image) -> Image.Image:
    if min(image.size) >= SMALLEST_SIDE:
        return image
    size = (max(image.width, SMALLEST_SIDE), max(image.height, SMALLEST_SIDE))
    return image.resize(size, Image.Resampling.NEAREST)


def _enlarged_tensor(pixels: torch.Tensor) -> torch.Tensor:
    height, width = pixels.shape[1:]
    if min(height, width) >= SMALLEST_SIDE:
        return pixels
    size = (max(height, SMALLEST_SIDE), max(width, SMALLEST_SIDE))
    # "nearest-exact" picks the same source pixels as Pillow's NEAREST; "nearest" does not.
    return torch.nn.functional.interpolate(pixels[None], size=size, mode="nearest-exact")[0]


def _eight_bits(image: torch.Tensor, name: str) -> torch.Tensor:
    image = image.detach()
    if image.numel() == 0:
        raise InputError(f"{name} is empty: shape {tuple(image.shape)}")
    if channel_axis(image.shape, name) == 2:
        image = image.permute(2, 0, 1)
    if image.shape[1] * image.shape[2] > MAX_PIXELS:
        raise InputError(f"{name} has shape {tuple(image.shape)}; the limit is {MAX_PIXELS:,} pixels")
    if image.dtype == torch.uint8:
        return image.contiguous()
    if not image.is_floating_point():
        raise InputError(f"{name} has dtype {image.dtype}; expected uint8 or float in [0, 1]")
    image = image.float()
    low, high = torch.stack(image.aminmax()).tolist()  # one copy of two numbers; NaN and infinity show in them
    if not (low >= -FLOAT_TOLERANCE and high <= 1 + FLOAT_TOLERANCE):
        problem = f"in [{low:.4g}, {high:.4g}]; expected [0, 1]" if low <= high else "with NaN"
        raise InputError(f"{name} is a float tensor {problem}")
    return (image.clamp(0, 1) * 255).round().to(torch.uint8).contiguous()


def _tensor_key(pixels: torch.Tensor) -> str:
    height, width = pixels.shape[1:]
    if pixels.device.type == "cpu":
        return _key(width, height, pixels.permute(1, 2, 0).contiguous().numpy().tobytes())
    flat = pixels.flatten().long() + 1
    # Random odd 64-bit factors, the same for every picture of a size: sums modulo 2^64 that only equal pixels share.
    generator = torch.Generator(device=pixels.device).manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (2, flat.numel()), generator=generator, device=pixels.device)
    return f"{width}x{height}:" + ":".join(str(value) for value in (flat * (2 * factors + 1)).sum(1).tolist())


def _key(width: int, height: int, rgb: bytes) -> str:
    digest = hashlib.blake2b(f"{width}x{height}:".encode(), digest_size=16)
    digest.update(rgb)
    return digest.hexdigest()
