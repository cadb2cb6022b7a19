"""What stands in a job's folder beside its shards, and whether the folder is a job's at all."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rewards.errors import InputError
from rewards.jobs.locks import LOCK
from rewards.runs.files import Json, write_json
from rewards.runs.identity import content_hash

FORMAT = 2
MANIFEST = "manifest.json"
INPUT = "input"
OWN_FILES = frozenset({MANIFEST, "index.sqlite", "index.new", "shards", INPUT, LOCK})
"""What a job keeps in its folder (`input/` where it makes its own rows); a start that was cut short leaves some."""


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


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put a job's manifest in its place by one rename."""
    write_json(folder / MANIFEST, {"format": FORMAT, **asdict(manifest)})


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
        identity = Identity(**content["identity"])
        if (content["format"], identity.task) == (FORMAT, task):
            return Manifest(identity, str(content["path"]), int(content["items"]))
    except (ValueError, TypeError, KeyError):
        pass
    raise InputError(f"{path} was not written by a job of {task}; give another folder")


def _refuse_foreign(folder: Path) -> None:
    # Taken for finished work, a stranger's shards would come out as results; and nobody's files are mixed with ours.
    shards = list((folder / "shards").glob("*.jsonl"))
    strange = sorted(path.name for path in folder.glob("*") if path.name not in OWN_FILES and not _temporary(path))
    if shards or strange:
        raise InputError(
            f"{folder} holds {(strange or ['shards'])[0]} without {MANIFEST} of a job; give a new or empty folder"
        )


def _temporary(path: Path) -> bool:
    return path.name.startswith(f".{MANIFEST}.") and path.suffix == ".tmp"
