"""Requests to a judge: read within limits, their pictures decoded within a bound on memory."""

from __future__ import annotations

import binascii
import ctypes.util
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict, Field

from rewards.errors import InputError
from rewards.images import Picture, size_of_encoded, to_pil
from rewards.judges.base import DEFAULT_RATINGS
from rewards.judges.pictures import read_picture

decoding = ThreadPoolExecutor(1, thread_name_prefix="decode")
"""Pictures are decoded one after the other: a large one takes many times its size while it is decoded."""

_held: WeakValueDictionary[bytes, Picture] = WeakValueDictionary()
"""Pictures of requests that are not answered yet, by a digest of what was sent: requests about the same picture, each
of another caller, decode and hold it once."""


class Refused(Exception):
    """A request that is not answered.

    Attributes:
        status: The HTTP status.
        detail: What is wrong with it.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Row(BaseModel):
    """One row of a request; what is read beside the prompt depends on the ability."""

    model_config = ConfigDict(extra="forbid")
    pictures: list[str] = Field(min_length=1)
    prompt: str
    choices: list[str] = []
    rating: str = ""


class Body(BaseModel):
    """A request."""

    model_config = ConfigDict(extra="forbid")
    pictures: dict[str, str]
    rows: list[Row]
    ratings: list[str] = list(DEFAULT_RATINGS)


@dataclass(frozen=True)
class Limits:
    """What a request may cost.

    Attributes:
        bytes: Its size.
        rows: Its rows.
        pixels: Pixels of a picture; rows about a larger one abstain.
        all_pixels: Pixels of all of its pictures together.
    """

    bytes: int = 64_000_000
    rows: int = 10_000
    pixels: int = 16_777_216
    all_pixels: int = 33_554_432


async def read_bytes(stream: AsyncIterator[bytes], limits: Limits, hold: Callable[[int], None]) -> bytearray:
    """The whole request, counted while it arrives: the length in the header may lie, or be missing.

    Args:
        stream: Its parts.
        limits: What it may cost.
        hold: Called with the bytes so far; it raises where there is no room for them beside other requests.

    Raises:
        Refused: It is too large.
    """
    received = bytearray()
    async for part in stream:
        received += part
        if len(received) > limits.bytes:
            raise Refused(413, f"the request is larger than {limits.bytes} bytes")
        hold(len(received))
    return received


def read_rows(received: bytearray, limits: Limits) -> tuple[Body, list[list[Picture] | InputError]]:
    """The request, and each row's pictures, or why they cannot be used.

    Args:
        received: The request; emptied on the way, so that it is not held beside its pictures.
        limits: What it may cost.

    Raises:
        Refused: It is no request, or costs too much.
    """
    try:
        body = Body.model_validate_json(received)
    except ValueError as error:
        raise Refused(422, f"not a request: {str(error)[:500]}") from error
    received.clear()
    if len(body.rows) > limits.rows:
        raise Refused(413, f"the request has {len(body.rows)} rows; at most {limits.rows} are taken")
    named = {key for row in body.rows for key in row.pictures}
    if missing := named - set(body.pictures):
        raise Refused(422, f"rows name pictures that are not there: {sorted(missing)[:3]}")
    if len(named) > limits.rows:
        raise Refused(413, f"the request has {len(named)} pictures; at most {limits.rows} are taken")
    body.pictures = {key: text for key, text in body.pictures.items() if key in named}
    pictures = _decoded(body, limits)
    return body, [_of_row(row, at, pictures) for at, row in enumerate(body.rows)]


def _decoded(body: Body, limits: Limits) -> dict[str, Picture | InputError]:
    """The pictures of a request; their sizes are added up from their headers before any of them is decoded."""
    waiting: dict[str, tuple[bytes, bytes | Picture | InputError]] = {}
    pixels = 0
    for index, key in enumerate(list(body.pictures)):
        text = body.pictures.pop(key)
        digest = blake2b(text.encode()).digest()
        one = _held.get(digest) or _content(text, index)
        try:
            pixels += _pixels(one, limits)
            waiting[key] = digest, one
        except InputError as error:
            waiting[key] = digest, InputError(str(error))  # without its traceback, which would hold the picture
        if pixels > limits.all_pixels:
            raise Refused(413, f"the pictures have more than {limits.all_pixels:,} pixels in all; send them in parts")
    found: dict[str, Picture | InputError] = {}
    for key in list(waiting):
        digest, read = waiting.pop(key)
        try:
            found[key] = read if isinstance(read, InputError) else read_picture(read, 0, keep_tensors=False)
        except InputError as error:
            found[key] = InputError(str(error))
        if isinstance(picture := found[key], Picture):
            _held[digest] = picture
    return found


def _content(text: str, index: int) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(422, f"image {index} is not base64: {error}") from error


def _pixels(one: bytes | Picture, limits: Limits) -> int:
    """How many a picture has.

    Raises:
        InputError: It is none, or has more than are taken.
    """
    width, height = size_of_encoded(one) if isinstance(one, bytes) else to_pil(one).size
    if width * height > limits.pixels:
        raise InputError(f"it has {width}x{height} pixels; this server takes {limits.pixels:,} a picture")
    return width * height


def _of_row(row: Row, at: int, pictures: dict[str, Picture | InputError]) -> list[Picture] | InputError:
    found: list[Picture] = []
    for key in row.pictures:
        one = pictures[key]
        if isinstance(one, InputError):
            return InputError(f"image {at} cannot be used: {one}")
        found.append(one)
    return found


def give_memory_back() -> None:
    """Return to the system what the last requests took: glibc keeps freed blocks for ever, and large requests come in
    every size."""
    library = ctypes.util.find_library("c")
    trim = getattr(ctypes.CDLL(library), "malloc_trim", None) if library else None
    if trim is not None:
        trim(0)


def as_images(rows: Sequence[list[Picture]]) -> list[object]:
    """Rows as a judge takes them: a picture, or a list of several."""
    return [several[0] if len(several) == 1 else several for several in rows]
