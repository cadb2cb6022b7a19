"""Checkpoints of a DDPO run: whole or absent, whenever the process is killed.

A checkpoint is ``logdir/checkpoints/checkpoint_<step>/``: the adapter (or UNet) in the form that plain diffusers loads,
``optimizer.pt``, ``rng_<rank>.pt`` and ``state.json`` (step, per-prompt statistics, resolved config, identity of the
reward). It is written beside and renamed, so that a half-written one never looks like a checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from rewards.errors import InputError
from rewards.trainers.diffusion.policy import DiffusionPolicy

_NAME = re.compile(r"checkpoint_(\d+)")


def checkpoint_folder(logdir: str | Path) -> Path:
    """Where a run keeps its checkpoints."""
    return Path(logdir) / "checkpoints"


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def find_checkpoint(resume_from: str, logdir: str | Path) -> Path | None:
    """The checkpoint that ``DDPOConfig.resume_from`` names, or None to start afresh.

    Raises:
        InputError: The path holds no checkpoint.
    """
    if not resume_from:
        return None
    if resume_from == "auto":
        return next(reversed(list_checkpoints(checkpoint_folder(logdir))), None)
    path = Path(resume_from)
    if (path / "state.json").is_file():
        return path
    for folder in (path, checkpoint_folder(path)):
        if checkpoints := list_checkpoints(folder):
            return checkpoints[-1]
    raise InputError(f"resume_from {resume_from!r}: no checkpoint there (expected checkpoint_<step> folders)")


def save_checkpoint(
    logdir: str | Path,
    step: int,
    policy: DiffusionPolicy,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    accelerator: Accelerator,
    limit: int,
) -> Path:
    """Write a checkpoint; every process must call this.

    Args:
        logdir: The run folder.
        step: Finished epochs.
        policy: The model.
        optimizer: Its optimiser.
        state: Anything else, as plain JSON values.
        accelerator: Knows the processes.
        limit: Older checkpoints beyond this number are removed.

    Returns:
        The checkpoint's folder.
    """
    folder = checkpoint_folder(logdir)
    final, partial = folder / f"checkpoint_{step}", folder / f".partial_{step}"
    if accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    accelerator.wait_for_everyone()
    torch.save(_random_state(), partial / f"rng_{accelerator.process_index}.pt")
    if accelerator.is_main_process:
        policy.save(partial)
        saved: dict[str, Any] = {"optimizer": optimizer.state_dict()}
        if accelerator.scaler is not None:
            saved["scaler"] = accelerator.scaler.state_dict()
        torch.save(saved, partial / "optimizer.pt")
        (partial / "state.json").write_text(json.dumps({"step": step, **state}, indent=1), encoding="utf-8")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        shutil.rmtree(final, ignore_errors=True)
        os.replace(partial, final)
        for old in list_checkpoints(folder)[:-limit]:
            shutil.rmtree(old, ignore_errors=True)
    accelerator.wait_for_everyone()
    return final


def load_checkpoint(
    folder: Path, policy: DiffusionPolicy, optimizer: torch.optim.Optimizer, accelerator: Accelerator
) -> dict[str, Any]:
    """Take over a checkpoint's weights, optimiser and random state; every process calls this.

    Returns:
        What ``state.json`` holds.

    Raises:
        InputError: The checkpoint does not fit the model.
    """
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{folder}: not a checkpoint: {error}") from error
    policy.load(folder)
    saved = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)  # the optimiser moves it
    try:
        optimizer.load_state_dict(saved["optimizer"])
    except ValueError as error:
        raise InputError(f"{folder}: the optimiser state does not fit this model: {error}") from error
    if accelerator.scaler is not None and "scaler" in saved:
        accelerator.scaler.load_state_dict(saved["scaler"])
    rng = folder / f"rng_{accelerator.process_index}.pt"
    if rng.exists():  # absent when the run goes on with more processes; samples do not depend on it
        _set_random_state(torch.load(rng, map_location="cpu", weights_only=True))
    return state


def _random_state() -> dict[str, Any]:
    version, internal, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, list(internal), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest],
    }


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
