"""Anything that a user calls an image -> one RGB picture, or an error that names it.

A wrong guess here (a float picture in [0, 255], a transparent picture on black, a sideways photograph) changes every
score after it without a trace, so whatever is ambiguous is refused instead of guessed.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
from PIL import Image, ImageOps

from rewards.errors import InputError

if TYPE_CHECKING:
    import torch

FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
"""Formats in which a picture may be encoded. Pillow would take some forty more, EPS among them, which it hands to
Ghostscript: nothing that a stranger sends may start another program."""

MAX_PIXELS = 89_478_485
"""Largest picture that is decoded, in pixels: Pillow's own limit against decompression bombs (256 MB as RGB)."""

FLOAT_TOLERANCE = 1e-3
"""How far a float picture may leave [0, 1]; rounding in half precision does, a picture in [0, 255] or [-1, 1] does
not."""

_CHANNELS = (1, 3, 4)
_STRIP = 256


@dataclass(frozen=True)
class Picture:
    """A picture that was read and hashed before: wherever an image is taken, it passes without being read again.

    Attributes:
        pixels: An RGB PIL image, or a uint8 tensor `(3, H, W)` on any device.
        key: Equal for equal pixels; the picture's :func:`content_hash`, unless the tensor is on an accelerator, where
            two 64-bit sums are computed there instead of copying the picture off it.
        source: Where a gradient to the picture is wanted: floats `(3, H, W)` in [0, 255] that carry it, of which
            `pixels` are the 8 bits.
    """

    pixels: Image.Image | torch.Tensor
    key: str
    source: torch.Tensor | None = None

    @property
    def form(self) -> str:
        """`"tensor"` or `"pil"`: which preprocessing path the picture takes."""
        return "pil" if isinstance(self.pixels, Image.Image) else "tensor"


def to_pil(image: object, index: int | None = None) -> Image.Image:
    """Turn one image into an RGB :class:`PIL.Image.Image`.

    Args:
        image: A PIL image of any mode (transparency is laid on white, EXIF rotation applied, 16-bit greys scaled, `F`
            taken as [0, 1]); a path; encoded bytes
            in one of :data:`FORMATS`; a :class:`Picture`; a dict `{"bytes": ..., "path": ...}` as `datasets` stores
            it; or a tensor or array `(H, W)`, `(C, H, W)` or `(H, W, C)` with C in 1, 3, 4: uint8 (0-255),
            uint16 or int32, bool, or float in [0, 1]. Integers wider than 8 bits that came from no file (also PIL's `I`
            and `I;16`) are 0-255 where no value of the picture is larger, else 0-65535.
        index: Position of the image in the caller's list, named in the error.

    Returns:
        A loaded picture of mode RGB. A tensor's values are rounded to 8 bits.

    Raises:
        InputError: The image is empty, too large, broken, missing, holds NaN or infinity, lies outside its range, or
            its axes could be read in two ways.

    Example:
        >>> to_pil(np.zeros((2, 5, 3), dtype=np.uint8)).size
        (5, 2)
    """
    name = "the image" if index is None else f"image {index}"
    if isinstance(image, Picture):
        if isinstance(image.pixels, Image.Image):
            return image.pixels
        image = image.pixels
    if isinstance(image, dict) and {"bytes", "path"} & set(image):
        image = image["bytes"] if image.get("bytes") is not None else image.get("path")
    if isinstance(image, Image.Image):
        return _from_pil(image, name)
    if isinstance(image, (str, os.PathLike)):
        return _from_path(image, name)
    if isinstance(image, (bytes, bytearray, memoryview)):
        return _open(io.BytesIO(image), f"{name} ({len(image)} bytes)")
    array = _as_numpy(image)
    if array is None:
        raise InputError(
            f"{name} is a {type(image).__name__}; expected a PIL image, a path, encoded bytes, or a tensor or array"
        )
    return Image.fromarray(_array_to_rgb(array, name), "RGB")


def to_pil_list(images: object) -> list[Image.Image]:
    """Turn a list of images, or one batched tensor or array `(N, C, H, W)` or `(N, H, W, C)`, into RGB pictures.

    Raises:
        InputError: `images` is a single image or an unbatched array, or one of its images is refused by :func:`to_pil`;
            the message names the index.

    Example:
        >>> len(to_pil_list(np.zeros((4, 8, 8, 3), dtype=np.uint8)))
        4
    """
    return [to_pil(image, index) for index, image in enumerate(unbatch(images))]


def unbatch(images: object) -> list[object]:
    """Split a batched tensor or array into its images; a list of images (or another sequence:
    a tuple, a column of a data set) is returned as a list, unconverted.

    Raises:
        InputError: `images` is neither.

    Example:
        >>> unbatch(["a.png", "b.png"])
        ['a.png', 'b.png']
    """
    if (listed := as_list(images)) is not None:
        return listed
    if isinstance(images, np.ndarray) or is_tensor(images):
        if images.ndim != 4:
            shape = tuple(images.shape)
            raise InputError(f"expected images of shape (N, C, H, W) or (N, H, W, C), or a list of images; got {shape}")
        return [images[i] for i in range(images.shape[0])]
    raise InputError(f"expected a list of images or a batched array; got one {type(images).__name__}")


def as_list(values: object) -> list[Any] | None:
    """Anything that lists values one after the other, as a list: a sequence, a column of pandas (by place, whatever its
    labels) or `datasets`, an array or tensor of one dimension. None for a single thing: a text, bytes, a picture.

    Example:
        >>> as_list(np.array(["a", "b"])), as_list(("a",)), as_list("a")
        (['a', 'b'], ['a'], None)
    """
    if isinstance(values, np.ndarray) or is_tensor(values):
        return values.tolist() if values.ndim == 1 else None
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping, Image.Image)):
        return None
    if isinstance(values, Sequence):
        return list(values)
    # A pandas Series or Index is no Sequence by name; what only can be walked through once, or in no order, is refused.
    listed = hasattr(values, "__len__") and hasattr(values, "__getitem__") and getattr(values, "ndim", 1) == 1
    return list(values) if listed and isinstance(values, Iterable) else None


def content_hash(image: object) -> str:
    """Hash of a picture's size and RGB values: equal for the same picture as file, array or PIL image.

    Returns:
        32 hexadecimal digits (BLAKE2b).

    Raises:
        InputError: As :func:`to_pil`.

    Example:
        >>> content_hash(np.zeros((2, 5, 3), dtype=np.uint8)) == content_hash(Image.new("RGB", (5, 2)))
        True
    """
    picture = to_pil(image)
    return hash_of_pixels(picture.width, picture.height, picture.tobytes())


def hash_of_pixels(width: int, height: int, rgb: bytes) -> str:
    """The :func:`content_hash` of a picture whose RGB values are known, a byte each, row by row."""
    digest = hashlib.blake2b(f"{width}x{height}:".encode(), digest_size=16)
    digest.update(rgb)
    return digest.hexdigest()


def is_tensor(image: object) -> TypeGuard[torch.Tensor]:
    """Whether something is a torch tensor, without importing torch."""
    return type(image).__module__.split(".")[0] == "torch" and hasattr(image, "detach")


def size_of_encoded(data: bytes) -> tuple[int, int]:
    """Width and height that an encoded picture claims; nothing is decoded.

    Raises:
        InputError: It is no picture in one of :data:`FORMATS`.
    """
    with _opened(io.BytesIO(data), f"a picture of {len(data)} bytes") as image:
        return image.size


@cache
def _formats() -> tuple[str, ...]:
    Image.init()  # the plugins of this installation: AVIF and JPEG 2000 are not always among them
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _from_path(path: str | os.PathLike[str], name: str) -> Image.Image:
    where = f"{name} ({os.fspath(path)[:200]!r})"
    try:
        exists = Path(path).is_file()
    except (OSError, ValueError) as error:  # a name with a null byte, or far too long
        raise InputError(f"{where} is not a usable path: {error}") from error
    if not exists:
        raise InputError(f"{where} does not exist as a file")
    return _open(path, where)


def _open(source: str | os.PathLike[str] | IO[bytes], name: str) -> Image.Image:
    with _opened(source, name) as image:
        return _from_pil(image, name, from_file=True)


def _opened(source: str | os.PathLike[str] | IO[bytes], name: str) -> Image.Image:
    try:
        with warnings.catch_warnings():
            # Pillow warns between once and twice its limit; _from_pil refuses there.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(source, formats=_formats())
    except Exception as error:  # decoders raise almost anything (struct.error, SyntaxError, ...) on hostile bytes
        raise InputError(f"{name} cannot be read as a picture: {error}") from error


def _from_pil(image: Image.Image, name: str, from_file: bool = False) -> Image.Image:
    if image.width < 1 or image.height < 1:
        raise InputError(f"{name} is empty ({image.width}x{image.height} pixels)")
    if image.width * image.height > MAX_PIXELS:
        raise InputError(f"{name} has {image.width}x{image.height} pixels; the limit is {MAX_PIXELS:,} in all")
    try:
        sixteen_bits = image.format is not None
        if from_file:
            ImageOps.exif_transpose(image, in_place=True)  # nobody else has it: without a copy where it is upright
        else:
            image = ImageOps.exif_transpose(image)
        return _to_rgb(image, name, sixteen_bits)
    except InputError:
        raise
    except Exception as error:  # files are decoded here at the latest: truncated data, bad checksums, broken EXIF
        raise InputError(f"{name} cannot be decoded: {error}") from error


def _to_rgb(image: Image.Image, name: str, sixteen_bits: bool) -> Image.Image:
    mode = image.mode
    if mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image if type(image) is Image.Image else image.copy()
    if mode == "I" or mode.startswith("I;16"):
        # Sixteen-bit greyscale files open as one of these; Image.convert would clip at 255 and give a white picture.
        values = np.asarray(image)
        return Image.fromarray(_wide_to_8(values, f"{name} has mode {mode}", sixteen_bits), "L").convert("RGB")
    if mode == "F":
        return Image.fromarray(_array_to_rgb(np.asarray(image), name), "RGB")
    if mode == "LAB":
        from PIL import ImageCms

        transform = ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")
        return cast(Image.Image, ImageCms.applyTransform(image, transform))
    if mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _on_white(image.convert("LA") if mode == "La" else image)
    return image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    """A transparent picture on white, strip by strip: whole copies with an alpha channel take four times its size."""
    laid = Image.new("RGB", image.size)
    for top in range(0, image.height, _STRIP):
        strip = image.crop((0, top, image.width, min(top + _STRIP, image.height))).convert("RGBA")
        white = Image.new("RGBA", strip.size, (255, 255, 255, 255))
        laid.paste(Image.alpha_composite(white, strip).convert("RGB"), (0, top))
    return laid


def _as_numpy(image: object) -> np.ndarray | None:
    if isinstance(image, np.ndarray):
        return image
    if is_tensor(image):
        tensor = image.detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.float()  # numpy has no bfloat16
        return tensor.numpy()
    return None


def _array_to_rgb(array: np.ndarray, name: str) -> np.ndarray:
    pixels = _to_uint8(_channels_last(array, name), name)
    if pixels.shape[-1] == 1:
        return np.repeat(pixels, 3, axis=-1)
    if pixels.shape[-1] == 4:
        alpha = pixels[..., 3:].astype(np.float32) / 255
        pixels = np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return np.ascontiguousarray(pixels)


def _channels_last(array: np.ndarray, name: str) -> np.ndarray:
    shape = array.shape
    if array.size == 0:
        raise InputError(f"{name} is empty: shape {shape}")
    if array.ndim == 2:
        array = array[..., None]
    elif array.ndim == 3:
        array = array if channel_axis(shape, name) == 2 else np.moveaxis(array, 0, -1)
    else:
        raise InputError(f"{name} has shape {shape}; expected (H, W), (C, H, W) or (H, W, C)")
    if array.shape[0] * array.shape[1] > MAX_PIXELS:
        raise InputError(f"{name} has shape {shape}; the limit is {MAX_PIXELS:,} pixels")
    return array


def channel_axis(shape: Sequence[int], name: str) -> int:
    """Which axis of an image of three axes holds the channels: 0 or 2.

    Raises:
        InputError: Neither or both could.

    Example:
        >>> channel_axis((3, 32, 32), "the image")
        0
    """
    first, last = shape[0] in _CHANNELS, shape[-1] in _CHANNELS
    if first and last:
        raise InputError(
            f"{name} has shape {tuple(shape)}, which could be (C, H, W) or (H, W, C); pass a PIL image or another size"
        )
    if not first and not last:
        raise InputError(f"{name} has shape {tuple(shape)}; expected 1, 3 or 4 channels on the first or the last axis")
    return 0 if first else 2


def _to_uint8(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if array.dtype in (np.uint16, np.int32):  # Pillow's I;16 and I
        return _wide_to_8(array, f"{name} has dtype {array.dtype}", sixteen_bits=False)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"{name} has dtype {array.dtype}; expected uint8, uint16, int32, bool, or float in [0, 1]")
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN or infinity in {int((~np.isfinite(array)).sum())} of {array.size} values")
    low, high = float(array.min()), float(array.max())
    if low < -FLOAT_TOLERANCE or high > 1 + FLOAT_TOLERANCE:
        raise InputError(f"{name} is a float array in [{low:.4g}, {high:.4g}]; expected [0, 1]")
    return np.rint(array.clip(0, 1) * 255).astype(np.uint8)


def _wide_to_8(values: np.ndarray, name: str, sixteen_bits: bool) -> np.ndarray:
    """Integers wider than 8 bits. A file says that they have 16; in memory they are read by their range: 0-255 where no
    value is larger (made by convert("I"), black if scaled), else 0-65535."""
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise InputError(f"{name} and values {low} to {high}; expected 0 to 65535 (16 bits)")
    return values.astype(np.uint8) if high <= 255 and not sixteen_bits else _grey16_to_8(values)


def _grey16_to_8(values: np.ndarray) -> np.ndarray:
    # The nearest of 256 greys, as 65535 = 255 x 257; in floating point it would take eight times the memory.
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
