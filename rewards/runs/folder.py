"""The folder of a text trainer's run: fresh, resumed, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from rewards.errors import InputError


def prepare_folder(folder: Path, resume: bool, overwrite: bool) -> str | None:
    """Make the run folder ready.

    Returns:
        The newest whole checkpoint if the run is to be resumed and has one.

    Raises:
        InputError: if the folder already holds a run and neither flag says what to do with it.
    """
    held = [folder / name for name in ("metrics.jsonl", "samples.jsonl", "evaluations.jsonl")]
    checkpoint = last_checkpoint(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if resume:
        return str(checkpoint) if checkpoint else None
    if any(path.exists() for path in held) or checkpoint:
        if not overwrite:
            raise InputError(
                f"{folder} already holds a run: set resume=true to continue it, overwrite=true to replace it, or "
                "another output_dir"
            )
        for path in held:
            path.unlink(missing_ok=True)
        for path in folder.glob("checkpoint-*"):  # a later resume must not find the old run's
            shutil.rmtree(path)
    return None


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end; a run killed while saving leaves one that was not."""
    numbered = [
        (int(path.name.rpartition("-")[2]), path) for path in folder.glob("checkpoint-*") if path.name[11:].isdigit()
    ]
    for _, path in sorted(numbered, reverse=True):
        try:  # the trainer writes this file last
            json.loads((path / "trainer_state.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return path
    return None
