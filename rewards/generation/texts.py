"""Texts from a vision-language model: one batch of conversations in, one text each out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase, ProcessorMixin

Conversation = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class Written:
    """A text and the token ids that it was decoded from (without the end token)."""

    text: str
    ids: list[int]


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


@torch.no_grad()
def write_texts(
    model: Any,
    processor: ProcessorMixin,
    conversations: Sequence[Conversation],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    seeds: Sequence[int] | None = None,
) -> list[Written]:
    """Write one text a conversation, all in one batch.

    Args:
        model: an `AutoModelForImageTextToText` (with or without adapter), unwrapped.
        processor: its processor.
        conversations: messages whose content holds text and image blocks.
        max_new_tokens: longest text, in tokens.
        temperature: of the samples; 0 is greedy.
        seeds: one a conversation: its noise then comes from its seed alone. None: all noise comes from torch's own
            random state, so that it depends on the batch.
    """
    tokenizer = processor.tokenizer
    stops = _stop_tokens(model, tokenizer)
    own_noise = temperature > 0 and seeds is not None
    drawn: dict[str, bool | float] = {"do_sample": True, "temperature": temperature, "top_k": 0}
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=stops,
        **(drawn if temperature > 0 and not own_noise else {"do_sample": False}),
    )
    noise = LogitsProcessorList([SeededNoise(seeds or (), temperature)] if own_noise else [])
    inputs = _encode(processor, conversations, model)
    was_training = model.training
    model.eval()
    try:
        ids = model.generate(**inputs, generation_config=config, logits_processor=noise)
    finally:
        model.train(was_training)
    return [_decode(tokenizer, row, stops) for row in ids[:, inputs["input_ids"].shape[1] :].tolist()]


def write_batches(
    model: Any,
    processor: ProcessorMixin,
    conversations: Sequence[Conversation],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    batch_size: int = 16,
    seed: int = 0,
    first_batch: int = 0,
) -> list[Written]:
    """:func:`write_texts` batch by batch: the same arguments give the same texts, whatever was sampled before.

    Args:
        model, processor, conversations, max_new_tokens, temperature: as there.
        batch_size: conversations at a time. It belongs to the noise: another batch size gives other texts.
        seed: of the noise. torch's random state is left as it was.
        first_batch: number of the first batch, for callers that write a part of the batches (another process).
    """
    device = next(model.parameters()).device
    written: list[Written] = []
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for number, start in enumerate(range(0, len(conversations), batch_size), start=first_batch):
            torch.manual_seed(seed * 1_000_003 + number)
            batch = conversations[start : start + batch_size]
            written += write_texts(model, processor, batch, max_new_tokens=max_new_tokens, temperature=temperature)
    return written


def _encode(processor: Any, conversations: Sequence[Conversation], model: Any) -> dict[str, torch.Tensor]:
    device = next(model.parameters()).device
    inputs = processor.apply_chat_template(
        list(conversations),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "text_kwargs": {"padding_side": "left"}},
    )
    return {
        name: value.to(device, model.dtype) if value.is_floating_point() else value.to(device)
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor)
    }


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int], stops: Sequence[int]) -> Written:
    length = next((place for place, token in enumerate(ids) if token in stops), len(ids))
    return Written(str(tokenizer.decode(ids[:length], skip_special_tokens=True)), ids[:length])


def _stop_tokens(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    configured = model.generation_config.eos_token_id
    found = configured if isinstance(configured, list) else [configured]
    return sorted({token for token in [*found, tokenizer.eos_token_id] if token is not None})
