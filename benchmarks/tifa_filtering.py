"""Filtering in batches against one question at a time, as the released code does it, on a T5 of a chosen size.

    python benchmarks/tifa_filtering.py [--questions 64] [--size small]

The weights are random (the shapes are those of t5-small or of a tiny model), so the answers mean nothing; both ways
must give the same verdicts, and the time depends on the shapes alone. The batched way also has the two inputs of a
question (with choices, freely) in one batch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import transformers as tf
from tokenizers import processors

from rewards.tifa.questions.filtering import verdict
from rewards.tifa.questions.question import Question
from rewards.tifa.questions.unifiedqa import UnifiedQA
from tests import tiny_models

SIZES = {
    "tiny": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
    "small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},  # t5-small
}


def save(folder: Path, size: str) -> str:
    torch.manual_seed(0)
    specials = ["<pad>", "</s>", "<unk>"]
    tokenizer = tiny_models.bpe_tokenizer(specials, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    tokenizer.padding_side = "right"
    ending = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.backend_tokenizer.post_processor = ending
    config = tf.T5Config(  # type: ignore[call-arg]
        vocab_size=len(tokenizer),
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        **SIZES[size],  # type: ignore[arg-type]
    )
    tf.T5ForConditionalGeneration(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def questions(count: int) -> list[Question]:
    """Questions of uneven length about captions of uneven length."""
    things = ["dog", "small red cat", "wooden boat on the lake", "man", "bowl of soup", "street at night with two cars"]
    rows = []
    for number in range(count):
        thing = things[number % len(things)]
        prompt = f"a picture of a {thing}" + " beside a house with a garden" * (number % 4)
        rows.append(
            Question(
                f"what is it in picture {number}?", (thing, "tree", "nothing", "fish"), thing, thing, "object", prompt
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    asked = questions(options.questions)
    with tempfile.TemporaryDirectory() as folder:
        model = UnifiedQA(save(Path(folder), options.size), device="cpu")
    model.answer(asked[:2])

    seconds: dict[str, float] = {}
    answers: dict[str, list[tuple[str, str]]] = {}
    for name, size in (("one at a time", 1), ("batched", options.batch_size)):
        start = time.thread_time()
        answers[name] = []
        for first in range(0, len(asked), size):
            part = asked[first : first + size]
            if size > 1:
                answers[name] += model.answer(part)
            else:  # two calls a question, as the released code
                from rewards.tifa.questions.unifiedqa import encode

                answers[name] += [
                    (model.complete([encode(q, True)])[0], model.complete([encode(q, False)])[0]) for q in part
                ]
        seconds[name] = time.thread_time() - start
    same = [
        all(verdict(q, left[0], left[1], mode) == verdict(q, right[0], right[1], mode) for mode in ("paper", "code"))
        for q, left, right in zip(asked, *answers.values())
    ]
    print(f"{options.questions} questions, t5 {options.size}, one thread, CPU seconds")
    for name, value in seconds.items():
        print(f"  {name:<14} {value:7.2f} s  {1000 * value / len(asked):6.1f} ms a question")
    print(f"  speed-up {seconds['one at a time'] / seconds['batched']:.1f}x; equal verdicts {sum(same)} of {len(same)}")
    print(json.dumps({"speed_up": seconds["one at a time"] / seconds["batched"], "equal": all(same)}))
    if not all(same):
        raise SystemExit("verdicts differ")


if __name__ == "__main__":
    main()
