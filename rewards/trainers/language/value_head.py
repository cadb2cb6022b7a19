"""A value head on a vision-language policy: one number for the state before each token, from the last hidden state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

FILE_NAME = "value_head.safetensors"


class ValueHead(nn.Linear):
    """A linear map to one number, in float32, that starts at 0.

    Args:
        hidden_size: size of the policy's hidden state.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, 1, dtype=torch.float32)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def values(self, hidden: Tensor, completion_length: int) -> Tensor:
        """Values of the states that emit each token of the completion.

        Args:
            hidden: last hidden states of prompt and completion, shape (B, P + T, H).
            completion_length: T.

        Returns:
            Shape (B, T). The state before the first token is that of the last prompt token.
        """
        states = hidden[:, -completion_length - 1 : -1]
        with torch.autocast(hidden.device.type, enabled=False):
            return self(states.float()).squeeze(-1)


class _Output(Protocol):
    """What a backbone returns."""

    last_hidden_state: Tensor


class ValueCapture:
    """Computes values during the policy's own forward pass, while asked to.

    The hook runs inside the forward of the whole model, where FSDP has gathered the head's weights, and costs no second
    pass. Outside of :meth:`recording` (in generation) it does nothing. Where gradients are kept, it ties the values to
    the forward's output with weight 0: DDP looks for unused parameters there, and would take the head for one.

    Args:
        backbone: the policy without its language-model head.
        head: the value head.
    """

    def __init__(self, backbone: nn.Module, head: ValueHead) -> None:
        self._head = head
        self._completion_length: int | None = None
        self._values: list[Tensor] = []
        backbone.register_forward_hook(self._record)

    @contextmanager
    def recording(self, completion_length: int) -> Iterator[list[Tensor]]:
        """Collect the values of every forward pass in the block, one tensor (B, T) a pass."""
        self._completion_length, self._values = completion_length, []
        try:
            yield self._values
        finally:
            self._completion_length, self._values = None, []

    def _record(self, module: nn.Module, inputs: object, output: _Output) -> _Output | None:
        if self._completion_length is None:
            return None
        hidden = output.last_hidden_state
        values = self._head.values(hidden, self._completion_length)
        self._values.append(values)
        if values.requires_grad:
            output.last_hidden_state = hidden + (0 * values.sum()).to(hidden.dtype)
        return output


def save_value_head(head: ValueHead, folder: str | Path) -> None:
    """Write the head beside the adapter, which stays loadable by plain peft."""
    save_file({key: value.contiguous().cpu() for key, value in head.state_dict().items()}, Path(folder) / FILE_NAME)


def load_value_head(head: ValueHead, folder: str | Path) -> bool:
    """Load the head from a folder.

    Returns:
        Whether there was one.
    """
    file = Path(folder) / FILE_NAME
    if not file.is_file():
        return False
    head.load_state_dict(load_file(file))
    return True
