"""The VQA judge: a small ``BlipForQuestionAnswering``, 0.94 M parameters, trained on questions of all types.

Eight questions a picture are packed into one row with a block mask. Three heads help in training only: colour and
shape of each patch, the answer from the first token, and the cell that each noun points to (spatial accuracy leaves
chance when that loss falls).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from transformers import BlipConfig, BlipForQuestionAnswering, BlipImageProcessor, BlipProcessor

from rewards.shapes.build.common import BuildConfig, BuildLog, steps_with_rate, to_tensor, update
from rewards.shapes.build.pictures import PATCH, PATCH_COLORS, PATCH_SHAPES, PictureSource, patch_labels, train_scene
from rewards.shapes.build.scene_questions import TrainingQuestion, sample_questions
from rewards.shapes.language import PLURALS
from rewards.shapes.render import render_array
from rewards.shapes.scenes import IMAGE_SIZE, SHAPES
from rewards.shapes.vocabulary import new_tokenizer

WIDTH = 96
QUESTIONS = 8
MAX_TOKENS = 20
NOUNS = {*SHAPES, *PLURALS, "object", "objects"}
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[BOS]")
PAD, CLS, SEP, BOS = 0, 2, 3, 4


def new_processor() -> BlipProcessor:
    """The processor that ships with the judge: pictures as they are in [-1, 1], one token a word."""
    tokenizer = new_tokenizer(
        SPECIALS,
        "[CLS] $A [SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        bos_token="[BOS]",
        eos_token="[SEP]",
        model_max_length=48,
    )
    half = [0.5, 0.5, 0.5]
    images = BlipImageProcessor(size={"height": IMAGE_SIZE, "width": IMAGE_SIZE}, image_mean=half, image_std=half)
    return BlipProcessor(images, tokenizer)


def new_model(vocabulary: int) -> BlipForQuestionAnswering:
    """Untrained; ``initializer_range`` is set because BLIP's default vision range of 1e-10 does not learn."""
    common = dict(
        hidden_size=WIDTH,
        intermediate_size=WIDTH * 2,
        projection_dim=WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        initializer_range=0.05,
    )
    text = dict(
        common,
        vocab_size=vocabulary,
        encoder_hidden_size=WIDTH,
        max_position_embeddings=48,
        bos_token_id=BOS,
        eos_token_id=SEP,
        pad_token_id=PAD,
        sep_token_id=SEP,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    vision = dict(common, image_size=IMAGE_SIZE, patch_size=PATCH)
    config = BlipConfig(
        text_config=text,
        vision_config=vision,
        projection_dim=WIDTH,
        image_text_hidden_size=WIDTH,
        initializer_range=0.05,
    )
    return BlipForQuestionAnswering(config)


@dataclass
class Packed:
    """Several questions a picture in one row: ids and positions ``(B, M)``, mask ``(B, 1, M, M)``, and where each
    question's tokens went: ``gather`` and ``present`` ``(Q, MAX_TOKENS)`` into the flattened rows."""

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    gather: torch.Tensor
    present: torch.Tensor


def pack(rows: list[list[list[int]]]) -> Packed:
    """Pack token lists, one list of questions a picture."""
    length = max(sum(map(len, row)) for row in rows)
    ids, positions = np.zeros((2, len(rows), length), np.int64)
    owner = np.full((len(rows), length), -1)
    count = sum(map(len, rows))
    gather, present = np.zeros((2, count, MAX_TOKENS), np.int64)
    k = 0
    for b, row in enumerate(rows):
        start = 0
        for q, tokens in enumerate(row):
            end = start + len(tokens)
            ids[b, start:end], positions[b, start:end], owner[b, start:end] = tokens, range(len(tokens)), q
            gather[k] = b * length + start
            gather[k, : len(tokens)] += np.arange(len(tokens))
            present[k, : len(tokens)] = 1
            start, k = end, k + 1
    mask = np.where(owner[:, :, None] == owner[:, None, :], 0, -1e4).astype(np.float32)[:, None]
    return Packed(*map(torch.from_numpy, (ids, positions, mask, gather, present)))


class Trainee(torch.nn.Module):
    """The model with its three training heads."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.model = new_model(vocabulary)
        self.patches = torch.nn.Linear(WIDTH, len(PATCH_COLORS) + len(PATCH_SHAPES))
        self.cells = torch.nn.Linear(WIDTH, 8)  # row and column, each 0, 1, 2 or absent
        self.first = torch.nn.Linear(WIDTH, vocabulary)
        # Grounding reads the middle layer: the last one is free to hold the answer.
        self.model.text_encoder.encoder.layer[1].register_forward_hook(self._keep_middle)

    def _keep_middle(self, module: torch.nn.Module, inputs: tuple, output: object) -> None:
        self.middle = output[0] if isinstance(output, tuple) else output

    def forward(self, pixels: torch.Tensor, packed: Packed, answers: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Answer logits ``(Q, 2, V)`` (the word, then the end), image states, middle states, first-token states."""
        image = self.model.vision_model(pixel_values=pixels).last_hidden_state
        encoded = self.model.text_encoder(
            input_ids=packed.ids,
            position_ids=packed.positions,
            attention_mask=packed.mask,
            encoder_hidden_states=image,
            encoder_attention_mask=torch.ones(image.shape[:2], dtype=torch.long),
        )[0]
        states = encoded.reshape(-1, WIDTH)[packed.gather]
        decoder_ids = torch.stack([torch.full_like(answers, BOS), answers], 1)
        logits = self.model.text_decoder(
            input_ids=decoder_ids, encoder_hidden_states=states, encoder_attention_mask=packed.present
        ).logits
        return logits, image, self.middle.reshape(-1, WIDTH)[packed.gather], states[:, 0]


def tokenise(words: dict[str, int], question: str) -> list[int]:
    """[CLS] words [SEP], faster than the tokenizer and equal to it on the grammar's questions."""
    return [CLS, *(words[w] for w in question.replace("?", " ?").split()), SEP]


def build(config: BuildConfig) -> None:
    """Train with blurred pictures for 40 percent of the steps, then with decoded ones."""
    torch.manual_seed(config.seed)
    log = BuildLog("vqa_judge", config)
    processor = new_processor()
    words = processor.tokenizer.get_vocab()
    trainee = Trainee(len(words)).train()
    parameters = list(trainee.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    source, rng = PictureSource(config.seed + 2, None), random.Random(config.seed + 3)
    totals: list[tuple[float, ...]] = []
    for step in steps_with_rate(optimizer, config, flat=0.4, warmup=200):
        if step == int(0.4 * config.steps):
            source = PictureSource(config.seed + 4, config.weights / "vae")
        scenes, pictures = source(config.batch_size)
        asked = [sample_questions(scene, rng, QUESTIONS) for scene in scenes]
        answer_loss, patch_loss, ground_loss, first_loss, right = losses(
            trainee, words, to_tensor(pictures), asked, patch_labels(scenes)
        )
        update(answer_loss + 0.5 * first_loss + patch_loss + 0.5 * ground_loss, optimizer, parameters)
        totals.append((answer_loss.item(), patch_loss.item(), ground_loss.item(), right))
        if step % 500 == 499 or step == config.steps - 1:
            answer, patch, ground, train = np.mean(totals, 0).tolist()
            totals.clear()
            log(
                step=step + 1,
                answer=answer,
                patch=patch,
                ground=ground,
                train_accuracy=train,
                **evaluate(trainee, words, 256),
            )
            trainee.model.save_pretrained(config.out)
    log(step=config.steps, test=evaluate(trainee, words, 1500))
    trainee.model.save_pretrained(config.out)
    processor.save_pretrained(config.out)


def losses(
    trainee: Trainee,
    words: dict[str, int],
    pixels: torch.Tensor,
    asked: list[list[TrainingQuestion]],
    patches: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Answer, patch, grounding and first-token losses, and the share of right answers."""
    flat = [q for row in asked for q in row]
    answers = torch.tensor([words[q.answer] for q in flat])
    packed = pack([[tokenise(words, q.text) for q in row] for row in asked])
    logits, image, middle, first = trainee(pixels, packed, answers)
    answer_loss = F.cross_entropy(logits[:, 0], answers) + 0.1 * F.cross_entropy(
        logits[:, 1], torch.full_like(answers, SEP)
    )
    where, cells = [], []
    for k, q in enumerate(flat):
        nouns = [j + 1 for j, w in enumerate(q.text.replace("?", " ?").split()) if w in NOUNS]
        for j, cell in zip(nouns, q.grounds):
            if cell is not None:
                where.append((k, j))
                cells.append(cell)
    zero = torch.zeros(())
    ground_loss = patch_loss = zero
    if where:
        index, target = torch.tensor(where), torch.tensor(cells)
        guess = trainee.cells(middle[index[:, 0], index[:, 1]])
        ground_loss = F.cross_entropy(guess[:, :4], target[:, 0]) + F.cross_entropy(guess[:, 4:], target[:, 1])
    if patches is not None:
        patch = trainee.patches(image[:, 1:]).flatten(0, 1)
        colors = len(PATCH_COLORS)
        patch_loss = F.cross_entropy(patch[:, :colors], patches[..., 0].flatten()) + F.cross_entropy(
            patch[:, colors:], patches[..., 1].flatten()
        )
    right = (logits[:, 0].argmax(-1) == answers).float().mean().item()
    return answer_loss, patch_loss, ground_loss, F.cross_entropy(trainee.first(first), answers), right


@torch.no_grad()
def evaluate(trainee: Trainee, words: dict[str, int], count: int) -> dict[str, float]:
    """Accuracy by question type on clean scenes of the test split."""
    rng = random.Random(777)
    scenes = [train_scene(rng, "test") for _ in range(count)]
    asked = [sample_questions(scene, rng, QUESTIONS) for scene in scenes]
    hits: dict[str, list[bool]] = {}
    for i in range(0, count, 64):
        rows = asked[i : i + 64]
        flat = [q for row in rows for q in row]
        answers = torch.tensor([words[q.answer] for q in flat])
        packed = pack([[tokenise(words, q.text) for q in row] for row in rows])
        guess = trainee(to_tensor(render_array(scenes[i : i + 64])), packed, answers)[0][:, 0].argmax(-1)
        for q, hit in zip(flat, (guess == answers).tolist()):
            hits.setdefault(q.kind, []).append(hit)
    return {"accuracy": float(np.mean([h for v in hits.values() for h in v]))} | {
        k: float(np.mean(v)) for k, v in sorted(hits.items())
    }
