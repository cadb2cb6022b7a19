"""An accelerator that is not there: what runs on it has shapes and no values, what runs on the host is real.

Tensors on the pretended device are torch's fake tensors, so that a tensor left on another device raises as it would on
a GPU. Each time the host would have to wait for the device (a copy to the host, a number read out of a tensor, a shape
that depends on values), that is counted with the line that asked for it. What it reads is made up, except where small
tensors follow from values that the host itself put there (indices, lengths, picture sizes): those are carried along.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("cuda", 0)

KNOWN_NUMBERS, KNOWN_PLACES = 2**12, 2**17
"""Largest tensors on the device, of floating and of whole numbers, whose values are carried along."""

_LIBRARY = f"{Path(__file__).resolve().parents[1]}/"
_HERE = str(Path(__file__).resolve())
_PACKAGES = "site-packages/"


class HostReads:
    """Who made the host wait for the device.

    Attributes:
        by_caller: `file:line function` of the library's innermost line (of other code's where the library is not on the
            way) -> how often.
        inside: The same by the innermost line outside torch, whoever's it is.
    """

    def __init__(self) -> None:
        self.by_caller: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """All of them."""
        return self.by_caller.total()

    @contextmanager
    def told(self, found: dict[str, Counter[str]], name: str) -> Iterator[None]:
        """Put those of this block under a name, by caller."""
        before = self.by_caller.copy()
        yield
        found[name] = self.by_caller - before

    def add(self) -> None:
        """One more, by whoever is calling."""
        own = other = None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and own is None:
            file = frame.f_code.co_filename
            if file.startswith(_LIBRARY) and file != _HERE:
                own = f"{file.removeprefix(_LIBRARY)}:{frame.f_lineno} {frame.f_code.co_name}"
            elif other is None and file != _HERE and "/torch/" not in file:
                other = f"{file.rpartition(_PACKAGES)[2]}:{frame.f_lineno} {frame.f_code.co_name}"
            frame = frame.f_back
        self.by_caller[own or other or "?"] += 1
        self.inside[other or own or "?"] += 1


class _Accelerator(TorchDispatchMode):
    """Runs what concerns the host for real, and the rest on fake tensors."""

    current: _Accelerator | None = None

    def __init__(self, reads: HostReads, device: torch.device) -> None:
        super().__init__()
        self.reads = reads
        self.device = device
        self.everything = False
        self._made_up = itertools.count()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # asked for more often than all else
            return args[0].fake_device
        kwargs = kwargs or {}
        there = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        device = kwargs.get("device")
        to_host = device is None or self.device.type == "cpu" or torch.device(device).type != self.device.type
        if not there and to_host and not self.everything:
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        name = func._schema.name
        if there and name in ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"):
            self.reads.add()
            return self._number(name, args)
        if name == "aten::_to_copy" and device is not None and to_host and self.device.type != "cpu":
            self.reads.add()
            return self._values(args[0], kwargs.get("dtype") or args[0].dtype)
        if there and name == "aten::copy_" and not isinstance(args[0], FakeTensor):
            self.reads.add()
            return args[0]
        if name == "aten::nonzero":
            self.reads.add()
            return self._there(self._chosen(args[0]))
        if name == "aten::index" and any(i is not None and i.dtype == torch.bool for i in args[1]):
            self.reads.add()
            args = (args[0], self._without_masks(args[1]))
        try:
            result = func(*args, **kwargs)
        except DynamicOutputShapeException:  # how many there will be, the host asks the device
            self.reads.add()
            known = self._on_host(func, args, kwargs, there)
            if known is None:
                raise
            return tree_map_only(Tensor, self._there, known)
        self._carry_along(func, args, kwargs, there, result)
        return result

    def read(self, tensor: Tensor) -> Any:
        """A tensor as a list; torch's own way reads fake ones element by element."""
        self.reads.add()
        return self._values(tensor, tensor.dtype).tolist()

    def _number(self, name: str, args: Any) -> object:
        if name != "aten::_local_scalar_dense":
            return True
        with unset_fake_temporarily():
            return self._values(args[0], args[0].dtype).flatten()[0].item()

    def _values(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """What the host reads: the values where they are known, else true, numbers near 0.5, or ones; 0 and ones where
        models are shapes on the CPU, so that no step looks broken."""
        with unset_fake_temporarily():
            known = getattr(tensor, "known", None)
            if known is not None:
                return known.to(dtype, copy=True)
            if not dtype.is_floating_point:
                return torch.ones(tensor.shape, dtype=dtype)
            if self.device.type == "cpu":
                return torch.zeros(tensor.shape, dtype=dtype)
            begin = next(self._made_up)
            numbers = ((torch.arange(tensor.numel()) + begin) % 97).view(tensor.shape)
            return 0.5 + 1e-6 * numbers.to(dtype)

    def _chosen(self, mask: Tensor) -> Tensor:
        """Where a mask is true: everywhere, if it is not known."""
        with unset_fake_temporarily():
            known = getattr(mask, "known", None)
            return torch.nonzero(torch.ones(mask.shape) if known is None else known)

    def _without_masks(self, indices: Any) -> list[Tensor | None]:
        chosen: list[Tensor | None] = []
        for index in indices:
            if index is not None and index.dtype == torch.bool:
                chosen.extend(self._there(part) for part in self._chosen(index).unbind(1))
            else:
                chosen.append(index)
        return chosen

    def _there(self, values: Tensor) -> Tensor:
        """Values that are known, on the device."""
        tensor = torch.empty(values.shape, dtype=values.dtype, device=self.device)
        tensor.known = values  # type: ignore[attr-defined]
        return tensor

    def _carry_along(self, func: Any, args: Any, kwargs: Any, there: list[FakeTensor], result: Any) -> None:
        """Compute small results on the host as well, where all that they depend on is known there."""
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, FakeTensor)]
        known = self._on_host(func, args, kwargs, there) if all(map(_small, outputs)) else None
        values = tree_leaves(known) if known is not None else itertools.repeat(None)
        for one, value in zip(tree_leaves(result), values):
            if isinstance(one, FakeTensor):
                one.known = value  # type: ignore[attr-defined]  # None also for what was written to in place with values that are not known

    def _on_host(self, func: Any, args: Any, kwargs: Any, there: list[FakeTensor]) -> Any:
        """What a small call gives on the host; None where it depends on values that are not known."""
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not all(map(_small, inputs)) or any(getattr(one, "known", None) is None for one in there):
            return None
        on_host = {**kwargs, "device": torch.device("cpu")} if kwargs.get("device") is not None else kwargs
        with unset_fake_temporarily():
            known_args, known_kwargs = tree_map_only(FakeTensor, lambda one: one.known, (args, on_host))
            return func(*known_args, **known_kwargs)


def _small(tensor: Tensor) -> bool:
    return tensor.numel() <= (KNOWN_NUMBERS if tensor.is_floating_point() else KNOWN_PLACES)


def _replace(module: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """`Module._apply` by new parameters: torch swaps the inside of fake ones, and may not where anyone refers to it.
    One that modules share stays shared."""
    changed: dict[nn.Parameter, nn.Parameter] = {}
    with torch.no_grad():
        for part in module.modules() if recurse else [module]:
            for name, parameter in part._parameters.items():
                if parameter is None:
                    continue
                if parameter not in changed:
                    changed[parameter] = nn.Parameter(change(parameter), parameter.requires_grad)
                part._parameters[name] = changed[parameter]
            for name, buffer in part._buffers.items():
                part._buffers[name] = None if buffer is None else change(buffer)
    return module


@contextmanager
def pretended(device: torch.device = DEVICE) -> Iterator[HostReads]:
    """Within this block `cuda` exists; yields the count of the times that the host waits for it.

    Args:
        device: With the CPU instead, models are those built under :func:`shapes_only`. A step on it goes through the
            backward pass too, which builds of torch without CUDA lack on `cuda`; devices cannot be told apart then.

    Raises:
        RuntimeError: (inside) Tensors of different devices meet.

    Example:
        >>> with pretended() as reads:
        ...     layer = torch.nn.Linear(2, 3).to("cuda")
        ...     shown = layer(torch.zeros(1, 2, device="cuda")).cpu()
        >>> tuple(shown.shape), reads.total
        ((1, 3), 1)
    """
    reads = HostReads()
    mode = _Accelerator(reads, device)
    with (
        patch.object(FakeTensor, "tolist", lambda tensor: mode.read(tensor)),
        patch.object(nn.Module, "_apply", _replace),
        patch.object(_Accelerator, "current", mode),
        FakeTensorMode(allow_non_fake_inputs=True),
        mode,
    ):
        yield reads


@contextmanager
def shapes_only() -> Iterator[None]:
    """Within :func:`pretended` on the CPU: what is made here has shapes and no values."""
    mode = _Accelerator.current
    assert mode is not None
    mode.everything = True
    try:
        # Truncated normals are drawn until none lies outside, which made-up answers never grant.
        with patch.object(nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor):
            yield
    finally:
        mode.everything = False


def place(judge: Any) -> None:
    """Move a judge that was loaded on the CPU, with all that knows its device, to the pretended one."""
    judge.model.to(DEVICE)
    met, waiting = set(), [judge]
    while waiting:
        one = waiting.pop()
        if id(one) in met or not hasattr(one, "__dict__") or not type(one).__module__.startswith("rewards."):
            continue
        met.add(id(one))
        if isinstance(vars(one).get("device"), torch.device):
            one.device = DEVICE
        waiting.extend(vars(one).values())
