"""A run of models that write, phase by phase, on shapes: the policy with its adapter, generation, one micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoProcessor

from rewards.errors import InputError
from rewards.generation.checkpoints import PRESETS
from rewards.judges.prompting import Prompting
from rewards.preflight.judging import rows_of, shown
from rewards.preflight.layers import Known, Numbers, by_layers
from rewards.preflight.measuring import Measure
from rewards.preflight.models import CPU, build_model, config_of, described, dtype_of
from rewards.preflight.pretend import pretended, shapes_only
from rewards.preflight.report import Estimate, Knob
from rewards.trainers.language.data import load_prompts
from rewards.trainers.language.settings import LanguageRunConfig, PolicySettings
from rewards.trl_inputs import prompt_text

PROMPT_TOKENS = 48
"""Text tokens of a prompt beside its pictures, the chat template's included, where the prompts are not here."""

TILE = (4096, 32_768)
"""Positions and words of TRL's tile of logits (`TOKEN_CHUNK_SIZE`, `_CHUNKED_LOGPROB_CHUNK_SIZE`): it has room for so
many words however small the vocabulary is."""


def estimate_writing(config: LanguageRunConfig, facts: list[str]) -> list[Estimate]:
    """Memory and work of an optimiser step's phases on one process.

    The loss is that of the policy gradient: log-probabilities from logits in tiles, as TRL's trainers make them. A
    gradient step of PPO's value head is not counted apart.
    """
    settings, trainer = config.policy, config.trainer
    known = described(settings.path)
    on_gpu = "shapes" not in settings.path  # the packaged models are trained on a CPU
    dtype = dtype_of(settings.dtype, "bfloat16" if on_gpu else "float32")
    rows = int(trainer.get("per_device_train_batch_size", 8))
    new = int(trainer.get("max_completion_length", 256))
    grown = int(trainer.get("gradient_accumulation_steps", 1))
    recompute = bool(trainer.get("gradient_checkpointing", on_gpu))
    prompt = _prompt_tokens(config)
    of = by_layers(known, lambda part: _measured(part, settings, rows, (prompt, new), dtype, on_gpu))
    text = config_of(known).get_text_config()
    with pretended(CPU):
        picture = shown(known, config_of(known), 1, dtype).tokens
    tokens, texts = picture + prompt + new, rows * grown
    cache = _cache_bytes(text, dtype) * texts
    held, adapter = of["held"], of["trained"]
    note = f"keys and values of {texts} texts x {tokens} tokens"
    writing = Knob("trainer.max_completion_length", new, held + cache * (tokens - new))
    if trainer.get("use_vllm"):
        cache, note = 0, f"vLLM holds {trainer.get('vllm_gpu_memory_utilization', 0.3):.0%} of the GPU beside this"
    tile = min(rows * (new if on_gpu else tokens), TILE[0]) * TILE[1] * dtype.itemsize  # may be full with fewer rows
    learning = Knob("trainer.per_device_train_batch_size", rows, held + adapter + tile,
                    "trainer.gradient_accumulation_steps", grown)  # fmt: skip
    facts.append(f"{settings.path}: {picture} tokens a picture, {prompt} of text, {new} written at most")
    phase, each = Estimate.of, f"{rows} texts at a time"
    return [
        phase("weights", of["weights"], f"{of['parameters'] / 1e9:.2f} billion parameters, {str(dtype)[6:]}"),
        phase("adapter", of["with adapter"] - of["weights"], f"{adapter / 1e6:.0f} MB are trained"),
        phase("optimiser", 3 * adapter, "gradients and two moments"),
        phase("generation", held + cache * tokens, note, 2.0 * of["parameters"] * texts * tokens,
              knob=writing if cache else None),
        phase("update", of["update"], each, of["FLOPs"] * grown, used=not recompute, knob=learning),
        phase("update, activations recomputed", of["update, recomputed"], "gradient_checkpointing: true",
              of["FLOPs, recomputed"] * grown, used=recompute, knob=learning),
    ]  # fmt: skip


def _prompt_tokens(config: LanguageRunConfig) -> int:
    """Text tokens of the first held-out prompt, if prompts and processor are here; nothing is downloaded."""
    source = config.data.source
    if ":" not in source and not Path(source).exists():
        return PROMPT_TOKENS
    try:
        path = PRESETS.get(config.policy.path, config.policy.path)
        processor = AutoProcessor.from_pretrained(path, local_files_only=True)
        first = load_prompts(config.data, config.data.held_out)[0]
    except (InputError, OSError, ValueError):
        return PROMPT_TOKENS
    rendered = Prompting(processor).render(prompt_text(first["prompt"]) or "", 1)
    return len(processor.tokenizer(rendered)["input_ids"]) - 1  # one of them stands for the picture


def _measured(
    known: Known, settings: PolicySettings, rows: int, text: tuple[int, int], dtype: torch.dtype, on_gpu: bool
) -> Numbers:
    """Bytes of weights, adapter, and a micro-batch with its step, with and without recomputed activations.

    Args:
        text: Tokens of a prompt and of what is written.
        on_gpu: TRL projects only what is written there, every position elsewhere.
    """
    with pretended(CPU), Measure() as measure:
        model = base = build_model(known, dtype)
        of: Numbers = {"weights": measure.live, "parameters": sum(one.numel() for one in base.parameters())}
        if settings.lora_rank:
            lora = LoraConfig(
                r=settings.lora_rank, lora_alpha=settings.lora_alpha or settings.lora_rank,
                target_modules=settings.lora_target_modules, task_type="CAUSAL_LM", init_lora_weights=False,
            )  # fmt: skip
            with shapes_only():
                model = get_peft_model(model, lora)
            base = model.get_base_model()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        of |= {"with adapter": measure.live, "trained": sum(one.nbytes for one in trained)}
        optimizer = torch.optim.AdamW(trained, lr=1e-5)
        for one in trained:
            moments = {"exp_avg": torch.zeros_like(one), "exp_avg_sq": torch.zeros_like(one)}
            optimizer.state[one] = {"step": torch.zeros(()), **moments}
        of["held"] = measure.live
        inputs = rows_of(base, known, rows, sum(text), dtype)
        for how in ("", ", recomputed"):
            if how:
                base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            base.train()
            with measure.phase() as phase:
                _micro_batch(base, inputs, text[1] if on_gpu else 0, dtype)
                optimizer.step()
                optimizer.zero_grad()
            of |= {f"update{how}": phase.peak, f"FLOPs{how}": phase.flops}
    return of


def _micro_batch(model: Any, inputs: dict[str, Any], last: int, dtype: torch.dtype) -> None:
    """A loss of the `last` positions, of all with 0."""
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        hidden = model.model(**inputs, use_cache=False).last_hidden_state
    hidden = hidden[:, -last - 1 if last else 0 : -1].flatten(0, 1).to(dtype)
    _LogProbs.apply(hidden, model.get_output_embeddings().weight).mean().backward()


class _LogProbs(torch.autograd.Function):
    """What `trl.kernels.ChunkedLogProbFunction` holds and computes: logits tile by tile, anew in the backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight)
        for _ in _tiles(hidden, weight):
            pass
        return hidden.float().sum(-1)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        hidden, weight = ctx.saved_tensors
        to_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for tile, positions, words in _tiles(hidden, weight):
            to_hidden[positions] += tile @ weight[words]
            if to_weight is not None:
                to_weight[words] += tile.t() @ hidden[positions]
        return to_hidden.to(hidden.dtype), None if to_weight is None else to_weight.to(weight.dtype)


def _tiles(hidden: torch.Tensor, weight: torch.Tensor) -> Iterator[tuple[torch.Tensor, slice, slice]]:
    """Logits in one buffer that is written again and again, with the positions and words that they are of."""
    buffer = hidden.new_empty(min(len(hidden), TILE[0]), TILE[1])
    for at in range(0, len(hidden), TILE[0]):
        for first in range(0, len(weight), TILE[1]):
            positions, words = slice(at, at + TILE[0]), slice(first, first + TILE[1])
            tile = buffer[: len(hidden[positions]), : len(weight[words])]
            torch.mm(hidden[positions], weight[words].t(), out=tile)
            yield tile, positions, words


def _cache_bytes(config: Any, dtype: torch.dtype) -> int:
    """Keys and values of a token in all layers."""
    heads = config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * width * dtype.itemsize
