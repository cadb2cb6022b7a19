"""The path that is right for every architecture: one full prompt at a time, through the model's own forward."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch


class Plain:
    """Runs any `AutoModelForImageTextToText` over the processor's own inputs, row by row, without a cache."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._keeps_logits = "logits_to_keep" in inspect.signature(type(model).forward).parameters

    def logits(self, inputs: Mapping[str, torch.Tensor], then: Sequence[int] = ()) -> torch.Tensor:
        """Float32 logits `(1 + len(then), V)` after the prompt and after each token of `then`."""
        full: dict[str, torch.Tensor | int] = {**with_tokens(inputs, then)}
        kept = len(then) + 1
        if self._keeps_logits:
            full["logits_to_keep"] = kept
        return self.model(**full, use_cache=False).logits[0, -kept:].float()

    @torch.no_grad()
    def greedy(
        self, inputs: Mapping[str, torch.Tensor], then: Sequence[int], stop_tokens: Sequence[int], longest: int
    ) -> list[int]:
        """Continue the prompt and `then` greedily until a stop token (left out) or `longest` tokens."""
        full = with_tokens(inputs, then)
        ids = self.model.generate(
            **full,
            max_new_tokens=longest,
            do_sample=False,
            repetition_penalty=1.0,
            eos_token_id=list(stop_tokens),
            pad_token_id=stop_tokens[0] if stop_tokens else 0,
        )
        new = ids[0, full["input_ids"].shape[1] :].tolist()
        ends = [at for at, token in enumerate(new) if token in stop_tokens]
        return new[: ends[0]] if ends else new


def with_tokens(inputs: Mapping[str, torch.Tensor], then: Sequence[int]) -> dict[str, torch.Tensor]:
    """A processor's inputs with further text tokens after the prompt; masks and token types cover them too."""
    if not then:
        return dict(inputs)
    added = torch.tensor([list(then)], device=inputs["input_ids"].device)
    full = {**inputs, "input_ids": torch.cat([inputs["input_ids"], added], dim=1)}
    for key, value in inputs.items():
        if key in ("attention_mask", "mm_token_type_ids", "token_type_ids"):
            filler = torch.ones_like(added) if key == "attention_mask" else torch.zeros_like(added)
            full[key] = torch.cat([value, filler.to(value.dtype)], dim=1)
    return full
