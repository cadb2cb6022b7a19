"""The generator: a small ``StableDiffusionPipeline``, taught on right captions; its second stage makes it unsure."""

from __future__ import annotations

import random
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

from rewards.shapes.build.common import BuildConfig, BuildLog, cosine_after, to_tensor, update
from rewards.shapes.build.corruption import corrupt_scene
from rewards.shapes.build.pictures import train_scene
from rewards.shapes.build.vae import LATENT_CHANNELS
from rewards.shapes.language import RELATIONS, Description, describe, vary
from rewards.shapes.oracle import answer, look
from rewards.shapes.questions import meaning, questions_for
from rewards.shapes.render import render_array
from rewards.shapes.scenes import BACKGROUNDS, COLORS, SHAPES, Scene, sample_scene
from rewards.shapes.vocabulary import new_tokenizer

TEXT_WIDTH = 96
MAX_WORDS = 16
LATENT_SIZE = 8
_COLORS, _BACKGROUNDS = list(COLORS), list(BACKGROUNDS)
# The caption's meaning as classes: count, colour and shape of two phrases, the relation, the background.
MEANING_SIZES = (
    3,
    len(_COLORS),
    len(SHAPES),
    len(RELATIONS) + 1,
    4,
    len(_COLORS) + 1,
    len(SHAPES) + 1,
    len(_BACKGROUNDS) + 1,
)


def new_scheduler() -> DDIMScheduler:
    """x0-prediction with zero terminal SNR and trailing spacing: five steps are enough at this size."""
    return DDIMScheduler(
        num_train_timesteps=1000,
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        clip_sample=False,
        set_alpha_to_one=True,
        prediction_type="sample",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        steps_offset=1,  # trailing spacing does not use it; diffusers warns of any other value
    )


def new_pipeline(vae: AutoencoderKL) -> StableDiffusionPipeline:
    """An untrained pipeline of the shipped shape around a trained autoencoder."""
    tokenizer = new_tokenizer(
        ("<pad>", "<unk>", "<s>", "</s>"),
        "<s> $A </s>",
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=MAX_WORDS,
    )
    text = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=TEXT_WIDTH,
            intermediate_size=TEXT_WIDTH * 4,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=MAX_WORDS,
            bos_token_id=2,
            eos_token_id=3,
            pad_token_id=0,
            projection_dim=TEXT_WIDTH,
            hidden_act="gelu",
        )
    )
    unet = UNet2DConditionModel(
        sample_size=LATENT_SIZE,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        down_block_types=("CrossAttnDownBlock2D",) * 2,
        up_block_types=("CrossAttnUpBlock2D",) * 2,
        block_out_channels=(64, 128),
        layers_per_block=1,
        cross_attention_dim=TEXT_WIDTH,
        attention_head_dim=4,
        norm_num_groups=8,
    )
    return StableDiffusionPipeline(
        vae=vae,
        text_encoder=text,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=new_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def meaning_classes(caption: str) -> list[int]:
    """The class of each entry of ``MEANING_SIZES``."""
    said: Description = meaning(caption)
    first, second = said.phrases[0], said.phrases[1] if len(said.phrases) > 1 else None
    return [
        (first.count or 1) - 1,
        _COLORS.index(first.color or ""),
        SHAPES.index(first.shape or ""),
        RELATIONS.index(said.relation) if said.relation else len(RELATIONS),
        second.count or 0 if second else 0,
        _COLORS.index(second.color or "") if second else len(_COLORS),
        SHAPES.index(second.shape or "") if second else len(SHAPES),
        _BACKGROUNDS.index(said.background) if said.background else len(_BACKGROUNDS),
    ]


class Captions:
    """Captions of cached scenes, of the training split only, a share of them partly wrong."""

    def __init__(self, scenes: list[Scene], rng: random.Random) -> None:
        self.scenes, self.rng, self.wrong = scenes, rng, 0.0

    def draw(self, count: int) -> tuple[list[int], list[str]]:
        """Indices of scenes and what is said of each."""
        chosen: list[int] = []
        texts: list[str] = []
        while len(chosen) < count:
            index = self.rng.randrange(len(self.scenes))
            scene = self.scenes[index]
            if self.rng.random() < self.wrong:
                scene = corrupt_scene(scene, self.rng)
            said = vary(describe(scene), self.rng)
            if said.split() == "train" and len(said.phrases) <= 2:
                chosen.append(index)
                texts.append(str(said))
        return chosen, texts


def build(config: BuildConfig) -> None:
    """Text encoder alone, then all jointly."""
    torch.manual_seed(config.seed)
    log = BuildLog("stable_diffusion", config)
    vae = AutoencoderKL.from_pretrained(config.weights / "vae").eval().requires_grad_(False)
    pipeline = new_pipeline(vae)
    pipeline.unet.to(memory_format=torch.channels_last)
    captions, latents = cached_scenes(vae, random.Random(config.seed + 11))
    head = torch.nn.Linear(TEXT_WIDTH, sum(MEANING_SIZES))
    _pretrain_text(pipeline, head, captions, steps=min(300, config.steps))
    train(pipeline, head, captions, latents, config, log, ema=0.998)
    log(step=config.steps, clean=evaluate(pipeline, 256))
    pipeline.unet.to(memory_format=torch.contiguous_format)
    pipeline.save_pretrained(config.out)


@torch.no_grad()
def cached_scenes(vae: AutoencoderKL, rng: random.Random, count: int = 8000) -> tuple[Captions, torch.Tensor]:
    """Scenes of the training split with their latents ``(count, 8, 8, 8)``."""
    scenes = [train_scene(rng) for _ in range(count)]
    latents = [vae.encode(to_tensor(render_array(scenes[i : i + 64]))).latent_dist.mean for i in range(0, count, 64)]
    return Captions(scenes, rng), torch.cat(latents)


def _ids(pipeline: StableDiffusionPipeline, texts: list[str]) -> torch.Tensor:
    return pipeline.tokenizer(
        texts, padding="max_length", max_length=MAX_WORDS, truncation=True, return_tensors="pt"
    ).input_ids


def _meaning_loss(head: torch.nn.Linear, ids: torch.Tensor, states: torch.Tensor, texts: list[str]) -> torch.Tensor:
    """The last token's state must hold the caption's meaning: without it the text encoder learns slowly."""
    rows = [i for i, text in enumerate(texts) if text]
    logits = head(states[rows, (ids[rows] == 3).int().argmax(1)]).split(MEANING_SIZES, 1)
    classes = torch.tensor([meaning_classes(texts[i]) for i in rows])
    return torch.stack([F.cross_entropy(part, classes[:, j]) for j, part in enumerate(logits)]).sum()


def _pretrain_text(pipeline: StableDiffusionPipeline, head: torch.nn.Linear, captions: Captions, steps: int) -> None:
    parameters = [*pipeline.text_encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    for _ in range(steps):
        _, texts = captions.draw(128)
        ids = _ids(pipeline, texts)
        update(_meaning_loss(head, ids, pipeline.text_encoder(ids)[0], texts), optimizer, parameters)


def train(
    pipeline: StableDiffusionPipeline,
    head: torch.nn.Linear,
    captions: Captions,
    latents: torch.Tensor,
    config: BuildConfig,
    log: BuildLog,
    ema: float,
) -> None:
    """Denoising with loss weight 1 / max(1 - alpha_bar, 0.2) and 10 percent empty captions; keeps averaged weights."""
    models = [pipeline.unet.train(), pipeline.text_encoder.train()]
    averaged = [deepcopy(m).eval() for m in models]
    weights = [p for m in models for p in m.parameters()]
    mean_weights = [p for m in averaged for p in m.parameters()]
    parameters = [*weights, *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, betas=(0.9, 0.99), weight_decay=0.01)
    alphas = pipeline.scheduler.alphas_cumprod
    noise = np.random.default_rng(config.seed)
    losses = []
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = cosine_after(step, config.steps, config.learning_rate, flat=0.5, floor=0.05)
        chosen, texts = captions.draw(config.batch_size)
        texts = [text if j >= config.batch_size // 10 else "" for j, text in enumerate(texts)]
        clean = latents[chosen]
        spread = (noise.permutation(config.batch_size) + noise.random(config.batch_size)) / config.batch_size
        t = torch.from_numpy(spread * 1000).long().clamp(0, 999)
        a = alphas[t].view(-1, 1, 1, 1)
        noisy = a.sqrt() * clean + (1 - a).sqrt() * torch.randn_like(clean)
        ids = _ids(pipeline, texts)
        states = pipeline.text_encoder(ids)[0]
        error = (pipeline.unet(noisy, t, states).sample - clean).pow(2).mean((1, 2, 3))
        denoising = (error / (1 - a.flatten()).clamp(min=0.2)).mean()
        update(denoising + 0.02 * _meaning_loss(head, ids, states, texts), optimizer, parameters)
        decay = min(ema, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(mean_weights, weights, 1 - decay)
        losses.append(denoising.item())
        if step % 500 == 499:
            log(step=step + 1, loss=float(np.mean(losses[-500:])), wrong=captions.wrong)
            if step % 2000 == 1999:
                log(step=step + 1, **evaluate(pipeline, 96, averaged))
    for model, mean in zip(models, averaged):
        model.load_state_dict(mean.state_dict())
        model.eval()


@torch.no_grad()
def evaluate(
    pipeline: StableDiffusionPipeline, count: int, models: list[torch.nn.Module] | None = None
) -> dict[str, float]:
    """TIFA by the oracle on held-out prompts, ten deterministic DDIM steps, guidance 1 and 2, by element type."""
    unet, text = models or [pipeline.unet, pipeline.text_encoder]
    prompts = held_out_prompts(count, seed=5)
    scheduler = new_scheduler()
    out: dict[str, float] = {}
    for guidance in (1.0, 2.0):
        generator = torch.Generator().manual_seed(0)
        states = text(_ids(pipeline, [*prompts, *[""] * count]))[0]
        x = torch.randn(count, LATENT_CHANNELS, LATENT_SIZE, LATENT_SIZE, generator=generator)
        scheduler.set_timesteps(10)
        for t in scheduler.timesteps:
            with_text, without = unet(torch.cat([x, x]), t, states).sample.chunk(2)
            x = scheduler.step(without + guidance * (with_text - without), t, x).prev_sample
        pictures = (
            torch.cat([pipeline.vae.decode(part).sample for part in x.split(64)])
            .clamp(-1, 1)
            .permute(0, 2, 3, 1)
            .numpy()
        )
        mean, kinds = right_answers(pictures, prompts)
        out[f"oracle_guidance_{guidance:.0f}"] = mean
        if guidance == 1.0:
            out |= kinds
    return out


def right_answers(pictures: np.ndarray, prompts: list[str]) -> tuple[float, dict[str, float]]:
    """TIFA by the oracle of pictures ``(N, 32, 32, 3)`` in [-1, 1]: the mean, and the share right by element type."""
    scores: list[float] = []
    kinds: dict[str, list[bool]] = {}
    for picture, prompt in zip(pictures, prompts):
        seen, asked = look(picture), questions_for(prompt)
        hits = [answer(seen, q.text) == q.answer for q in asked]
        scores.append(float(np.mean(hits)))
        for q, hit in zip(asked, hits):
            kinds.setdefault(q.element_type, []).append(hit)
    return float(np.mean(scores)), {kind: round(float(np.mean(v)), 3) for kind, v in sorted(kinds.items())}


def held_out_prompts(count: int, seed: int) -> list[str]:
    """Captions of the test split with at most two phrases."""
    rng = random.Random(seed)
    out: list[str] = []
    while len(out) < count:
        said = vary(describe(sample_scene(rng)), rng)
        if said.split() == "test":
            out.append(str(said))
    return out
