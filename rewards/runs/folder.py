"""The folder of a run, laid out the same by every trainer, and the one rule by which a run begins or goes on.

| file | what it holds |
|---|---|
| `config.yaml` | the resolved settings |
| `identity.json` | what the run's result depends on (:mod:`rewards.runs.identity`) |
| `metrics.jsonl` | the curves (:mod:`rewards.runs.metrics`) |
| `samples.jsonl`, `samples/` | pictures and texts to look at (:mod:`rewards.runs.samples`) |
| `evaluations.jsonl` | every held-out score (:mod:`rewards.runs.evaluations`) |
| `summary.json` | what was gained, with intervals (:mod:`rewards.runs.summary`) |
| `checkpoints/checkpoint-<step>/` | what a killed run goes on from |
| `adapter/` | the trained weights |
| `best/` | the weights at the evaluation that the audit liked best, where there is an audit |
| `README.md` | the model card |
| `audit.json`, `audit.html` | what the reward accepts, where `audit_before` asked for it (:mod:`rewards.audit`) |
| `.lock` | empty; held by the process that trains |
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from filelock import FileLock

from rewards.errors import InputError
from rewards.runs.files import Json, read_json, write_json
from rewards.runs.identity import check_same
from rewards.runs.locks import locked

Resume: TypeAlias = bool | Literal["auto"]
"""Whether a run goes on where its folder holds one; `auto` and true are the same."""

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
# Each trainer writes one of these last into a checkpoint, or renames the whole checkpoint into place.
_WRITTEN_LAST = ("trainer_state.json", "state.json")


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what; makes nothing.

    Example:
        >>> RunFolder(Path("runs/grpo")).metrics.as_posix()
        'runs/grpo/metrics.jsonl'
    """

    path: Path

    @property
    def config(self) -> Path:
        """The resolved settings."""
        return self.path / "config.yaml"

    @property
    def identity(self) -> Path:
        """What the result depends on."""
        return self.path / "identity.json"

    @property
    def metrics(self) -> Path:
        """The curves."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        """Every held-out score."""
        return self.path / "evaluations.jsonl"

    @property
    def summary(self) -> Path:
        """What was gained."""
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.path / "checkpoints"

    @property
    def adapter(self) -> Path:
        """The trained weights."""
        return self.path / "adapter"

    @property
    def best(self) -> Path:
        """The weights at the evaluation that the audit liked best."""
        return self.path / "best"

    @property
    def card(self) -> Path:
        """The model card."""
        return self.path / "README.md"

    def holds_a_run(self) -> bool:
        """Whether anything of a run is there."""
        return any(path.exists() for path in self._own())

    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint that was written to its end; a run killed while saving leaves one that was not."""
        return next((path for path in reversed(list_checkpoints(self.checkpoints)) if _is_whole(path)), None)

    def lock(self) -> FileLock:
        """Keep other processes out until the lock is released or this process ends, however it ends; makes the folder.

        Raises:
            InputError: Another process works in the folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        return locked(self.path, ".lock", again=True)

    def clear(self) -> None:
        """Remove what a run wrote, and nothing else."""
        for path in self._own():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _own(self) -> list[Path]:
        files = [self.config, self.identity, self.metrics, self.evaluations, self.summary, self.card]
        files += [self.path / name for name in ("audit.json", "audit.html", "samples.jsonl", "samples")]
        return [*files, self.checkpoints, self.adapter, self.best]


def begin_run(
    folder: RunFolder,
    identity: Json,
    *,
    resume: Resume = False,
    overwrite: bool = False,
    may_change: Sequence[str] = (),
    main: bool = True,
) -> Path | None:
    """Make a run's folder ready, before anything is written into it.

    Whoever writes holds :meth:`RunFolder.lock` from here to the end. A folder without a run begins one. A folder with a
    run is refused, unless `resume` continues it (from its newest whole checkpoint, or from the start where there is
    none yet) or `overwrite` replaces it.

    Args:
        folder: The run's.
        identity: What its result depends on.
        resume: Go on where there is a run.
        overwrite: Replace it.
        may_change: Entries of the identity that a continued run may have otherwise (more steps, say).
        main: Whether this is the main process, which alone writes; the others come after it and only learn of the
            checkpoint.

    Returns:
        The checkpoint to go on from; None at the start.

    Raises:
        InputError: The folder holds a run and neither flag says what to do, both do, or the run was begun otherwise.
    """
    if resume and overwrite:
        raise InputError("resume goes on with a run and overwrite replaces it: set one of them")
    if not main:
        return folder.last_checkpoint() if resume else None
    checkpoint = None
    if overwrite:
        folder.clear()
    elif folder.holds_a_run():
        if not resume:
            raise InputError(
                f"{folder.path} already holds a run: set resume=true to continue it, overwrite=true to replace it, or "
                "another output_dir"
            )
        if not folder.identity.exists():
            raise InputError(f"{folder.path} holds a run without identity.json, which cannot be continued")
        check_same(read_json(folder.identity), identity, f"the run in {folder.path}", may_change)
        checkpoint = folder.last_checkpoint()
    folder.path.mkdir(parents=True, exist_ok=True)
    write_json(folder.identity, identity)
    return checkpoint


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, whole or not, oldest first."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def _is_whole(checkpoint: Path) -> bool:
    for name in _WRITTEN_LAST:
        try:
            json.loads((checkpoint / name).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return True
    return False
