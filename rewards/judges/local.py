"""What every judge with weights in this process shares: loading, the device, and pictures."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import torch
from transformers import AutoProcessor

from rewards.errors import InputError
from rewards.judges.base import GRADIENTS, Ability, Judge
from rewards.judges.pictures import takes_tensors
from rewards.judges.weights import content_of_folder
from rewards.runs.files import Json


class LocalOptions(TypedDict, total=False):
    """What every :class:`LocalJudge` takes beside its path."""

    name: str | None
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    revision: str | None
    attn_implementation: str | dict[str, str] | None
    quantization_config: object
    compile: bool
    trust_remote_code: bool


class LocalJudge(Judge):
    """A judge whose weights live on one device of this process, in eval mode, without gradients.

    It is never given to a trainer's accelerator: `prepare()` would shard or wrap it, and its scores would depend on the
    training set-up.

    Args:
        path: Checkpoint name or directory.
        name: The name under which the user asked for it; default: `path`.
        device: Default: this process's GPU (`LOCAL_RANK`), else the CPU.
        dtype: Default: float32 on the CPU, the checkpoint's own elsewhere.
        revision: Branch, tag or commit.
        attn_implementation: As in `from_pretrained` (`"sdpa"`, `"eager"`, `"flash_attention_2"`), or a tower each:
            `{"vision_config": "flash_attention_2", "text_config": "sdpa"}`. Whole trees need sdpa in the text tower.
        quantization_config: As in `from_pretrained`, for example a `BitsAndBytesConfig`; passed through.
        compile: Run the forward passes through `torch.compile`.
        trust_remote_code: Run code that came with the checkpoint. Off unless asked for.
    """

    model_class: Any = None

    def __init__(
        self,
        path: str,
        *,
        name: str | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        attn_implementation: str | dict[str, str] | None = None,
        quantization_config: object = None,
        compile: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        self.name = name or path
        self.device = resolve_device(device)
        extra = {"attn_implementation": attn_implementation, "quantization_config": quantization_config}
        options = {key: value for key, value in extra.items() if value is not None}
        if quantization_config is not None:
            options["device_map"] = {"": self.device}  # quantised weights are placed while they load
        common = {"revision": revision, "trust_remote_code": trust_remote_code}
        self.weights = content_of_folder(path) if Path(path).is_dir() else None
        with outside_sharding():
            self.model: Any = self.model_class.from_pretrained(
                path, dtype=resolve_dtype(dtype, self.device), **common, **options
            )
            self.processor: Any = AutoProcessor.from_pretrained(path, **common)
        self.takes_tensors = takes_tensors(self.processor)
        # Some models keep state between calls (rotary offsets, the picture at work): one call at a time.
        self._lock = threading.RLock()
        self.quantized = quantization_config is not None
        self.model.eval().requires_grad_(False)
        if not self.quantized:
            self.model.to(self.device)
        if compile:
            for part in self._parts():
                part.forward = torch.compile(part.forward, dynamic=True)
        self.revision = getattr(self.model.config, "_commit_hash", None) or revision
        self.prompts = _prompts_beside(path)

    @property
    def abilities(self) -> frozenset[Ability]:
        """The methods of its class; none with a gradient where its image processor takes PIL images only."""
        return super().abilities - (frozenset() if self.takes_tensors else GRADIENTS)

    def identity(self) -> dict[str, Json]:
        """Name, revision (of a folder: a digest of its files), dtype and image processor.

        The PIL and torchvision forms of an image processor differ by up to 0.3 in a pixel.
        """
        image_processor = getattr(self.processor, "image_processor", self.processor)
        return {
            "name": self.name,
            "revision": self.revision,
            "weights": self.weights,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "preprocessing": type(image_processor).__name__,
        }

    def _parts(self) -> list[torch.nn.Module]:
        """The modules that a judge calls, which `compile` compiles."""
        return [self.model]

    def offload(self) -> None:
        """Move the weights to the CPU between two phases; the next call moves them back."""
        if not self.quantized:
            self.model.to("cpu")
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _onload(self) -> None:
        if not self.quantized and self.model.device != self.device:
            self.model.to(self.device)


def resolve_device(device: str | torch.device | None) -> torch.device:
    """The device asked for; by default this process's own GPU, so that ranks do not crowd onto the first one."""
    if device is None:
        device = f"cuda:{int(os.environ.get('LOCAL_RANK', 0))}" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"unknown device {device!r}: {str(error).partition(chr(10))[0]}") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {str(device)!r} was asked for, but torch finds no CUDA device here")
    if resolved.type == "cuda" and resolved.index is None:
        resolved = torch.device("cuda", torch.cuda.current_device())
    return resolved


def resolve_dtype(dtype: str | torch.dtype | None, device: torch.device) -> str | torch.dtype:
    """A torch dtype or `"auto"` (the checkpoint's own) from what the user wrote."""
    if dtype is None:
        return torch.float32 if device.type == "cpu" else "auto"
    if isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise InputError(f"unknown dtype {dtype!r}; expected one such as 'float32', 'bfloat16', 'float16' or 'auto'")
    return found


@contextmanager
def outside_sharding() -> Iterator[None]:
    """Load a whole model here even while a trainer has ZeRO-3 or FSDP switched on.

    Under ZeRO-3 `from_pretrained` would partition the judge over the ranks (trl#2984, #3326), and under FSDP's
    `cpu_ram_efficient_loading` every rank but the first would get empty weights.
    """
    from transformers.integrations import deepspeed as hf_deepspeed

    ram_efficient = os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING")
    zero_config = getattr(hf_deepspeed, "_hf_deepspeed_config_weak_ref", None)
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    hf_deepspeed._hf_deepspeed_config_weak_ref = None
    try:
        yield
    finally:
        hf_deepspeed._hf_deepspeed_config_weak_ref = zero_config
        if ram_efficient is None:
            del os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"]
        else:
            os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = ram_efficient


def _prompts_beside(path: str) -> dict[str, dict[str, str]] | None:
    """Templates that a rater was trained on, kept beside its weights as `harmonic_prompts.json`."""
    file = Path(path) / "harmonic_prompts.json"
    if not file.is_file():
        return None
    loaded = json.loads(file.read_text("utf-8"))
    if not isinstance(loaded, dict) or not all(isinstance(entry, dict) for entry in loaded.values()):
        raise InputError(f"{file} must map each task to its criteria's prompts")
    return loaded
