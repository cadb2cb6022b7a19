"""Seeds and noise that depend on what they are for alone: not on processes, batches or resumes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def derived_seed(*parts: int | str) -> int:
    """A 63-bit seed from the parts; equal parts give equal seeds."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class Noise:
    """Standard normal noise for a batch of samples, drawn as it is needed.

    Args:
        seed: The run's seed.
        stream: What the noise is for, such as `"train/12"` or `"eval"`.
        indices: Global index of each of the N samples.
        shape: Shape of one sample's noise.

    Example:
        >>> both, second = Noise(0, "eval", [3, 4], (16,)), Noise(0, "eval", [4], (16,))
        >>> torch.equal(both.draw()[1], second.draw()[0])
        True
    """

    def __init__(self, seed: int, stream: str, indices: Sequence[int], shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._generators = [torch.Generator().manual_seed(derived_seed(seed, stream, index)) for index in indices]

    def draw(self) -> Tensor:
        """The next noise of every sample, `(N, *shape)` float32 on the CPU."""
        return torch.stack([torch.randn(self.shape, generator=generator) for generator in self._generators])
