"""The VQA judge, second stage: generated pictures with malformed, merged, missing and extra shapes.

A judge that has only seen drawn scenes says yes too easily to what a generator makes. Here half of each batch is
made by the shipped generator for prompts of the training split and labelled by the oracle; the other half is as in
the first stage.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from transformers import BlipForQuestionAnswering

from rewards.shapes.build.common import BuildConfig, BuildLog, steps_with_rate, to_tensor, update
from rewards.shapes.build.corruption import corrupt_scene
from rewards.shapes.build.pictures import PictureSource, patch_labels, train_scene
from rewards.shapes.build.scene_questions import TrainingQuestion, sample_questions
from rewards.shapes.build.vqa_judge import QUESTIONS, Trainee, evaluate, losses, new_processor
from rewards.shapes.language import describe, vary
from rewards.shapes.oracle import answer, look
from rewards.shapes.prompts import generator_prompts
from rewards.shapes.questions import questions_for

POOL = 4096


def build(config: BuildConfig) -> None:
    """Continue the judge in ``config.out``; the training heads start anew."""
    torch.manual_seed(config.seed)
    log = BuildLog("vqa_judge_generated", config, continues=True)
    processor = new_processor()
    words = processor.tokenizer.get_vocab()
    trainee = Trainee(len(words)).train()
    trainee.model.load_state_dict(BlipForQuestionAnswering.from_pretrained(config.out).state_dict())
    pool = generated_pool(config, words)
    held_out = generated_pool(config, words, split="validation", count=256)
    log(step=0, generated_accuracy=_generated_accuracy(trainee, words, held_out))
    parameters = list(trainee.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    source, rng = PictureSource(config.seed + 5, config.weights / "vae"), random.Random(config.seed + 6)
    totals: list[float] = []
    half = config.batch_size // 2
    for step in steps_with_rate(optimizer, config, flat=0.2):
        scenes, pictures = source(half)
        asked = [sample_questions(scene, rng, QUESTIONS) for scene in scenes]
        answers, patches, grounds, first, _ = losses(trainee, words, to_tensor(pictures), asked, patch_labels(scenes))
        chosen = [pool[rng.randrange(len(pool))] for _ in range(half)]
        made = [rng.choices(questions, k=QUESTIONS) for _, questions in chosen]
        generated = losses(trainee, words, to_tensor(np.stack([picture for picture, _ in chosen])), made, None)[0]
        update(answers + 0.5 * first + 0.2 * (patches + grounds) + generated, optimizer, parameters)
        totals.append(generated.item())
        if step % 250 == 249 or step == config.steps - 1:
            accuracy = _generated_accuracy(trainee, words, held_out)
            log(
                step=step + 1,
                generated=float(np.mean(totals)),
                generated_accuracy=accuracy,
                **evaluate(trainee, words, 256),
            )
            totals.clear()
    log(step=config.steps, test=evaluate(trainee, words, 1500))
    trainee.model.save_pretrained(config.out)
    processor.save_pretrained(config.out)


Pool = list[tuple[np.ndarray, list[TrainingQuestion]]]


@torch.no_grad()
def generated_pool(config: BuildConfig, words: dict[str, int], split: str = "train", count: int = POOL) -> Pool:
    """Pictures of the generator with questions on what was asked for and on near misses, answered by the oracle."""
    pipeline = StableDiffusionPipeline.from_pretrained(config.weights / "stable_diffusion")
    pipeline.set_progress_bar_config(disable=True)
    rng = random.Random(f"{config.seed}/{split}")
    prompts = generator_prompts(split, min(count, 600), seed=config.seed)
    pool: Pool = []
    for start in range(0, count, 64):
        batch = rng.choices(prompts, k=min(64, count - start))
        steps, eta, guidance = rng.choice([(5, 1.0, 1.0), (5, 1.0, 1.0), (10, 0.0, 1.0), (5, 0.0, 2.0)])
        pictures = pipeline(
            batch,
            num_inference_steps=steps,
            eta=eta,
            guidance_scale=guidance,
            output_type="np",
            generator=torch.Generator().manual_seed(config.seed * 1_000_003 + start),
        ).images
        for picture, prompt in zip(pictures.astype(np.float32) * 2 - 1, batch):
            questions = _questions(picture, prompt, rng, words)
            if questions:
                pool.append((picture, questions))
    return pool


def _questions(picture: np.ndarray, prompt: str, rng: random.Random, words: dict[str, int]) -> list[TrainingQuestion]:
    seen = look(picture)
    near = str(vary(describe(corrupt_scene(train_scene(rng), rng)), rng))
    rows = []
    for question in (*questions_for(prompt) * 2, *questions_for(near)):
        true = answer(seen, question.text)
        if true in words and true not in ("none", "many"):
            rows.append(TrainingQuestion(question.element_type, question.text, true, ()))
    return rows


@torch.no_grad()
def _generated_accuracy(trainee: Trainee, words: dict[str, int], pool: Pool) -> float:
    """Agreement with the oracle on generated pictures of prompts that were not trained on."""
    hits = []
    for start in range(0, len(pool), 64):
        part = pool[start : start + 64]
        pictures = to_tensor(np.stack([picture for picture, _ in part]))
        hits.append(losses(trainee, words, pictures, [questions for _, questions in part], None)[4])
    return float(np.mean(hits))
