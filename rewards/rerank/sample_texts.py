"""Texts from a vision-language model, the noise of each from a seed of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rewards.generation.checkpoints import load_writer
from rewards.generation.texts import write_texts
from rewards.images import to_pil
from rewards.judges.local import resolve_device, resolve_dtype
from rewards.rerank.generate_settings import GenerateSettings, Sampler


def text_sampler(settings: GenerateSettings, path: str) -> Sampler:
    """A function from rows (`image`, and `prompt` or `question`) and seeds to texts.

    Raises:
        InputError: no such checkpoint, or not a vision-language model.
    """
    device = resolve_device(settings.device)
    model, processor = load_writer(path, dtype=resolve_dtype(settings.dtype, device), revision=settings.revision)
    model = model.to(device).eval()

    def sample(rows: Sequence[Mapping[str, object]], seeds: Sequence[int]) -> list[str]:
        written = write_texts(
            model,
            processor,
            [_conversation(row, settings.instruction) for row in rows],
            max_new_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            seeds=seeds,
        )
        return [text.text.strip() for text in written]

    return sample


def _conversation(row: Mapping[str, object], instruction: str) -> list[dict[str, object]]:
    said = row.get("question") or row.get("prompt") or instruction
    content = [{"type": "image", "image": to_pil(row["image"])}, {"type": "text", "text": str(said)}]
    return [{"role": "user", "content": content}]
