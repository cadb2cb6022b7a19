"""The rater: a small ``LlavaForConditionalGeneration`` that answers HarmonicEval's prompts in a short form.

One picture and several flawed captions share a row: the picture's tokens once, each caption seen by its own five
criteria only. The rating is a soft label between the two nearest whole numbers of the true rating. Heads used in
training only: colour and shape of each patch, and at each noun whether number, colour and shape hold and which cell
it points to.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import kendalltau
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from rewards.shapes.build.common import BuildConfig, BuildLog, steps_with_rate, to_tensor, update
from rewards.shapes.build.corruption import flawed_caption
from rewards.shapes.build.pictures import PATCH, PATCH_COLORS, PATCH_SHAPES, PATCHES, patch_labels, train_scene
from rewards.shapes.language import Reading, describe, read, split_words
from rewards.shapes.render import render_array
from rewards.shapes.scenes import IMAGE_SIZE, Scene
from rewards.shapes.truth import CRITERIA, caption_truth, match_phrases, relation_holds
from rewards.shapes.vocabulary import RATINGS, new_tokenizer

WIDTH = 128
LAYERS = 4
CAPTIONS = 4  # a picture
IMAGE_TOKENS = PATCHES**2
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>", "<image>", "<rate>")
PAD, UNK, START, IMAGE, RATE = 0, 1, 2, 4, 5
CHAT_TEMPLATE = (
    "<s>{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %} <rate>{% endif %}"
)
PROMPTS = {"captioning": {criterion: "{text} . " + criterion for criterion in CRITERIA}}


def new_processor() -> LlavaProcessor:
    """The processor that ships with the rater."""
    tokenizer = new_tokenizer(
        SPECIALS,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=256,
        padding_side="left",
        extra_special_tokens={"image_token": "<image>", "rate_token": "<rate>"},
    )
    half, size = [0.5, 0.5, 0.5], {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    images = CLIPImageProcessor(size=size, crop_size=size, do_center_crop=False, image_mean=half, image_std=half)
    return LlavaProcessor(
        images,
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token="<image>",
        chat_template=CHAT_TEMPLATE,
    )


def new_model(vocabulary: int) -> LlavaForConditionalGeneration:
    """Untrained, about 1.5 M parameters."""
    vision = CLIPVisionConfig(
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=IMAGE_SIZE,
        patch_size=PATCH,
        projection_dim=96,
    )
    text = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=WIDTH * 2,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        max_position_embeddings=256,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=3,
        initializer_range=0.05,
        tie_word_embeddings=False,
    )
    return LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=vision,
            text_config=text,
            image_token_id=IMAGE,
            vision_feature_layer=-1,
            vision_feature_select_strategy="default",
        )
    )


@dataclass
class Batch:
    """Packed rows: ids and positions ``(B, M)``, mask ``(B, 1, M, M)``; where ratings and nouns are, and their
    labels.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    rate_rows: torch.Tensor
    rate_columns: torch.Tensor
    noun_rows: torch.Tensor
    noun_columns: torch.Tensor
    noun_facts: torch.Tensor  # (nouns, 4) number, colour, shape, relation: 1, 0 or -1 for no claim
    noun_cells: torch.Tensor  # (nouns, 2) row and column, 3 for not there, -1 for several


def pack(scenes: list[Scene], captions: list[list[str]], words: dict[str, int]) -> Batch:
    """Rows of ``<s> image ... | caption . | criterion <rate>``; a token sees the picture, its caption and its own
    branch.
    """
    rows = []
    for texts in captions:
        ids, positions, branches = (
            [START, *[IMAGE] * IMAGE_TOKENS],
            list(range(1 + IMAGE_TOKENS)),
            [(-1, -1)] * (1 + IMAGE_TOKENS),
        )
        for c, text in enumerate(texts):
            body = [words.get(w, UNK) for w in split_words(text)] + [words["."]]
            ids += body
            positions += range(1 + IMAGE_TOKENS, 1 + IMAGE_TOKENS + len(body))
            branches += [(c, -1)] * len(body)
            for k, criterion in enumerate(CRITERIA):
                ids += [words[criterion], RATE]
                positions += [1 + IMAGE_TOKENS + len(body), 2 + IMAGE_TOKENS + len(body)]
                branches += [(c, k)] * 2
        rows.append((ids, positions, branches))
    length = max(len(ids) for ids, _, _ in rows)
    ids, positions = np.full((len(rows), length), PAD), np.zeros((len(rows), length), np.int64)
    caption_of, criterion_of = np.full((2, len(rows), length), -2)
    for b, (row_ids, row_positions, branches) in enumerate(rows):
        ids[b, : len(row_ids)], positions[b, : len(row_ids)] = row_ids, row_positions
        caption_of[b, : len(row_ids)], criterion_of[b, : len(row_ids)] = np.array(branches).T
    key_caption, key_criterion = caption_of[:, None, :], criterion_of[:, None, :]
    query_caption, query_criterion = caption_of[:, :, None], criterion_of[:, :, None]
    sees = (key_caption == -1) | (
        (key_caption == query_caption) & ((key_criterion == -1) | (key_criterion == query_criterion))
    )
    sees &= np.tril(np.ones((length, length), bool)) & (key_caption != -2)
    sees |= np.eye(length, dtype=bool)  # padding sees itself, so that no softmax is empty
    mask = np.where(sees, 0, -1e4).astype(np.float32)[:, None]
    rate = np.argwhere(ids == RATE)
    nouns = [n for b, texts in enumerate(captions) for n in _nouns(b, scenes[b], texts)]
    table = np.array([n[:2] for n in nouns] or [(0, 0)])
    facts = torch.tensor([n[2] for n in nouns] or [(-1,) * 4])
    cells = torch.tensor([n[3] for n in nouns] or [(-1, -1)])
    tensors = map(torch.from_numpy, (ids, positions, mask, rate[:, 0], rate[:, 1], table[:, 0], table[:, 1]))
    return Batch(*tensors, facts, cells)


def _nouns(row: int, scene: Scene, texts: list[str]) -> list[tuple[int, int, tuple[int, ...], tuple[int, int]]]:
    """(row, column, facts, cell) of each noun in a packed row."""
    out = []
    start = 1 + IMAGE_TOKENS
    full, groups = describe(scene), list(scene.groups().values())
    for text in texts:
        reading: Reading = read(text)
        facts = match_phrases(reading.phrases, full.phrases)
        related = {left + 1: holds for (left, _), holds in zip(reading.relations, relation_holds(reading, full, facts))}
        for i, (at, fact) in enumerate(zip(reading.noun_positions, facts)):
            claims = (fact.count, fact.color, fact.shape, related.get(i))
            cell = (
                (3, 3)
                if fact.group is None
                else groups[fact.group][0].cell
                if len(groups[fact.group]) == 1
                else (-1, -1)
            )
            out.append((row, start + at, tuple(-1 if c is None else int(c) for c in claims), cell))
        start += reading.words + 1 + 2 * len(CRITERIA)
    return out


def soft_ratings(scenes: list[Scene], captions: list[list[str]]) -> torch.Tensor:
    """True ratings as distributions over 1 to 5, ``(B * CAPTIONS * C, 5)``, with the true rating as their mean."""
    values = torch.tensor(
        [list(caption_truth(s, t).values()) for s, texts in zip(scenes, captions) for t in texts]
    ).flatten()
    return (1 - (values[:, None] - torch.arange(1.0, 6.0)).abs()).clamp(min=0)


class Trainee(torch.nn.Module):
    """The model with its training heads."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.model = new_model(vocabulary)
        self.patches = torch.nn.Linear(96, len(PATCH_COLORS) + len(PATCH_SHAPES))
        self.facts = torch.nn.Linear(WIDTH, 4)
        self.cells = torch.nn.Linear(WIDTH, 8)
        layers = self.model.model.language_model.layers
        layers[LAYERS // 2 - 1].register_forward_hook(self._keep_early)
        layers[LAYERS // 2].register_forward_hook(self._keep_middle)

    def _keep_early(self, module: torch.nn.Module, inputs: tuple, output: object) -> None:
        self.early = output[0] if isinstance(output, tuple) else output

    def _keep_middle(self, module: torch.nn.Module, inputs: tuple, output: object) -> None:
        self.middle = output[0] if isinstance(output, tuple) else output

    def forward(
        self, pixels: torch.Tensor, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Vocabulary logits at each ``<rate>``, patch logits, fact logits and cell logits at each noun."""
        core = self.model.model
        vision = core.vision_tower(pixels, output_hidden_states=True).hidden_states[-1][:, 1:]
        embeddings = core.language_model.embed_tokens(batch.ids)
        embeddings = torch.cat(
            [embeddings[:, :1], core.multi_modal_projector(vision), embeddings[:, 1 + IMAGE_TOKENS :]], 1
        )
        states = core.language_model(
            inputs_embeds=embeddings, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
        ).last_hidden_state
        logits = self.model.lm_head(states[batch.rate_rows, batch.rate_columns])
        cells = self.cells(self.early[batch.noun_rows, batch.noun_columns])
        return logits, self.patches(vision), self.facts(self.middle[batch.noun_rows, batch.noun_columns]), cells


def build(config: BuildConfig) -> None:
    """Train on fresh scenes of the training split with flawed captions."""
    torch.manual_seed(config.seed)
    log = BuildLog("rater", config)
    processor = new_processor()
    words = processor.tokenizer.get_vocab()
    rating_ids = torch.tensor([words[r] for r in RATINGS])
    trainee = Trainee(len(words)).train()
    parameters = list(trainee.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    rng = random.Random(config.seed + 31)
    totals: list[tuple[float, ...]] = []
    for step in steps_with_rate(optimizer, config, flat=0.4, warmup=200):
        scenes = [train_scene(rng) for _ in range(config.batch_size)]
        captions = [[flawed_caption(scene, rng) for _ in range(CAPTIONS)] for scene in scenes]
        batch, target = pack(scenes, captions, words), soft_ratings(scenes, captions)
        logits, patch, facts, cells = trainee(to_tensor(render_array(scenes)), batch)
        rating = -(target * logits.log_softmax(-1)[:, rating_ids]).sum(-1).view(-1, len(CRITERIA)).mean(0)
        labels = patch_labels(scenes).flatten(0, 1)
        colors, flat = len(PATCH_COLORS), patch.flatten(0, 1)
        patch_loss = F.cross_entropy(flat[:, :colors], labels[:, 0]) + F.cross_entropy(flat[:, colors:], labels[:, 1])
        claimed = batch.noun_facts >= 0
        fact_loss = F.binary_cross_entropy_with_logits(facts[claimed], batch.noun_facts[claimed].float())
        cell_loss = F.cross_entropy(cells[:, :4], batch.noun_cells[:, 0], ignore_index=-1) + F.cross_entropy(
            cells[:, 4:], batch.noun_cells[:, 1], ignore_index=-1
        )
        update(rating.sum() + patch_loss + fact_loss * 2 + 0.5 * cell_loss, optimizer, parameters)
        totals.append((*rating.tolist(), patch_loss.item(), fact_loss.item(), cell_loss.item()))
        if step % 500 == 499 or step == config.steps - 1:
            *ratings, patch_mean, fact_mean, cell_mean = np.mean(totals, 0).tolist()
            totals.clear()
            losses = {f"loss_{c}": v for c, v in zip(CRITERIA, ratings)}
            log(
                step=step + 1,
                patch=patch_mean,
                facts=fact_mean,
                cells=cell_mean,
                **losses,
                **evaluate(trainee, words, 128),
            )
            trainee.model.save_pretrained(config.out)
    log(step=config.steps, test=evaluate(trainee, words, 600))
    trainee.model.save_pretrained(config.out)
    processor.save_pretrained(config.out)
    (config.out / "harmonic_prompts.json").write_text(json.dumps(PROMPTS, indent=2) + "\n")


@torch.no_grad()
def evaluate(trainee: Trainee, words: dict[str, int], count: int) -> dict[str, float]:
    """Kendall's tau-b of each criterion with the truth, on the test split."""
    rng = random.Random(778)
    scenes = [train_scene(rng, "test") for _ in range(count)]
    captions = [[flawed_caption(scene, rng) for _ in range(CAPTIONS)] for scene in scenes]
    rating_ids = torch.tensor([words[r] for r in RATINGS])
    guesses, truths = [], []
    for i in range(0, count, 32):
        logits = trainee(
            to_tensor(render_array(scenes[i : i + 32])), pack(scenes[i : i + 32], captions[i : i + 32], words)
        )[0]
        guesses.append((logits[:, rating_ids].softmax(-1) @ torch.arange(1.0, 6.0)).view(-1, len(CRITERIA)))
        truths.append(
            (soft_ratings(scenes[i : i + 32], captions[i : i + 32]) @ torch.arange(1.0, 6.0)).view(-1, len(CRITERIA))
        )
    guess, truth = torch.cat(guesses), torch.cat(truths)
    return {f"tau_{c}": float(kendalltau(guess[:, k], truth[:, k]).statistic) for k, c in enumerate(CRITERIA)}
