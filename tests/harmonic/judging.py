"""A judge whose rating of a text is known: for testing what HarmonicEval does with ratings, not how they are made."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image

from rewards.judges.base import Judge, Ratings


class KnownJudge(Judge):
    """Rates a prompt by a distribution drawn from the prompt's checksum, and remembers what it was asked.

    A prompt that holds "SILENT" gets no rating, one that holds "OFF SCALE" hardly any mass.
    """

    name = "known"

    def __init__(self, prompts: Any = None) -> None:
        self.prompts = prompts
        self.asked: list[tuple[Any, str]] = []
        self.calls = 0

    def rate(self, images: Sequence[Any], prompts: Sequence[str], ratings: Sequence[str] = ()) -> Ratings:
        self.calls += 1
        self.asked += zip(images, prompts)
        rows = torch.stack([self.probabilities(prompt, len(ratings)) for prompt in prompts])
        reasons = tuple("the server is down" if "SILENT" in prompt else None for prompt in prompts)
        return Ratings(rows, rows.sum(-1), reasons)

    @staticmethod
    def probabilities(prompt: str, ratings: int = 5) -> torch.Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(prompt.encode()))
        row = 0.9 * torch.randn(ratings, generator=generator).softmax(-1)
        if "SILENT" in prompt:
            return torch.full_like(row, torch.nan)
        return row * 0.01 if "OFF SCALE" in prompt else row


def picture(seed: int = 0, size: tuple[int, int] = (32, 24)) -> Image.Image:
    return Image.new("RGB", size, ((37 * seed) % 256, (91 * seed) % 256, 128))


def chat(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]
