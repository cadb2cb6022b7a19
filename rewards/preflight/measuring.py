"""Memory and work of code: every storage is counted while it lives, every product by its FLOPs.

Over shapes (:func:`rewards.preflight.pretend.pretended`) this is an estimate for models of any size; over real tensors
it is the measurement beside which the estimate is checked.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count


@dataclass
class Phase:
    """One part of a step.

    Attributes:
        before, peak, after: Bytes when it began, at most, and when it was over.
        flops: Of matrix products, convolutions and attention.
    """

    before: int = 0
    peak: int = 0
    after: int = 0
    flops: int = 0


class Measure(TorchDispatchMode):
    """Counts storages and FLOPs while it is entered.

    Args:
        real: Count real tensors; by default those that have shapes alone.

    Attributes:
        live: Bytes now.
        peak, highest: Most bytes in the phase at hand, and ever.
        flops: So far.

    Example:
        >>> with Measure(real=True) as measure, measure.phase() as phase:
        ...     layer = torch.nn.Linear(1000, 1000, bias=False)
        ...     _ = layer(torch.zeros(2, 1000))
        >>> 4_000_000 <= phase.peak < 4_100_000, phase.flops
        (True, 4000000)
    """

    def __init__(self, real: bool = False) -> None:
        super().__init__()
        self.real = real
        self.live = self.peak = self.highest = self.flops = 0
        self._known: set[int] = set()

    @contextmanager
    def phase(self) -> Iterator[Phase]:
        """Measures what happens in this block."""
        self.peak = self.live
        phase = Phase(before=self.live, flops=self.flops)
        yield phase
        phase.peak, phase.after, phase.flops = self.peak, self.live, self.flops - phase.flops

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].fake_device
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        for leaf in leaves:
            if isinstance(leaf, FakeTensor) != self.real:
                self.add(leaf)
        count = _FLOPS.get(func._overloadpacket)
        if count is not None and any(isinstance(leaf, FakeTensor) != self.real for leaf in leaves):
            self.flops += count(*args, **kwargs, out_val=result)
        return result

    def add(self, tensor: Tensor) -> None:
        """Count a tensor's storage, once, until it is freed."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.live += size
            self.peak, self.highest = max(self.peak, self.live), max(self.highest, self.live)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query.shape, key.shape, value.shape)


def _attention_backward(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient.shape, query.shape, key.shape, value.shape)


_FLOPS: dict[Any, Any] = {
    **flop_registry,  # torch leaves out attention on a CPU
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
