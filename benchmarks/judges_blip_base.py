"""A `BlipForQuestionAnswering` of BLIP-base's size whose answers differ, for the benchmark beside the official scorer.

Random weights answer nearly every question alike. Here the vision tower, the question encoder and the decoder keep
their random initial weights (of the usual size, so that rounding does not grow from layer to layer), and the decoder's
output layer alone is fitted: by ridge regression, in closed form, so that each question about each picture has an
answer of its own, of one to three tokens and then an end. It is the same checkpoint for both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as tf
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

NOUNS = "dog cat car tree house boat bird horse table chair ball hat cup book door window".split()
COLOURS = "red blue green yellow black white brown grey".split()
SHADES = ["dark blue", "light green", "bright red", "pale yellow", "deep brown", "off white"]
QUESTIONS = [
    *(f"is there a {noun} in the picture?" for noun in NOUNS),
    *(f"what color is the {noun} that stands beside the {other}?" for noun, other in itertools.pairwise(NOUNS)),
    *(f"how many {noun}s can be seen?" for noun in NOUNS),
    *(f"what is the animal that sleeps on the {noun}?" for noun in NOUNS),
]
ANIMALS = "lion wolf sheep snake frog rabbit puppy kitten".split()
RIDGE = 1e-6
"""Beside the mean square of the features; their differences are about a tenth of them, rounding a millionth."""


def answers_and_choices(question: str) -> tuple[list[str], list[str]]:
    """What may be answered to a question, and what is offered: some answers are among the choices, others only near."""
    if question.startswith("is there"):
        return ["yes", "no"], ["yes", "no"]
    if question.startswith("how many"):
        return ["1", "2", "3", "4"], ["1", "2", "3", "4"]
    if question.startswith("what color"):
        return [*COLOURS, *SHADES], ["red", "blue", "green", "yellow", "brown", "white"]
    return ANIMALS, ["dog", "cat", "horse", "bird"]


def save(folder: Path, files: Sequence[str], questions: Sequence[str]) -> str:
    """Build the model (ViT-B/16 at 384 pixels, BERT-base twice), teach it answers about pictures, and save it."""
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer(lowercase=True)
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", "[ENC]"]
    corpus = [*QUESTIONS, *COLOURS, *SHADES, *ANIMALS, "yes no 1 2 3 4 5 on under beside the a"] * 20
    trainer = trainers.WordPieceTrainer(vocab_size=4000, special_tokens=specials, show_progress=False)
    wordpiece.train_from_iterator(corpus, trainer)
    wordpiece.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=wordpiece, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", bos_token="[DEC]", eos_token="[SEP]",
    )  # fmt: skip
    start, end = map(tokenizer.convert_tokens_to_ids, ("[DEC]", "[SEP]"))
    torch.manual_seed(0)
    config = tf.BlipConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 768, "encoder_hidden_size": 768, "intermediate_size": 3072,
            "num_hidden_layers": 12, "num_attention_heads": 12, "bos_token_id": start, "eos_token_id": end,
            "sep_token_id": end, "pad_token_id": 0, "tie_word_embeddings": False,
        },
        vision_config={
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
            "image_size": 384, "patch_size": 16, "initializer_range": 0.02,
        },
        tie_word_embeddings=False,
    )  # fmt: skip
    model = tf.BlipForQuestionAnswering(config).eval()
    image_processor = tf.BlipImageProcessor(size={"height": 384, "width": 384})
    processor = tf.BlipProcessor(image_processor, tokenizer)
    teach(model, processor, files, questions)
    model.save_pretrained(folder / "blip")
    processor.save_pretrained(folder / "blip")
    return str(folder / "blip")


@torch.no_grad()
def teach(model: Any, processor: tf.BlipProcessor, files: Sequence[str], questions: Sequence[str]) -> None:
    """Fit the decoder's output layer to answers that are drawn at random for every question about every picture."""
    random = np.random.RandomState(1)
    head, start, end = (
        model.text_decoder.cls.predictions,
        model.decoder_start_token_id,
        model.config.text_config.sep_token_id,
    )
    features, targets = [], []
    for file in files:
        pixels = processor.image_processor(Image.open(file).convert("RGB"), return_tensors="pt")
        seen = model.vision_model(**pixels).last_hidden_state
        for question in questions:
            ids = processor.tokenizer(question, return_tensors="pt")["input_ids"]
            states = model.text_encoder(input_ids=ids, encoder_hidden_states=seen).last_hidden_state
            said = processor.tokenizer(random.choice(answers_and_choices(question)[0]), add_special_tokens=False)[
                "input_ids"
            ]
            hidden = model.text_decoder.bert(
                input_ids=torch.tensor([[start, *said]]), encoder_hidden_states=states, is_decoder=True
            ).last_hidden_state
            features.append(head.transform(hidden)[0].double())
            targets += [*said, end]
    known = torch.cat(features)
    wanted = torch.nn.functional.one_hot(torch.tensor(targets), head.decoder.out_features).double()
    gram = known @ known.T
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.double)
    head.decoder.weight.copy_((known.T @ torch.linalg.solve(gram, wanted)).T)
