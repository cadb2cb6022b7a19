"""Texts from a vision-language policy for given prompts, with fixed noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig
from trl.data_utils import prepare_multimodal_messages

from rewards.images import to_pil


@dataclass(frozen=True)
class Generated:
    """A generated text and the token ids that it was decoded from (without the end token)."""

    text: str
    ids: list[int]


def row_pictures(row: Mapping[str, Any]) -> list[Any]:
    """The pictures of a dataset row in TRL's convention: column `images`, else `image`, else none.

    Example:
        >>> row_pictures({"image": "a.png"})
        ['a.png']
    """
    if row.get("images") is not None:
        return list(row["images"])
    return [row["image"]] if row.get("image") is not None else []


def messages_with_pictures(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row's conversational prompt with its pictures in it, as TRL's trainers build it."""
    return prepare_multimodal_messages(row["prompt"], images=[to_pil(picture) for picture in row_pictures(row)])


@torch.no_grad()
def generate_texts(
    model: Any,
    processor: Any,
    rows: Sequence[Mapping[str, Any]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    batch_size: int = 16,
    seed: int = 0,
    first_batch: int = 0,
) -> list[Generated]:
    """Sample one text a row; the same arguments give the same texts, whatever was sampled before.

    Args:
        model: an `AutoModelForImageTextToText` (with or without adapter), unwrapped.
        processor: its processor.
        rows: rows with a conversational `prompt` and `image` or `images`.
        max_new_tokens: longest text, in tokens.
        temperature: of the samples; 0 is greedy.
        batch_size: rows at a time. It belongs to the noise: another batch size gives other samples.
        seed: of the noise. The global random state is left as it was.
        first_batch: number of the first batch, for callers that generate a part of the batches (another process).

    Returns:
        One text a row.
    """
    tokenizer = processor.tokenizer
    sampling: dict[str, Any] = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature > 0 else {}
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=_stop_tokens(model, tokenizer),
        **{"do_sample": False, **sampling},
    )
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    generated: list[Generated] = []
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for number, start in enumerate(range(0, len(rows), batch_size), start=first_batch):
                torch.manual_seed(seed * 1_000_003 + number)
                batch = [rows[index] for index in range(start, min(start + batch_size, len(rows)))]
                inputs = _encode(processor, batch, device, model.dtype)
                ids = model.generate(**inputs, generation_config=config)[:, inputs["input_ids"].shape[1] :]
                generated += [_decode(tokenizer, row.tolist(), config.eos_token_id) for row in ids]
    finally:
        model.train(was_training)
    return generated


def _encode(processor: Any, rows: Sequence[Mapping[str, Any]], device: torch.device, dtype: Any) -> dict[str, Any]:
    inputs = processor.apply_chat_template(
        [messages_with_pictures(row) for row in rows],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "text_kwargs": {"padding_side": "left"}},
    )
    return {
        key: value.to(device, dtype) if value.is_floating_point() else value.to(device)
        for key, value in inputs.items()
        if isinstance(value, torch.Tensor)
    }


def _decode(tokenizer: Any, ids: list[int], stop: list[int]) -> Generated:
    length = next((place for place, token in enumerate(ids) if token in stop), len(ids))
    return Generated(tokenizer.decode(ids[:length], skip_special_tokens=True), ids[:length])


def _stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    configured = model.generation_config.eos_token_id
    found = configured if isinstance(configured, list) else [configured]
    return sorted({token for token in [*found, tokenizer.eos_token_id] if token is not None})
