"""What a checkpoint in a folder holds, as one digest: a folder has no revision that would change with its weights."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_KINDS = frozenset(".safetensors .bin .pt .pth .gguf .json .jinja .txt .model .bpe .tiktoken .spm .vocab .py".split())
"""Suffixes of what `from_pretrained` reads: weights, configs, templates, vocabularies, code."""

_DEEPEST = 2
"""Folders within folders that are looked into: `1_Pooling/config.json`, `unet/…`, and one more."""


def stamps(folder: str | Path) -> dict[str, list[int]]:
    """Name -> size, time of the last change and i-node of every file of a checkpoint: what tells that it changed."""
    found = {}
    for file in sorted(_files(Path(folder), _DEEPEST)):
        at = file.stat()
        found[file.relative_to(folder).as_posix()] = [at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino]
    return found


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """What counts in a folder; hidden folders and a trainer's own checkpoints are none of a model's."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            if depth and not entry.name.startswith((".", "checkpoint-")):
                yield from _files(entry, depth - 1)
        elif entry.suffix.lower() in _KINDS and entry.is_file():
            yield entry


def content_of_folder(folder: str | Path) -> str:
    """Digest of the names and contents of a checkpoint's files.

    A file is read once as long as its size, its time of change and its i-node stay as they are (the digests are kept in
    `$XDG_CACHE_HOME/rewards/checkpoints.json`); 15 GB take about as long to read as to load.

    Returns:
        32 hexadecimal digits (BLAKE2b).

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "config.json").write_text("{}")
        >>> before = content_of_folder(folder)
        >>> _ = (folder / "config.json").write_text("[]")
        >>> content_of_folder(folder) == before
        False
    """
    folder = Path(folder).resolve()
    known = _remembered()
    now = {str(folder / name): stamp for name, stamp in stamps(folder).items()}
    fresh = [path for path, stamp in now.items() if known.get(path, (None, ""))[0] != stamp]
    with ThreadPoolExecutor(4) as pool:
        read = dict(zip(fresh, pool.map(_digest, fresh)))
    digests = {path: read.get(path) or known[path][1] for path in now}
    if fresh:
        _remember({path: (now[path], digests[path]) for path in fresh if _settled(now[path])})
    listed = [[os.path.relpath(path, folder), digest] for path, digest in sorted(digests.items())]
    return hashlib.blake2b(json.dumps(listed).encode(), digest_size=16).hexdigest()


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _settled(stamp: list[int]) -> bool:
    """Whether a file is old enough for a later change of it to get another time (file systems count in ticks)."""
    return time.time_ns() - max(stamp[1], stamp[2]) > 2_000_000_000


def _memory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewards" / "checkpoints.json"


def _remembered() -> dict[str, tuple[list[int], str]]:
    try:
        loaded = json.loads(_memory().read_text("utf-8"))
        return {str(path): (list(stamp), str(digest)) for path, (stamp, digest) in loaded.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # not there yet, or damaged: everything is read again


def _remember(new: dict[str, tuple[list[int], str]]) -> None:
    file = _memory()
    beside = file.with_suffix(f".{os.getpid()}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = {path: entry for path, entry in _remembered().items() if Path(path).exists()}
        beside.write_text(json.dumps(kept | new), "utf-8")
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)  # no home to write to: the files are read again next time
