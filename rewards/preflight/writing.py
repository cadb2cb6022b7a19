"""A run of models that write, phase by phase, on shapes: the policy with its adapter, generation, one micro-batch."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from rewards.preflight.judging import rows_of, shown
from rewards.preflight.measuring import Measure
from rewards.preflight.models import CPU, build_model, described, dtype_of
from rewards.preflight.pretend import pretended, shapes_only
from rewards.preflight.report import Estimate
from rewards.trainers.language.settings import LanguageRunConfig

PROMPT_TOKENS = 48
"""Text tokens of a prompt beside its pictures: the chat template and a sentence."""


def estimate_writing(config: LanguageRunConfig, facts: list[str]) -> list[Estimate]:
    """Memory and work of an optimiser step's phases on one process.

    The loss is that of the policy gradient: log-probabilities of the completion's tokens from logits in float32, as
    TRL's trainers make them. A gradient step of PPO's value head is not counted apart.
    """
    settings, trainer = config.policy, config.trainer
    known = described(settings.path)
    dtype = dtype_of(settings.dtype, "float32" if "shapes" in settings.path else "bfloat16")
    rows = int(trainer.get("per_device_train_batch_size", 8))
    new = int(trainer.get("max_completion_length", 256))
    grown = int(trainer.get("gradient_accumulation_steps", 1))
    recompute = bool(trainer.get("gradient_checkpointing", True))
    with pretended(CPU), Measure() as measure:
        with shapes_only():
            model = build_model(settings.path, dtype)
        weights = measure.live
        if settings.lora_rank:
            with shapes_only():
                lora = LoraConfig(
                    r=settings.lora_rank, lora_alpha=settings.lora_alpha or settings.lora_rank,
                    target_modules=settings.lora_target_modules, task_type="CAUSAL_LM", init_lora_weights=False,
                )  # fmt: skip
                model = get_peft_model(model, lora)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        with_adapter = measure.live
        optimizer = torch.optim.AdamW(trained, lr=1e-5)
        base = model.get_base_model() if settings.lora_rank else model
        text = PROMPT_TOKENS + new
        inputs = rows_of(base, known, rows, text, dtype)
        updates = {}
        for recomputed in (False, True):
            if recomputed:
                base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            base.train()
            for _ in range(2):
                with measure.phase() as phase:
                    _micro_batch(base, inputs, new, dtype)
                    optimizer.step()
                    optimizer.zero_grad()
            updates[recomputed] = phase
    picture = shown_tokens(settings.path, dtype)
    cache = _cache_bytes(base.config.get_text_config(), dtype) * rows * grown * (picture + text)
    note = f"keys and values of {rows * grown} texts x {picture + text} tokens"
    if trainer.get("use_vllm"):
        cache, note = 0, f"vLLM holds {trainer.get('vllm_gpu_memory_utilization', 0.3):.0%} of the GPU beside this"
    parameters = sum(parameter.numel() for parameter in base.parameters())
    facts.append(f"{settings.path}: {picture} tokens a picture, {PROMPT_TOKENS} of text, {new} written at most")
    each = updates[recompute].flops * grown
    adapter = sum(parameter.nbytes for parameter in trained)
    return [
        Estimate.of("weights", weights, f"{parameters / 1e9:.2f} billion parameters, {str(dtype)[6:]}"),
        Estimate.of("adapter", with_adapter - weights, f"{adapter / 1e6:.0f} MB are trained"),
        Estimate.of("optimiser", 3 * adapter, "gradients and two moments"),
        Estimate.of("generation", with_adapter + 2 * adapter + cache, note, 2.0 * parameters * rows * grown * text),
        Estimate.of("update", updates[False].peak, f"{rows} texts at a time", each, used=not recompute),
        Estimate.of("update, activations recomputed", updates[True].peak, "gradient_checkpointing: true", each,
                    used=recompute),
    ]  # fmt: skip


def shown_tokens(name: str, dtype: torch.dtype) -> int:
    """Tokens that a picture becomes."""
    from transformers import AutoConfig

    known = described(name)
    config = AutoConfig.for_model(
        known["model_type"], **{k: v for k, v in known["config"].items() if k not in ("model_type", "dtype")}
    )
    with pretended(CPU):
        return shown(known, config, 1, dtype).tokens


def _micro_batch(model: Any, inputs: dict[str, Any], new: int, dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        hidden = model.model(**inputs, use_cache=False).last_hidden_state[:, -new - 1 :]
        logits = model.get_output_embeddings()(hidden)[:, :-1].float()
        targets = torch.ones(*logits.shape[:2], 1, dtype=torch.long)
        loss = -logits.log_softmax(-1).gather(2, targets).mean()
    loss.backward()


def _cache_bytes(config: Any, dtype: torch.dtype) -> int:
    """Keys and values of a token in all layers."""
    heads = config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * width * dtype.itemsize
