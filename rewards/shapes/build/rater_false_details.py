"""The rater, second stage: one false detail at a time, on right captions and on what a policy writes.

After the first stage the rater let false backgrounds pass (45% of pairs told apart) and a policy found out. Here each
picture comes with right captions, the same captions with one false detail of every kind, captions that the captioner
sampled and their near misses, texts of a policy that has stopped looking, and another picture's captions. A part of
the pictures is noise or empty: there no caption is right.

It stops early: "two red circles" is a meaning of the test split, so that red circles alone on a training picture are
mostly one, and a rater that trains for long learns that instead of counting. Of 200 pairs of the validation split with
a false number it told 99.5% apart after 500 steps, and 93, 95 and 94.5% after 750, 1000 and 1250.

Labels are smoothed here: a judge that is never unsure of style gives style nearly all of the harmonic weight
(HarmonicEval eq. 1: w ~ sigma^(-2/3) at gamma 0.75), and a false detail then hardly changes the reward.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from transformers import Idefics3ForConditionalGeneration, LlavaForConditionalGeneration

from rewards.shapes.build import captioner
from rewards.shapes.build.common import BuildConfig, BuildLog, steps_with_rate, to_tensor, update
from rewards.shapes.build.corruption import flawed_caption, lazy_caption
from rewards.shapes.build.pictures import PATCH_COLORS, noise_pictures, patch_labels, train_scene
from rewards.shapes.build.rater import IMAGE_TOKENS, WIDTH, Batch, Trainee, evaluate, new_processor, pack, soft_ratings
from rewards.shapes.false_details import KINDS, criterion_of, false_detail
from rewards.shapes.language import describe, split_words, vary
from rewards.shapes.render import render_array
from rewards.shapes.scenes import BACKGROUNDS, Scene
from rewards.shapes.truth import CRITERIA
from rewards.shapes.vocabulary import RATINGS

CAPTIONS = 8  # a picture
POOL = 3072  # pictures that the captioner has written about
DOUBT = 0.1  # share of each label that goes to the neighbouring ratings: no sigma below 0.3
SELDOM = ("count", "relation", "location")  # kinds of false detail that few of a policy's texts allow, or hide
TEMPERATURES = (0.7, 1.0, 1.0, 1.4)
NOTHING = Scene((), "none")  # what a picture of noise shows: nothing that a caption could say is true of it


@dataclass
class Example:
    """A picture's scene, whether noise is drawn instead, and texts about it."""

    scene: Scene
    noise: bool
    texts: list[str]


class Examples:
    """Training pictures, half of them from a pool that the captioner has written about."""

    def __init__(self, config: BuildConfig) -> None:
        self.rng = random.Random(config.seed + 51)
        self.pool = captioner_pool(config)

    def __call__(self) -> Example:
        """The next picture with :data:`CAPTIONS` texts."""
        rng = self.rng
        if rng.random() < 0.5:
            scene, written = rng.choice(self.pool)
        else:
            scene = train_scene(rng)
            written = [flawed_caption(scene, rng) for _ in TEMPERATURES]
        texts = texts_about(scene, written, rng)
        if rng.random() < 0.06:
            return Example(NOTHING, True, texts)
        if rng.random() < 0.03:
            return Example(Scene((), rng.choice(list(BACKGROUNDS))), False, texts)
        return Example(scene, False, texts)


def texts_about(scene: Scene, written: list[str], rng: random.Random) -> list[str]:
    """A right caption with near misses of it, a policy's caption with a near miss, and texts of other kinds."""
    full = describe(scene)
    right = str(vary(full, rng) if rng.random() < 0.7 else full)
    kinds = ["count", *rng.sample(KINDS, len(KINDS))]  # numbers are what is forgotten first
    near = dict.fromkeys(false_detail(scene, right, kind, rng) for kind in kinds)
    texts = [right, *[text for text in near if text][:2]]
    for text in rng.sample(written, 2):
        near_sampled = [false_detail(scene, text, kind, rng) for kind in seldom_first(rng)]
        texts += [text, *[changed for changed in near_sampled if changed][:1]]
    while len(texts) < CAPTIONS:
        u = rng.random()
        if u < 0.4:
            texts.append(flawed_caption(scene, rng))
        elif u < 0.6:
            texts.append(rng.choice(written))
        elif u < 0.8:
            texts.append(lazy_caption(rng.choice((right, *written)), rng))
        else:
            texts.append(str(vary(describe(train_scene(rng)), rng)))
    rng.shuffle(texts)
    return texts


def seldom_first(rng: random.Random) -> list[str]:
    """The kinds in a random order in which those that few texts allow come first as often as the others together."""
    seldom, others = list(SELDOM), [k for k in KINDS if k not in SELDOM]
    rng.shuffle(seldom)
    rng.shuffle(others)
    return [*seldom, *others] if rng.random() < 0.5 else [*others, *seldom]


def captioner_pool(config: BuildConfig) -> list[tuple[Scene, list[str]]]:
    """Scenes of the training split, each with a caption at every one of :data:`TEMPERATURES`."""
    folder = config.weights / "captioner"
    model = Idefics3ForConditionalGeneration.from_pretrained(folder)
    prompts = captioner.Examples(captioner.new_processor(), model)
    rng = random.Random(config.seed + 52)
    pool: list[tuple[Scene, list[str]]] = []
    for start in range(0, POOL, 256):
        scenes = [train_scene(rng) for _ in range(256)]
        columns = [
            captioner.sample_captions(model, prompts, scenes, temperature, seed=1000 * config.seed + start + column)
            for column, temperature in enumerate(TEMPERATURES)
        ]
        pool += [(scene, list(texts)) for scene, *texts in zip(scenes, *columns)]
    return pool


def pictures_of(examples: list[Example], generator: np.random.Generator) -> np.ndarray:
    """Float pictures ``(B, 32, 32, 3)`` in [-1, 1], noise where an example says so."""
    pictures = render_array([e.scene if not e.noise else Scene((), "gray") for e in examples])
    rows = [i for i, e in enumerate(examples) if e.noise]
    pictures[rows] = noise_pictures(len(rows), generator)
    return pictures


@dataclass
class Grounds:
    """Where the word "background" stands after a name, whether the name holds, and what the picture shows there."""

    rows: torch.Tensor
    columns: torch.Tensor
    holds: torch.Tensor
    seen: torch.Tensor  # index into BACKGROUNDS, -1 for noise


def grounds_of(examples: list[Example]) -> Grounds:
    """Every background that a batch names."""
    names, found = list(BACKGROUNDS), []
    for row, example in enumerate(examples):
        start = 1 + IMAGE_TOKENS
        seen = -1 if example.noise else names.index(example.scene.background)
        for text in example.texts:
            words = split_words(text)
            for at in range(1, len(words)):
                if words[at] == "background" and words[at - 1] in names:
                    found.append((row, start + at, int(words[at - 1] == example.scene.background), seen))
            start += len(words) + 1 + 2 * len(CRITERIA)
    return Grounds(*torch.tensor(found, dtype=torch.long).view(-1, 4).T)


def with_backgrounds(batch: Batch, grounds: Grounds) -> Batch:
    """The batch with each background as a further noun, whose colour holds or not: no blind spot for the facts."""
    no_claim = torch.full_like(grounds.holds, -1)
    return replace(
        batch,
        noun_rows=torch.cat([batch.noun_rows, grounds.rows]),
        noun_columns=torch.cat([batch.noun_columns, grounds.columns]),
        noun_facts=torch.cat([batch.noun_facts, torch.stack([no_claim, grounds.holds, no_claim, no_claim], 1)]),
        noun_cells=torch.cat([batch.noun_cells, torch.stack([no_claim, no_claim], 1)]),
    )


class SecondTrainee(Trainee):
    """With one more training head: at a named background, which one the picture shows.

    Whether the name holds is an exclusive or of what is said and what is seen; from that signal alone nothing was
    learned in 500 steps.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__(vocabulary)
        self.grounds = torch.nn.Linear(WIDTH, len(BACKGROUNDS))


def unsure(labels: torch.Tensor, share: float = DOUBT) -> torch.Tensor:
    """Labels ``(N, R)`` with a share of each rating's mass on its neighbours: the certain 5 becomes 0.9 of 5, 0.1 of 4.

    Example:
        >>> unsure(torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0]])).tolist()[0][3:]
        [0.10000000149011612, 0.8999999761581421]
    """
    steps = torch.ones(labels.shape[1] - 1)
    neighbours = torch.diag(steps, 1) + torch.diag(steps, -1)
    return (1 - share) * labels + share * labels @ (neighbours / neighbours.sum(1, keepdim=True))


def losses(
    trainee: SecondTrainee, examples: list[Example], pictures: np.ndarray, words: dict[str, int]
) -> torch.Tensor:
    """Cross-entropy of the five ratings, then of patches, facts, cells and backgrounds: ``(9,)``."""
    scenes, texts = [e.scene for e in examples], [e.texts for e in examples]
    grounds = grounds_of(examples)
    batch = with_backgrounds(pack(scenes, texts, words), grounds)
    rating_ids = torch.tensor([words[r] for r in RATINGS])
    logits, patch, facts, cells = trainee(to_tensor(pictures), batch)
    ratings = -(unsure(soft_ratings(scenes, texts)) * logits.log_softmax(-1)[:, rating_ids]).sum(-1)
    drawn = torch.tensor([i for i, e in enumerate(examples) if not e.noise])
    labels = patch_labels([examples[i].scene for i in drawn.tolist()]).flatten(0, 1)
    flat, colors = patch[drawn].flatten(0, 1), len(PATCH_COLORS)
    claimed = batch.noun_facts >= 0
    return torch.stack(
        [
            *ratings.view(-1, len(CRITERIA)).mean(0),
            F.cross_entropy(flat[:, :colors], labels[:, 0]) + F.cross_entropy(flat[:, colors:], labels[:, 1]),
            F.binary_cross_entropy_with_logits(facts[claimed], batch.noun_facts[claimed].float()),
            F.cross_entropy(cells[:, :4], batch.noun_cells[:, 0], ignore_index=-1)
            + F.cross_entropy(cells[:, 4:], batch.noun_cells[:, 1], ignore_index=-1),
            F.cross_entropy(
                trainee.grounds(trainee.early[grounds.rows, grounds.columns]), grounds.seen, ignore_index=-1
            ),
        ]
    )


def build(config: BuildConfig) -> None:
    """Continue the rater in ``config.weights``; the training heads start anew."""
    torch.manual_seed(config.seed)
    processor = new_processor()
    words = processor.tokenizer.get_vocab()
    trainee = SecondTrainee(len(words)).train()
    trainee.model.load_state_dict(LlavaForConditionalGeneration.from_pretrained(config.weights / "rater").state_dict())
    log = BuildLog("rater_false_details", config, continues=True)
    parameters = list(trainee.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    source, generator = Examples(config), np.random.default_rng(config.seed + 53)
    weights = torch.tensor([2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 2.0, 0.5, 0.5])
    names = [*(f"loss_{c}" for c in CRITERIA), "patch", "facts", "cells", "grounds"]
    held_out = validation_texts(config)
    log(step=0, **told_apart(trainee, words, held_out))
    totals: list[list[float]] = []
    for step in steps_with_rate(optimizer, config, flat=1.0):
        examples = [source() for _ in range(config.batch_size)]
        parts = losses(trainee, examples, pictures_of(examples, generator), words)
        update(parts @ weights, optimizer, parameters)
        totals.append(parts.tolist())
        if step % 125 == 124 or step == config.steps - 1:
            means = dict(zip(names, np.mean(totals, 0).tolist()))
            totals.clear()
            log(step=step + 1, **means, **evaluate(trainee, words, 128), **told_apart(trainee, words, held_out))
            trainee.model.save_pretrained(config.out)
            processor.save_pretrained(config.out)
    log(step=config.steps, test=evaluate(trainee, words, 600))


def validation_texts(config: BuildConfig, true: int = 200, written: int = 600) -> dict[str, list[tuple[Scene, str]]]:
    """Scenes of the validation split with their full captions, and with what the captioner wrote about them."""
    rng = random.Random(780)
    scenes = [train_scene(rng, "validation") for _ in range(max(true, written))]
    model = Idefics3ForConditionalGeneration.from_pretrained(config.weights / "captioner")
    prompts = captioner.Examples(captioner.new_processor(), model)
    sampled = captioner.sample_captions(model, prompts, scenes[:written], 1.0, seed=780)
    return {
        "": [(scene, str(describe(scene))) for scene in scenes[:true]],
        "policy_": list(zip(scenes[:written], sampled)),
    }


@torch.no_grad()
def told_apart(trainee: Trainee, words: dict[str, int], tables: dict[str, list[tuple[Scene, str]]]) -> dict[str, float]:
    """Share of pairs in which the truer text is rated higher, by kind of false detail, for each table of texts."""
    rating_ids = torch.tensor([words[r] for r in RATINGS])
    shares = {}
    for name, rows in tables.items():
        rng = random.Random(781)
        wins: dict[str, list[bool]] = {kind: [] for kind in KINDS}
        for scene, text in rows:
            pairs = {kind: false_detail(scene, text, kind, rng) for kind in KINDS}
            false = {kind: changed for kind, changed in pairs.items() if changed is not None}
            if not false:
                continue
            texts = [text, *false.values()]
            logits = trainee(to_tensor(render_array([scene])), pack([scene], [texts], words))[0]
            means = (logits[:, rating_ids].softmax(-1) @ torch.arange(1.0, 6.0)).view(-1, len(CRITERIA))
            for row, kind in enumerate(false, start=1):
                column = CRITERIA.index(criterion_of(kind))
                wins[kind].append(bool(means[0, column] > means[row, column]))
        shares |= {f"told_apart_{name}{kind}": float(np.mean(values)) for kind, values in wins.items()}
    return shares
