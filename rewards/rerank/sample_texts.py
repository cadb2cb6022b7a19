"""Texts from a vision-language model, the noise of each from a seed of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from rewards.errors import InputError
from rewards.images import to_pil
from rewards.judges.local import resolve_device, resolve_dtype
from rewards.rerank.generate import GenerateSettings, Sampler


class SeededNoise(LogitsProcessor):
    """Gumbel-max sampling: with this processor, greedy decoding draws from softmax(logits / temperature).

    Row b uses the stream of seeds[b] alone, on the CPU, so that its noise depends neither on its batch nor on the
    device.

    Args:
        seeds: one a row.
        temperature: above 0.
    """

    def __init__(self, seeds: Sequence[int], temperature: float) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.temperature = temperature

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Add each row's noise to its logits (B, V)."""
        draws = [torch.empty(scores.shape[1]).exponential_(generator=generator) for generator in self.generators]
        return scores.float() / self.temperature - torch.stack(draws).log().to(scores.device)


def text_sampler(settings: GenerateSettings, path: str) -> Sampler:
    """A function from rows (`image`, and `prompt` or `question`) and seeds to texts.

    Raises:
        InputError: no such checkpoint, or not a vision-language model.
    """
    device = resolve_device(settings.device)
    try:
        model: Any = AutoModelForImageTextToText.from_pretrained(
            path, dtype=resolve_dtype(settings.dtype, device), revision=settings.revision
        )
        processor: Any = AutoProcessor.from_pretrained(path, revision=settings.revision)
    except (OSError, ValueError) as error:
        raise InputError(f"model {settings.model!r} cannot be loaded: {str(error).splitlines()[0]}") from error
    model = model.to(device).eval()
    tokenizer = processor.tokenizer
    stop = model.generation_config.eos_token_id
    stops = sorted(
        {
            token
            for token in [*(stop if isinstance(stop, list) else [stop]), tokenizer.eos_token_id]
            if token is not None
        }
    )
    config = GenerationConfig(
        max_new_tokens=settings.max_new_tokens, do_sample=False, pad_token_id=tokenizer.pad_token_id, eos_token_id=stops
    )

    @torch.no_grad()
    def sample(rows: Sequence[dict[str, Any]], seeds: Sequence[int]) -> list[str]:
        inputs = processor.apply_chat_template(
            [_conversation(row, settings.instruction) for row in rows],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "text_kwargs": {"padding_side": "left"}},
        )
        tensors = {
            name: value.to(device, model.dtype) if value.is_floating_point() else value.to(device)
            for name, value in inputs.items()
            if isinstance(value, torch.Tensor)
        }
        noise = LogitsProcessorList([SeededNoise(seeds, settings.temperature)] if settings.temperature else [])
        ids = model.generate(**tensors, generation_config=config, logits_processor=noise)
        new = ids[:, tensors["input_ids"].shape[1] :].tolist()
        return [_decoded(tokenizer, row, stops) for row in new]

    return sample


def _conversation(row: dict[str, Any], instruction: str) -> list[dict[str, Any]]:
    said = row.get("question") or row.get("prompt") or instruction
    content = [{"type": "image", "image": to_pil(row["image"])}, {"type": "text", "text": str(said)}]
    return [{"role": "user", "content": content}]


def _decoded(tokenizer: Any, ids: list[int], stops: list[int]) -> str:
    length = next((place for place, token in enumerate(ids) if token in stops), len(ids))
    return str(tokenizer.decode(ids[:length], skip_special_tokens=True)).strip()
