"""Checkpoints of a run: whole or absent, whenever the process is killed, and never with a value that is not finite.

A checkpoint is `RUN/checkpoints/checkpoint-<step>/`: the adapter (or network) in the form that plain diffusers loads,
`optimizer.pt` (with what the method keeps), `rng_<rank>.pt` and `state.json` (step, per-prompt statistics, the learning
rate's plan). It is written beside and renamed, so that a half-written one never looks like a checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from accelerate import Accelerator

from rewards.errors import InputError
from rewards.runs.files import Json
from rewards.runs.folder import list_checkpoints
from rewards.trainers.diffusion.optimization import Optimization
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.finite import check_finite


class State(TypedDict):
    """What `state.json` holds."""

    step: int
    statistics: Any
    rates: list[float]
    reward: Mapping[str, Json]
    audit_first_gap: float | None
    counts: list[int]
    steps_taken: list[int]


def save_checkpoint(
    folder: Path,
    policy: Policy,
    optimization: Optimization,
    kept: Mapping[str, Sequence[torch.Tensor]],
    state: State,
    accelerator: Accelerator,
    limit: int,
) -> Path:
    """Write a checkpoint; every process must call this.

    Args:
        folder: Of the run's checkpoints.
        policy: The model.
        optimization: Its optimiser.
        kept: Tensors beside the policy, by name (of the method, a moving average).
        state: Anything else, as plain JSON values.
        accelerator: Knows the processes.
        limit: Older checkpoints beyond this number are removed.

    Returns:
        The checkpoint's folder.

    Raises:
        RewardsError: A value of any of them is not finite; nothing is written.
    """
    saved: dict[str, object] = {
        "optimizer": optimization.optimizer.state_dict(),
        "kept": {name: list(values) for name, values in kept.items()},
    }
    if accelerator.scaler is not None:
        saved["scaler"] = accelerator.scaler.state_dict()
    check_finite({"weights": policy.parameters, **saved, "state": state})
    final, partial = folder / f"checkpoint-{state['step']}", folder / f".partial-{state['step']}"
    if accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    accelerator.wait_for_everyone()
    torch.save(_random_state(), partial / f"rng_{accelerator.process_index}.pt")
    if accelerator.is_main_process:
        policy.save(partial)
        torch.save(saved, partial / "optimizer.pt")
        (partial / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        shutil.rmtree(final, ignore_errors=True)
        os.replace(partial, final)
        for old in list_checkpoints(folder)[:-limit]:
            shutil.rmtree(old, ignore_errors=True)
    accelerator.wait_for_everyone()
    return final


def read_state(folder: Path) -> State:
    """What a checkpoint's `state.json` holds.

    Raises:
        InputError: It is not a checkpoint.
    """
    try:
        return json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{folder}: not a checkpoint: {error}") from error


def load_checkpoint(
    folder: Path, policy: Policy, optimization: Optimization, accelerator: Accelerator
) -> dict[str, list[torch.Tensor]]:
    """Take over a checkpoint's weights, optimiser and random state; every process calls this.

    Returns:
        The tensors that were kept beside the policy.

    Raises:
        InputError: The checkpoint does not fit the model.
    """
    policy.load(folder)
    saved = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)  # the optimiser moves it
    try:
        optimization.optimizer.load_state_dict(saved["optimizer"])
    except ValueError as error:
        raise InputError(f"{folder}: the optimiser state does not fit this model: {error}") from error
    if accelerator.scaler is not None and "scaler" in saved:
        accelerator.scaler.load_state_dict(saved["scaler"])
    rng = folder / f"rng_{accelerator.process_index}.pt"
    if rng.exists():  # absent when the run goes on with more processes; samples do not depend on it
        _set_random_state(torch.load(rng, map_location="cpu", weights_only=True))
    return saved["kept"]


def _random_state() -> dict[str, object]:
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
