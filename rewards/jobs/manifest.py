"""What stands in a job's folder beside its shards, and whether the folder is a job's at all.

The manifest is there before anything else: first as a mark of whose folder it is, then with what the job depends on.
What lies in a folder without one was made by somebody else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rewards.errors import InputError
from rewards.runs.files import Json, write_json
from rewards.runs.identity import content_hash
from rewards.runs.locks import LOCK

FORMAT = 3
MANIFEST = "manifest.json"
INPUT = "input"
OWN_FILES = (
    "shards/[0-9]*.jsonl", "shards/*.tmp", "shards", f"{INPUT}/pictures.jsonl", f"{INPUT}/questions.sqlite*",
    f"{INPUT}/*.tmp", INPUT, "index.sqlite", "index.new", f".{MANIFEST}.*.tmp", MANIFEST, LOCK,
)  # fmt: skip
"""What a job keeps in its folder (`input/` where it makes its own rows), in the order in which it is cleared away."""


@dataclass(frozen=True)
class Identity:
    """What the lines of a job depend on.

    Attributes:
        task: the kind of job.
        source_fingerprint: of the rows.
        settings, rewards: as JSON.
    """

    task: str
    source_fingerprint: str
    settings: Json
    rewards: Json

    @property
    def id(self) -> str:
        """16 hexadecimal digits that differ for jobs whose lines may differ."""
        return content_hash(asdict(self))[:16]


@dataclass(frozen=True)
class Manifest:
    """A job that has begun: its identity, where its rows are, and how many items they make."""

    identity: Identity
    path: str
    items: int


def mark_folder(folder: Path, task: str) -> None:
    """Say whose folder it is, before anything is put into it; the caller holds its lock."""
    if not (folder / MANIFEST).exists():
        write_json(folder / MANIFEST, {"format": FORMAT, "task": task})


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put a job's manifest in its place by one rename."""
    write_json(folder / MANIFEST, {"format": FORMAT, "task": manifest.identity.task, **asdict(manifest)})


def read_manifest(folder: Path, task: str) -> Manifest | None:
    """The manifest of the job in a folder, None where there is no job yet.

    Raises:
        InputError: the folder cannot hold a job: it is a file, or what is in it was made by something else.
    """
    path = folder / MANIFEST
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a folder for the job is needed")
    if not path.exists():
        _refuse_foreign(folder)
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["format"], content["task"]) == (FORMAT, task):
            if "identity" not in content:  # marked, and killed before it began
                return None
            return Manifest(Identity(**content["identity"]), str(content["path"]), int(content["items"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise InputError(f"{path} was not written by a job of {task}; give another folder")


def _refuse_foreign(folder: Path) -> None:
    # Taken for finished work, a stranger's shards would come out as results; and nobody's files are mixed with ours.
    if strange := sorted(path.name for path in folder.glob("*") if not _of_a_start(path)):
        raise InputError(f"{folder} holds {strange[0]} without {MANIFEST} of a job; give a new or empty folder")


def _of_a_start(path: Path) -> bool:
    """What a job that was killed before its mark may leave."""
    if path.name == LOCK:
        return path.is_file() and path.stat().st_size == 0
    return path.name.startswith(f".{MANIFEST}.") and path.suffix == ".tmp"
