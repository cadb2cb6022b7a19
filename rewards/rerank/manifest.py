"""What the result of a job depends on, and how a change of it is named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.rerank.settings import RerankSettings, RewardSettings, reward_identity


def identities(settings: RerankSettings, rewards: tuple[Any, Any]) -> dict[str, Any]:
    """Settings, judges, prompt hashes and fingerprints of questions of the reward and the audit, as JSON values."""

    def described(of: RewardSettings | None, reward: Any) -> Any:
        return None if of is None else reward_identity(of, reward)

    both = {"reward": described(settings.reward, rewards[0]), "audit": described(settings.audit, rewards[1])}
    return dict(json.loads(json.dumps(both, default=str)))


def known_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the job in a folder, None where there is no job yet.

    Raises:
        InputError: the folder cannot hold a job: it is a file, or what is in it was made by something else.
    """
    path = folder / "manifest.json"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a folder for the job is needed")
    if not path.exists():
        # Taken for finished work, a stranger's shards would come out as ranks.
        if any((folder / "shards").glob("*.jsonl")):
            raise InputError(f"{folder} holds shards without manifest.json; give another folder")
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if {"format", "source", "settings", "rewards"} <= manifest.keys():
            return dict(manifest)
    except (ValueError, AttributeError):
        pass
    raise InputError(f"{path} was not written by a job of reranking; give another folder")


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Put a job's manifest in its place by one rename."""
    partial = folder / "manifest.tmp"
    with partial.open("w", encoding="utf-8") as file:
        file.write(json.dumps(manifest, indent=1))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / "manifest.json")


def portable(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest without what changes no row (the device, when to give up) and without the count of the items."""
    plain = json.loads(json.dumps(manifest))
    plain["source"].pop("items", None)
    plain["settings"].pop("max_abstained", None)
    for name in ("reward", "audit"):
        if plain["settings"][name] is not None:
            plain["settings"][name].pop("device")
    return dict(plain)


def refuse_changes(known: Any, now: Any, what: str) -> None:
    """Raise InputError with the differences named unless the two are equal."""
    differences = list(_differences(known, now, ""))
    if differences:
        shown = "; ".join(differences[:3]) + (f"; and {len(differences) - 3} more" if len(differences) > 3 else "")
        raise InputError(f"{what} changed: {shown}. Use the old settings to go on, or another folder to start anew")


def _differences(known: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(known, dict) and isinstance(now, dict):
        for name in sorted(known.keys() | now.keys()):
            yield from _differences(known.get(name), now.get(name), f"{path}.{name}" if path else name)
    elif known != now:
        yield f"{path} was {known!r} and is now {now!r}"
