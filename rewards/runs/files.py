"""JSON files, for the whole package: one reader of JSON lines, one append, one write-then-rename.

What a killed process leaves is whole lines, and at most one cut-off last line, which readers of growing files leave out
and the next append removes. A file that is replaced is seen old or new, never half. JSON here is strict: NaN and
infinities are written as null by :func:`finite_or_none` or not at all.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from rewards.errors import InputError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What can be written as JSON."""
Row: TypeAlias = dict[str, Any]
"""A JSON object as it was read: each field is checked by who reads it."""


def read_lines(path: str | Path, *, growing: bool = False) -> list[Row]:
    """The objects of a file of JSON lines, as :func:`numbered_lines` gives them, without their numbers."""
    return [row for _, row in numbered_lines(path, growing=growing)]


def numbered_lines(path: str | Path, *, growing: bool = False) -> Iterator[tuple[int, Row]]:
    """The objects of a file of JSON lines with their line numbers, one at a time; empty lines are passed over.

    Args:
        path: The file, UTF-8 with or without a byte order mark.
        growing: The file may be being written, or its writer was killed: a last line without its newline that is not
            JSON is left out. A finished file must be whole.

    Raises:
        InputError: A line that is not a JSON object, with file and line.
        OSError: The file cannot be read.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.jsonl"
        >>> append_line(path, {"id": 1})
        >>> list(numbered_lines(path))
        [(1, {'id': 1})]
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            line = line.removeprefix(BOM_UTF8) if number == 1 else line
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8"))  # bytes would be guessed at, and half characters passed through
            except (ValueError, RecursionError) as error:
                if growing and not line.endswith(b"\n"):
                    return
                raise InputError(f"{path}, line {number}: not JSON: {error}") from error
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
            yield number, row


def append_line(path: str | Path, row: Mapping[str, object]) -> None:
    """Append one object to a file of JSON lines; see :func:`append_lines`."""
    append_lines(path, [row])


def append_lines(path: str | Path, rows: Iterable[Mapping[str, object]], *, durable: bool = False) -> None:
    """Append objects to a file of JSON lines in a single write; the file is made where absent.

    What a killed writer left unfinished at the end is completed, where it is whole, or removed.

    Args:
        path: The file.
        rows: JSON values only.
        durable: Wait until the disk has them (a crash of the machine, not only of the process, loses nothing).

    Raises:
        ValueError, TypeError: A value that JSON does not have (NaN, an object).
        OSError: The file cannot be written.
    """
    content = b"".join(map(encode_line, rows))
    with open(path, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                drop_unfinished_line(path)
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def encode_line(row: Mapping[str, object]) -> bytes:
    r"""One object as a line of UTF-8; lone surrogates, which UTF-8 does not have, stay escaped.

    Example:
        >>> encode_line({"text": "é", "id": "\ud800"})
        b'{"text": "\\u00e9", "id": "\\ud800"}\n'
    """
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False).encode("ascii") + b"\n"


def is_whole_text(text: str) -> bool:
    r"""Whether a text can be written to any file: it holds no half of a character.

    Example:
        >>> is_whole_text("\U0001f600"), is_whole_text("\ud83d")
        (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_lines(text: str) -> list[str]:
    r"""The lines of a text file. Only line ends part them: U+2028 and form feeds may stand inside a line.

    Example:
        >>> text_lines("one\r\ntwo \u2028 still two\n")
        ['one', 'two \u2028 still two']
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def drop_unfinished_line(path: str | Path) -> None:
    """Remove what stands behind the last newline of a file."""
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - 65_536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                file.truncate(start + newline + 1)
                return
            end = start
        file.truncate(0)


def keep_lines(path: str | Path, keep: Callable[[Row], bool]) -> None:
    """Rewrite a growing file of JSON lines with the rows that `keep` accepts; nothing where there is no file."""
    if Path(path).exists():
        write_lines(path, [row for row in read_lines(path, growing=True) if keep(row)])


def write_lines(path: str | Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Replace a file by JSON lines in one step."""
    write_whole(path, map(encode_line, rows))


def write_whole(path: str | Path, content: str | bytes | Iterable[bytes]) -> None:
    """Replace a file in one step: a reader, or a kill, sees the old content or the new, never a half.

    Args:
        path: The file; its folder exists.
        content: Text (UTF-8), bytes, or pieces of bytes.
    """
    if isinstance(content, str):
        content = content.encode("utf-8")
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` for whoever writes a file; it takes the place of `path` when all went well.

    Where `path` is a link, the file that it leads to is replaced, and the link stays.

    Raises:
        InputError: `path` is a device or a pipe, which must not be replaced by a file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "scores.txt"
        >>> with replacing(path) as temporary:
        ...     _ = temporary.write_text("5")
        >>> path.read_text()
        '5'
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path} is no regular file; name a file to write")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | Path, value: Json) -> None:
    """Replace a file by one JSON value, indented, in one step."""
    write_whole(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: str | Path) -> Any:
    """The JSON value that a file holds.

    Raises:
        InputError: The file is not JSON.
        OSError: It cannot be read.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error


def finite_or_none(value: object) -> Any:
    """Replace NaN and infinities, anywhere inside mappings and lists, by None: JSON has no NaN.

    Example:
        >>> finite_or_none({"mean": float("nan"), "parts": (1.0, 2)})
        {'mean': None, 'parts': [1.0, 2]}
    """
    if isinstance(value, Mapping):
        return {key: finite_or_none(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
