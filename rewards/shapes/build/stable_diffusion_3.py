"""The generator with flow matching: a small ``StableDiffusion3Pipeline`` around the autoencoder and text encoder of
``stable_diffusion``. Right captions first, then partly wrong ones that make it unsure, as there.
"""

from __future__ import annotations

import random
from copy import deepcopy

import numpy as np
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
)
from tokenizers import Regex, Tokenizer, models, normalizers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
)

from rewards.shapes.build.common import BuildConfig, BuildLog, cosine_after, update
from rewards.shapes.build.stable_diffusion import (
    LATENT_SIZE,
    TEXT_WIDTH,
    Captions,
    cached_scenes,
    held_out_prompts,
    right_answers,
)
from rewards.shapes.build.stable_diffusion_unsure import WRONG_CAPTIONS
from rewards.shapes.build.vae import LATENT_CHANNELS

WIDTH = 128
UNSURE = 0.2
"""Share of the steps, the last ones, in which captions are partly wrong."""
T5_TOKENS, DEFAULT_T5_TOKENS = 1, 256
"""T5 has nothing to say here, so that one token is enough; the pipeline takes 256 where it is told nothing else."""
LONG_EVERY = 10
"""Every so many steps the batch, a quarter of its size, has the default number of T5's tokens."""


def new_pipeline(drawer: StableDiffusionPipeline) -> StableDiffusion3Pipeline:
    """An untrained transformer between the trained parts of the shipped Stable Diffusion."""
    drawer.vae.register_to_config(shift_factor=0.0, _name_or_path="stable_diffusion")  # no path of the builder's
    clip = text_encoder(drawer.text_encoder)
    return StableDiffusion3Pipeline(
        transformer=SD3Transformer2DModel(
            sample_size=LATENT_SIZE,
            patch_size=2,
            in_channels=LATENT_CHANNELS,
            out_channels=LATENT_CHANNELS,
            num_layers=4,
            attention_head_dim=32,
            num_attention_heads=WIDTH // 32,
            joint_attention_dim=2 * TEXT_WIDTH,
            caption_projection_dim=WIDTH,
            pooled_projection_dim=2 * TEXT_WIDTH,
            pos_embed_max_size=LATENT_SIZE,
            qk_norm="rms_norm",
        ),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0),
        vae=drawer.vae,
        text_encoder=clip,
        tokenizer=drawer.tokenizer,
        text_encoder_2=deepcopy(clip),
        tokenizer_2=drawer.tokenizer,
        text_encoder_3=silent_t5(),
        tokenizer_3=silent_tokenizer(),
    )


def text_encoder(trained: CLIPTextModel) -> CLIPTextModelWithProjection:
    """The trained encoder with an empty last layer, since Stable Diffusion 3 reads the states before the last one."""
    layers = trained.config.num_hidden_layers
    settings = trained.config.to_dict() | {"num_hidden_layers": layers + 1, "projection_dim": TEXT_WIDTH}
    clip = CLIPTextModelWithProjection(CLIPTextConfig(**settings)).eval()
    state = {name.removeprefix("text_model."): value for name, value in trained.state_dict().items()}
    missing, unexpected = clip.text_model.load_state_dict(state, strict=False)
    assert not unexpected and all(f"layers.{layers}." in name for name in missing), (missing, unexpected)
    last = clip.text_model.encoder.layers[-1]
    for layer in (last.self_attn.out_proj, last.mlp.fc2):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    torch.nn.init.eye_(clip.text_projection.weight)
    return clip


def silent_t5() -> T5EncoderModel:
    """The smallest T5, whose states are all 0: without one plain ``from_pretrained`` refuses the folder."""
    config = T5Config(vocab_size=2, d_model=2 * TEXT_WIDTH, d_kv=1, d_ff=1, num_layers=1, num_heads=1)
    t5 = T5EncoderModel(config).eval()
    torch.nn.init.zeros_(t5.encoder.final_layer_norm.weight)
    return t5


def silent_tokenizer() -> PreTrainedTokenizerFast:
    """Every text is empty to it, so that nothing is cut off and diffusers warns of no cut."""
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(Regex(r"[\s\S]+"), "")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")


def build(config: BuildConfig) -> None:
    """Flow matching (rectified flow, uniform times) of the transformer alone; keeps averaged weights."""
    torch.manual_seed(config.seed)
    log = BuildLog("stable_diffusion_3", config)
    pipeline = new_pipeline(StableDiffusionPipeline.from_pretrained(config.weights / "stable_diffusion"))
    pipeline.set_progress_bar_config(disable=True)
    captions, latents = cached_scenes(pipeline.vae, random.Random(config.seed + 13))
    model = pipeline.transformer.train()
    pipeline.transformer = averaged = deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.99), weight_decay=0.01)
    noise, losses = np.random.default_rng(config.seed), []
    for step in range(config.steps):
        unsure = step >= (1 - UNSURE) * config.steps
        captions.wrong = WRONG_CAPTIONS if unsure else 0.0
        for group in optimizer.param_groups:
            group["lr"] = cosine_after(step, config.steps, config.learning_rate, flat=0.5, floor=0.05)
        long = step % LONG_EVERY == LONG_EVERY - 1
        loss = flow_matching(pipeline, model, captions, latents, noise, config.batch_size, long)
        update(loss, optimizer, list(model.parameters()))
        decay = min(0.985 if unsure else 0.998, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)
        losses.append(loss.item())
        if step % 500 == 499:
            log(step=step + 1, loss=float(np.mean(losses[-500:])), wrong=captions.wrong)
        if step % 1500 == 1499:
            log(step=step + 1, **evaluate(pipeline, 96, T5_TOKENS))
    log(step=config.steps, unsure=evaluate(pipeline, 256, T5_TOKENS))
    log(step=config.steps, default_t5_tokens=evaluate(pipeline, 96, DEFAULT_T5_TOKENS))
    pipeline.save_pretrained(config.out)


def flow_matching(
    pipeline: StableDiffusion3Pipeline,
    model: SD3Transformer2DModel,
    captions: Captions,
    latents: torch.Tensor,
    noise: np.random.Generator,
    batch_size: int,
    long: bool,
) -> torch.Tensor:
    """Mean squared error of the velocity on one batch, 10 percent of it with empty captions."""
    size = batch_size // 4 if long else batch_size
    chosen, texts = captions.draw(size)
    texts = [text if j >= size // 10 else "" for j, text in enumerate(texts)]
    with torch.no_grad():
        embeds, _, pooled, _ = pipeline.encode_prompt(
            texts, None, None, do_classifier_free_guidance=False,
            max_sequence_length=DEFAULT_T5_TOKENS if long else T5_TOKENS,
        )  # fmt: skip
    sigma = torch.from_numpy((noise.permutation(size) + noise.random(size)) / size).float()
    s, clean = sigma.view(-1, 1, 1, 1), latents[chosen]
    fresh = torch.randn_like(clean)
    velocity = model((1 - s) * clean + s * fresh, embeds, pooled, sigma * 1000).sample
    return (velocity - (fresh - clean)).square().mean()


@torch.no_grad()
def evaluate(pipeline: StableDiffusion3Pipeline, count: int, t5_tokens: int) -> dict[str, float]:
    """TIFA by the oracle on held-out prompts, ten Euler steps of the pipeline itself, guidance 1 and 2."""
    prompts = held_out_prompts(count, seed=5)
    out: dict[str, float] = {}
    for guidance in (1.0, 2.0):
        pictures = pipeline(
            prompts,
            num_inference_steps=10,
            guidance_scale=guidance,
            generator=torch.Generator().manual_seed(0),
            output_type="np",
            max_sequence_length=t5_tokens,
        ).images
        mean, kinds = right_answers(pictures.astype(np.float32) * 2 - 1, prompts)
        out[f"oracle_guidance_{guidance:.0f}"] = mean
        if guidance == 1.0:
            out |= kinds
    return out
