"""What is sampled, and by what kind of function; nothing heavy is imported here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rewards.errors import InputError

SHAPES = "shapes"

Sampler = Callable[[Sequence[Mapping[str, object]], Sequence[int]], Sequence[object]]
"""Rows of prompts and a seed a row -> texts or pictures."""


@dataclass
class GenerateSettings:
    """What is sampled.

    Attributes:
        prompts: JSON lines, CSV, Parquet or a dataset folder with `image` (and `prompt`, `question`) for texts,
            `prompt` for pictures, and an optional `id`; or "shapes" for held-out prompts of the shapes world.
        model: checkpoint name or directory, or "shapes-captioner", "shapes-generator", which with prompts "shapes" are
            the defaults.
        kind: "texts" from a vision-language model, "pictures" from a diffusers pipeline.
        n: candidates a prompt.
        seed: of all noise.
        limit: prompts taken from the start of the file; for "shapes" how many (default 64).
        batch_size: candidates sampled at a time.
        shard_size: prompts committed together; a killed run repeats one shard at most.
        device, dtype, revision: of the model.
        instruction: the user's message for rows with neither prompt nor question.
        max_new_tokens, temperature: of texts; temperature 0 is greedy.
        num_inference_steps, guidance_scale, eta: of pictures; eta counts for DDIM only.
    """

    prompts: str
    model: str | None = None
    kind: Literal["texts", "pictures"] = "texts"
    n: int = 8
    seed: int = 0
    limit: int | None = None
    batch_size: int = 64
    shard_size: int = 64
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None
    instruction: str = "Describe the image."
    max_new_tokens: int = 64
    temperature: float = 1.0
    num_inference_steps: int = 30
    guidance_scale: float = 7.5
    eta: float = 0.0

    def __post_init__(self) -> None:
        if self.model is None and self.prompts == SHAPES:
            self.model = "shapes-captioner" if self.kind == "texts" else "shapes-generator"
        if self.model is None:
            raise InputError("no model is named: give the checkpoint that samples the candidates")
        for name in ("n", "batch_size", "shard_size", "max_new_tokens", "num_inference_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"limit is {self.limit}; at least 1 is needed")
        if not 1 <= self.guidance_scale < math.inf:
            raise InputError(f"guidance_scale is {self.guidance_scale}; 1 (off) or more is needed")
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature is {self.temperature}; a number of at least 0 is needed")
