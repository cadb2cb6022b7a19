"""A run of models that write, phase by phase, on shapes: the policy with its adapter, generation, one micro-batch."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from rewards.preflight.judging import rows_of, shown
from rewards.preflight.layers import Known, Numbers, by_layers
from rewards.preflight.measuring import Measure
from rewards.preflight.models import CPU, build_model, config_of, described, dtype_of
from rewards.preflight.pretend import pretended, shapes_only
from rewards.preflight.report import Estimate, Knob
from rewards.trainers.language.settings import LanguageRunConfig, PolicySettings

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
    of = by_layers(known, lambda part: _measured(part, settings, rows, new, dtype))
    text = config_of(known).get_text_config()
    with pretended(CPU):
        picture = shown(known, config_of(known), 1, dtype).tokens
    tokens, texts = picture + PROMPT_TOKENS + new, rows * grown
    cache = _cache_bytes(text, dtype) * texts
    held, adapter = of["held"], of["trained"]
    note = f"keys and values of {texts} texts x {tokens} tokens"
    writing = Knob("trainer.max_completion_length", new, held + cache * (tokens - new))
    if trainer.get("use_vllm"):
        cache, note = 0, f"vLLM holds {trainer.get('vllm_gpu_memory_utilization', 0.3):.0%} of the GPU beside this"
    learning = Knob("trainer.per_device_train_batch_size", rows, held + adapter,
                    "trainer.gradient_accumulation_steps", grown)  # fmt: skip
    facts.append(f"{settings.path}: {picture} tokens a picture, {PROMPT_TOKENS} of text, {new} written at most")
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


def _measured(known: Known, settings: PolicySettings, rows: int, new: int, dtype: torch.dtype) -> Numbers:
    """Bytes of weights, adapter and a micro-batch with its optimiser step, with and without recomputed activations."""
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
        inputs = rows_of(base, known, rows, PROMPT_TOKENS + new, dtype)
        for how in ("", ", recomputed"):
            if how:
                base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            base.train()
            with measure.phase() as phase:
                _micro_batch(base, inputs, new, dtype)
                optimizer.step()
                optimizer.zero_grad()
            of |= {f"update{how}": phase.peak, f"FLOPs{how}": phase.flops}
    return of


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
