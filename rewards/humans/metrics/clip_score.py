"""Reference-free CLIPScore (Hessel et al. 2021): w * max(cos(image, text), 0) with w = 2.5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rewards.humans.metrics.base import MetricScores, TextItem, as_scores
from rewards.images import to_pil

WEIGHT = 2.5
PREFIX = "A photo depicts "


class CLIPScore:
    """CLIPScore with a transformers CLIP model.

    Args:
        path: checkpoint name or directory, e.g. "openai/clip-vit-base-patch32".
        device: where the model goes.
        prefix: put before every text; the paper's by default.
        batch_size: texts at a time.
    """

    name = "CLIP-S"
    needs_references = False

    def __init__(self, path: str, device: str = "cpu", prefix: str = PREFIX, batch_size: int = 64) -> None:
        from transformers import AutoModel, AutoProcessor

        self.model: Any = AutoModel.from_pretrained(path).to(device).eval()
        self.processor: Any = AutoProcessor.from_pretrained(path)
        self.prefix = prefix
        self.batch_size = batch_size

    @torch.no_grad()
    def __call__(self, items: Sequence[TextItem]) -> MetricScores:
        """Score n texts; each in [0, 2.5]."""
        scores: list[float] = []
        for start in range(0, len(items), self.batch_size):
            batch = items[start : start + self.batch_size]
            inputs = self.processor(
                text=[self.prefix + item.text for item in batch],
                images=[to_pil(item.image) for item in batch],
                return_tensors="pt",
                padding=True,
                truncation=True,
            ).to(self.model.device)
            outputs = self.model(**inputs)
            image, text = (
                torch.nn.functional.normalize(embedding.float(), dim=-1)
                for embedding in (outputs.image_embeds, outputs.text_embeds)
            )
            scores += (WEIGHT * (image * text).sum(-1).clamp(min=0)).tolist()
        return as_scores(scores)
