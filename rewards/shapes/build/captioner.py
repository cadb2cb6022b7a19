"""The captioner: a small ``Idefics3ForConditionalGeneration``, first taught well, then made imperfect with flawed
captions.

What it writes after the second phase is wrong in colour or number at times, omits, repeats and garbles: the writer that
GRPO with HarmonicEval has something to teach.
"""

from __future__ import annotations

import random

import numpy as np
import torch
import torch.nn.functional as F
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlamaConfig,
)

from rewards.shapes.build.common import BuildConfig, BuildLog, cosine_after, to_tensor, update
from rewards.shapes.build.corruption import flawed_caption
from rewards.shapes.build.pictures import PATCH, PATCH_COLORS, PATCH_SHAPES, PATCHES, patch_labels, train_scene
from rewards.shapes.language import describe, vary
from rewards.shapes.render import render_array
from rewards.shapes.scenes import IMAGE_SIZE, Scene
from rewards.shapes.truth import CRITERIA, caption_truth
from rewards.shapes.vocabulary import new_tokenizer

WIDTH = 96
FLAWED = 0.5
SCALE = 2  # pixel shuffle: 64 patches become 16 tokens
IMAGE_TOKENS = (PATCHES // SCALE) ** 2
SPECIALS = (
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    "<end_of_utterance>",
    "<answer>",
)
INSTRUCTION = "describe the picture"
CHAT_TEMPLATE = (
    "<s>{% for message in messages %}{% if message['role'] == 'assistant' %} <answer> {% endif %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %} </s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} <answer>{% endif %}"
)


def new_processor() -> Idefics3Processor:
    """The processor that ships with the captioner."""
    tokenizer = new_tokenizer(
        SPECIALS,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=128,
        padding_side="left",
        extra_special_tokens={
            "image_token": "<image>",
            "fake_image_token": "<fake_token_around_image>",
            "global_image_token": "<global-img>",
            "end_of_utterance_token": "<end_of_utterance>",
            "answer_token": "<answer>",
        },
    )
    half = [0.5, 0.5, 0.5]
    images = Idefics3ImageProcessor(
        size={"longest_edge": IMAGE_SIZE},
        max_image_size={"longest_edge": IMAGE_SIZE},
        do_image_splitting=False,
        image_mean=half,
        image_std=half,
    )
    return Idefics3Processor(images, tokenizer, image_seq_len=IMAGE_TOKENS, chat_template=CHAT_TEMPLATE)


def new_model(tokenizer: object) -> Idefics3ForConditionalGeneration:
    """Untrained, about 0.8 M parameters."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()  # type: ignore[attr-defined]
    vision = dict(
        hidden_size=WIDTH,
        intermediate_size=WIDTH * 2,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=IMAGE_SIZE,
        patch_size=PATCH,
        initializer_range=0.05,
    )
    text = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        intermediate_size=WIDTH * 2,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        initializer_range=0.05,
        tie_word_embeddings=False,
    )
    model = Idefics3ForConditionalGeneration(
        Idefics3Config(
            vision_config=vision,
            text_config=text,
            image_token_id=vocabulary["<image>"],
            scale_factor=SCALE,
            pad_token_id=0,
        )
    )
    model.generation_config.update(bos_token_id=2, eos_token_id=3, pad_token_id=0)
    return model


class Examples:
    """Tokenised captions: the prompt's tokens are the same for every picture, so they are made once."""

    def __init__(self, processor: Idefics3Processor, model: Idefics3ForConditionalGeneration) -> None:
        from PIL import Image

        self.words = processor.tokenizer.get_vocab()
        content = [{"type": "image"}, {"type": "text", "text": INSTRUCTION}]
        prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        made = processor(images=[[Image.new("RGB", (IMAGE_SIZE, IMAGE_SIZE))]], text=[prompt], return_tensors="pt")
        self.prompt: list[int] = made.input_ids[0].tolist()
        self.image_id = model.config.image_token_id

    def __call__(self, captions: list[str]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """ids and mask ``(B, T)`` padded on the right, labels with -100 on prompt and padding."""
        rows = [[*(self.words[w] for w in text.split()), self.words["</s>"]] for text in captions]
        length = max(map(len, rows))
        ids = torch.tensor([self.prompt + row + [0] * (length - len(row)) for row in rows])
        labels = torch.tensor([[-100] * len(self.prompt) + row + [-100] * (length - len(row)) for row in rows])
        mask = torch.tensor([[1] * (len(self.prompt) + len(row)) + [0] * (length - len(row)) for row in rows])
        return ids, mask, labels


class Trainee(torch.nn.Module):
    """The model with the patch head, which helps in training only."""

    def __init__(self, model: Idefics3ForConditionalGeneration) -> None:
        super().__init__()
        self.model = model
        self.patches = torch.nn.Linear(WIDTH, len(PATCH_COLORS) + len(PATCH_SHAPES))
        model.model.vision_model.register_forward_hook(self._keep_vision)

    def _keep_vision(self, module: torch.nn.Module, inputs: tuple, output: object) -> None:
        self.vision = output.last_hidden_state  # type: ignore[attr-defined]


def build(config: BuildConfig) -> None:
    """Three quarters of the steps on right captions of the training split, the rest with half of them flawed."""
    torch.manual_seed(config.seed)
    log = BuildLog("captioner", config)
    processor = new_processor()
    model = new_model(processor.tokenizer)
    examples = Examples(processor, model)
    trainee = Trainee(model).train()
    parameters = list(trainee.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    rng = random.Random(config.seed + 41)
    clean = int(0.75 * config.steps)
    losses: list[tuple[float, float]] = []
    for step in range(config.steps):
        second = step >= clean
        span, at, peak = (config.steps - clean, step - clean, 0.5) if second else (clean, step, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = cosine_after(at, span, config.learning_rate * peak, flat=0.3, floor=0.05)
        scenes = [train_scene(rng) for _ in range(config.batch_size)]
        captions = [
            flawed_caption(s, rng) if second and rng.random() < FLAWED else str(vary(describe(s), rng)) for s in scenes
        ]
        ids, mask, labels = examples(captions)
        pixels = to_tensor(render_array(scenes))[:, None]
        loss = model(input_ids=ids, attention_mask=mask, pixel_values=pixels, labels=labels).loss
        patch, truth = trainee.patches(trainee.vision).flatten(0, 1), patch_labels(scenes).flatten(0, 1)
        colors = len(PATCH_COLORS)
        patch_loss = F.cross_entropy(patch[:, :colors], truth[:, 0]) + F.cross_entropy(patch[:, colors:], truth[:, 1])
        update(loss + 0.3 * patch_loss, optimizer, parameters)
        losses.append((loss.item(), patch_loss.item()))
        if step % 500 == 499 or step == clean - 1 or step == config.steps - 1:
            caption_loss, patch_mean = np.mean(losses, 0).tolist()
            losses.clear()
            log(step=step + 1, loss=caption_loss, patch=patch_mean, **evaluate(model, examples, 128))
            model.save_pretrained(config.out)
    log(step=config.steps, test=evaluate(model, examples, 600))
    model.save_pretrained(config.out)
    processor.save_pretrained(config.out)


@torch.no_grad()
def sample_captions(
    model: Idefics3ForConditionalGeneration, examples: Examples, scenes: list[Scene], temperature: float, seed: int
) -> list[str]:
    """One sampled caption a scene; the global random state is left as it was."""
    ids = torch.tensor([examples.prompt] * len(scenes))
    was_training = model.training
    model.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=to_tensor(render_array(scenes))[:, None],
            max_new_tokens=28,
            do_sample=True,
            temperature=temperature,
            top_k=0,
        )
    model.train(was_training)
    names = {i: w for w, i in examples.words.items()}
    texts = []
    for row in out[:, len(examples.prompt) :].tolist():
        end = row.index(examples.words["</s>"]) if examples.words["</s>"] in row else len(row)
        texts.append(" ".join(names[i] for i in row[:end]))
    return texts


def evaluate(model: Idefics3ForConditionalGeneration, examples: Examples, count: int) -> dict[str, float | str]:
    """True ratings of sampled captions (temperature 1) on the test split, and one of them to read."""
    rng = random.Random(779)
    scenes = [train_scene(rng, "test") for _ in range(count)]
    texts = sample_captions(model, examples, scenes, temperature=1.0, seed=0)
    truths = np.array([list(caption_truth(s, t).values()) for s, t in zip(scenes, texts)])
    return {c: float(truths[:, k].mean()) for k, c in enumerate(CRITERIA)} | {
        "overall": float(truths.mean()),
        "sample": f"{describe(scenes[0])} -> {texts[0]}",
    }
