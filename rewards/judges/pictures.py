"""Pictures as a judge takes them: RGB PIL images, or 8-bit tensors that stay on their device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import torch
from PIL import Image

from rewards.errors import InputError
from rewards.images import FLOAT_TOLERANCE, MAX_PIXELS, Picture, channel_axis, hash_of_pixels, is_tensor, to_pil

SMALLEST_SIDE = 28
"""Pictures with a shorter side are enlarged to it (pixels repeated): one patch of the usual encoders. Several
processors crash below it or refuse the resulting aspect ratio."""

_BLACK = ":0:0"
"""How the key of a black picture on an accelerator ends."""


def picture(image: object, index: int, *, keep_tensors: bool) -> Picture:
    """One usable picture from anything that :func:`rewards.images.to_pil` takes.

    Args:
        image: The user's image, or a :class:`Picture` that was made of it before and is returned as it is.
        index: Its row, named in errors.
        keep_tensors: Leave a torch tensor of three channels a tensor, rounded to 8 bits as the PIL path rounds it, so
            that both paths give the processor the same bytes.

    Raises:
        InputError: The image cannot be used.
    """
    read = read_picture(image, index, keep_tensors=keep_tensors)
    if isinstance(read.pixels, Image.Image):
        return replace(read, pixels=_enlarged(read.pixels))
    return replace(read, pixels=_enlarged_tensor(read.pixels))


def read_picture(image: object, index: int, *, keep_tensors: bool) -> Picture:
    """As :func:`picture`, in the size that the user gave."""
    if isinstance(image, Picture):
        return image if keep_tensors or image.form == "pil" else Picture(to_pil(image, index), image.key)
    if keep_tensors and _stays(image):
        (read,) = _read_tensors({index: image})
        if isinstance(read, InputError):
            raise read
        return read
    rgb = to_pil(image, index)
    return Picture(rgb, hash_of_pixels(rgb.width, rgb.height, rgb.tobytes()))


def read_at_once(images: Sequence[object]) -> list[object]:
    """The images, those on an accelerator as :class:`Picture` already: the host waits for it once, not once a picture.

    What cannot be used stays as it is, for whoever says so.
    """
    there = {at: image for at, image in enumerate(images) if _stays(image) and image.device.type != "cpu"}
    if len(there) < 2:
        return list(images)
    found = dict(zip(there, _read_tensors(there)))
    return [found[at] if isinstance(found.get(at), Picture) else image for at, image in enumerate(images)]


def is_black(read: Picture) -> bool:
    """Whether every pixel of a picture is 0; does not wait for an accelerator."""
    if isinstance(read.pixels, Image.Image):
        return read.pixels.getextrema() == ((0, 0),) * 3
    if read.pixels.device.type == "cpu":
        return not bool(read.pixels.any())
    return read.key.endswith(_BLACK)


def pictures_of_rows(
    images: Sequence[object], *, keep_tensors: bool, read: Callable[..., Picture] = picture
) -> Iterator[tuple[Picture, ...] | InputError]:
    """The pictures of each row, or why the row has none that can be used.

    A picture is converted and hashed once a call: callers repeat one object for all that they ask about it.

    Args:
        images: One entry a row: an image, or a list of images.
        keep_tensors: As in :func:`picture`.
        read: :func:`picture`, or :func:`read_picture` for one who hands the pictures on.
    """
    distinct = {id(entry): entry for entry in images}
    if keep_tensors:
        distinct = dict(zip(distinct, read_at_once(list(distinct.values()))))
    seen: dict[int, tuple[Picture, ...] | InputError] = {}
    for index, entry in enumerate(images):
        if id(entry) not in seen:
            seen[id(entry)] = _pictures_of(distinct[id(entry)], index, keep_tensors, read)
        yield seen[id(entry)]


def takes_tensors(processor: Any) -> bool:
    """Whether a judge's processor prepares tensors as tensors, and so lets their gradient through."""
    image_processor = getattr(processor, "image_processor", None)
    return image_processor is not None and not type(image_processor).__name__.endswith("Pil")


def with_gradient(images: Sequence[object]) -> list[Picture]:
    """Pictures that carry their gradient into a judge's preprocessing; rows that hold the same tensor share one.

    Args:
        images: `(3, H, W)` floats in [0, 1].

    Raises:
        InputError: A picture is something else.
    """
    made: dict[int, Picture] = {}
    for index, image in enumerate(images):
        if id(image) not in made:
            if not (isinstance(image, torch.Tensor) and image.ndim == 3 and image.shape[0] == 3):
                raise InputError(f"image {index}: a gradient needs pictures as tensors (3, H, W) in [0, 1]")
            (read,) = _read_tensors({index: image})
            if isinstance(read, InputError):
                raise read
            assert isinstance(read.pixels, torch.Tensor)
            # Equal pictures stay two: each has a gradient of its own.
            pixels, source = _enlarged_tensor(read.pixels), _enlarged_tensor(255 * image.float())
            made[id(image)] = Picture(pixels, f"gradient {index}", source)
    return [made[id(image)] for image in images]


def straight_through(exact: Mapping[str, Any], smooth: Mapping[str, Any]) -> dict[str, Any]:
    """What a processor made of 8-bit pictures, with the gradient of what it made of the floats that they were.

    Args:
        exact: Made of the 8 bits.
        smooth: The same tensors, made of floats with a gradient.
    """
    return {
        name: value + (smooth[name] - smooth[name].detach())
        if isinstance(value, torch.Tensor) and smooth[name].requires_grad
        else value
        for name, value in exact.items()
    }


def _pictures_of(
    entry: object, index: int, keep_tensors: bool, read: Callable[..., Picture]
) -> tuple[Picture, ...] | InputError:
    entries: Sequence[object] = entry if isinstance(entry, (list, tuple)) else [entry]
    if not entries:
        return InputError(f"row {index} has no image")
    try:
        return tuple(read(image, index, keep_tensors=keep_tensors) for image in entries)
    except InputError as error:
        return InputError(str(error))  # without its traceback, which would hold the picture


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


def _stays(image: object) -> TypeGuard[torch.Tensor]:
    """Whether an image may remain a tensor: bytes or floats in three channels."""
    if not is_tensor(image) or image.ndim != 3 or 3 not in (image.shape[0], image.shape[-1]):
        return False
    return image.dtype == torch.uint8 or image.is_floating_point()


def _read_tensors(images: Mapping[int, torch.Tensor]) -> list[Picture | InputError]:
    """Pictures of tensors by their row; facts about those of one device come to the host in one copy."""
    read: list[Picture | InputError] = []
    waiting: dict[int, torch.Tensor] = {}
    for at, (index, image) in enumerate(images.items()):
        try:
            pixels, extremes = _eight_bits(image, f"image {index}")
        except InputError as error:
            read.append(error)
            continue
        read.append(Picture(pixels, ""))
        waiting[at] = torch.cat([extremes.double(), _sums(pixels).view(torch.float64)])
    # The sums travel as the bits of doubles, so that one copy brings both.
    facts = torch.stack(list(waiting.values())).cpu() if waiting else torch.empty(0, 4)
    for at, (low, high), sums in zip(waiting, facts[:, :2].tolist(), facts[:, 2:].view(torch.int64).tolist()):
        name, one = f"image {list(images)[at]}", read[at]
        assert isinstance(one, Picture) and isinstance(one.pixels, torch.Tensor)
        if not (low >= -FLOAT_TOLERANCE and high <= 1 + FLOAT_TOLERANCE):
            problem = f"in [{low:.4g}, {high:.4g}]; expected [0, 1]" if low <= high else "with NaN"
            read[at] = InputError(f"{name} is a float tensor {problem}")
        else:
            read[at] = Picture(one.pixels, _tensor_key(one.pixels, sums))
    return read


def _eight_bits(image: torch.Tensor, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor as uint8 `(3, H, W)`, and the least and the greatest value it had: to be in [0, 1] where it is float."""
    image = image.detach()
    if image.numel() == 0:
        raise InputError(f"{name} is empty: shape {tuple(image.shape)}")
    if channel_axis(image.shape, name) == 2:
        image = image.permute(2, 0, 1)
    if image.shape[1] * image.shape[2] > MAX_PIXELS:
        raise InputError(f"{name} has shape {tuple(image.shape)}; the limit is {MAX_PIXELS:,} pixels")
    if image.dtype == torch.uint8:
        return image.contiguous(), torch.zeros(2, device=image.device)
    if not image.is_floating_point():
        raise InputError(f"{name} has dtype {image.dtype}; expected uint8 or float in [0, 1]")
    image = image.float()
    extremes = torch.stack(image.aminmax())  # NaN and infinity show in them
    return (image.nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8).contiguous(), extremes


def _sums(pixels: torch.Tensor) -> torch.Tensor:
    """Two sums modulo 2^64 that only equal pixels of a size share, 0 for black ones; on the CPU pixels are hashed."""
    if pixels.device.type == "cpu":
        return torch.zeros(2, dtype=torch.int64)
    place = torch.arange(1, 2 * pixels.numel() + 1, device=pixels.device)
    # Odd factors as splitmix64 makes them; a picture's place in them is the same on every device.
    factors = place * -7046029254386353131
    factors = (factors ^ (factors >> 30)) * -4658895280553007687
    factors = (factors ^ (factors >> 27)) * -7723592293110705685
    return (pixels.flatten().long() * (factors | 1).view(2, -1)).sum(1)


def _tensor_key(pixels: torch.Tensor, sums: Sequence[int]) -> str:
    height, width = pixels.shape[1:]
    if pixels.device.type == "cpu":
        return hash_of_pixels(width, height, pixels.permute(1, 2, 0).contiguous().numpy().tobytes())
    return f"{width}x{height}:{sums[0]}:{sums[1]}"
