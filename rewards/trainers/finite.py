"""Nothing that is not finite is written into a checkpoint, whoever keeps it: a resumed run would begin with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from rewards.errors import RewardsError


def check_finite(kept: Mapping[str, object]) -> None:
    """Refuse to write values that are not finite: weights, an optimiser's moments, averages, statistics.

    Args:
        kept: by name, tensors and numbers at any depth of mappings and sequences; anything else is passed over.

    Raises:
        RewardsError: names the first such value.

    Example:
        >>> check_finite({"weights": {"w": torch.ones(2)}, "statistics": [0.5, None]})
        >>> check_finite({"average": [torch.ones(2), torch.tensor([1.0, torch.inf])]})
        Traceback (most recent call last):
        ...
        rewards.errors.RewardsError: average.1 is not finite: no checkpoint is written of it; go on from the last one...
    """
    leaves = list(_leaves(kept, ""))
    numbers = all(math.isfinite(value) for _, value in leaves if isinstance(value, float))
    if numbers and all_finite([value for _, value in leaves if isinstance(value, Tensor)]):
        return
    name = next(name for name, value in leaves if not all_finite([torch.as_tensor(value)]))
    raise RewardsError(f"{name} is not finite: no checkpoint is written of it; go on from the last one before")


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every value is finite, with one transfer from the device a device."""
    flags: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        flags.setdefault(tensor.device, []).append(tensor.detach().isfinite().all())
    return all(bool(torch.stack(of_device).all()) for of_device in flags.values())


def _leaves(value: object, name: str) -> Iterator[tuple[str, Tensor | float]]:
    if isinstance(value, Tensor | float):
        yield name, value
    elif isinstance(value, Mapping | list | tuple):
        entries = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, entry in entries:
            yield from _leaves(entry, f"{name}.{key}" if name else str(key))
