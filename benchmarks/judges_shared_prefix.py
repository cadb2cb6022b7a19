"""Five criteria against one, best-of-8 against independent calls, and HarmonicEval's own share: one thread, same run.

    python benchmarks/judges_shared_prefix.py            # about three minutes on one core

Every ratio compares what runs in this process: `judge.rate` with shared prefixes, and transformers' own forward pass
over one full prompt at a time (the peer). `short` prompts have one line a criterion; `built-in` prompts are the ones
that HarmonicEval ships, with a five-level scale each. One criterion costs what the five cost on average when each is
asked alone. The towers' sizes stand to each other as in models of 7B.
The tokenizers cut these prompts into about as many tokens as the real ones of both models, see judges_models.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import judges_models
import numpy as np
import torch
import transformers
from PIL import Image

from rewards.harmonic.reward import HarmonicEval
from rewards.judges.loading import load_judge

RESULTS = Path(__file__).resolve().parent / "results" / "judges_shared_prefix.json"

SHORT = {
    criterion: f"Rate the caption from 1 to 5.\nCaption: {{text}}\nHow {criterion} is the caption? {meaning}"
    for criterion, meaning in {
        "correct": "Is all that the caption says true of the image, in objects, attributes, numbers and positions?",
        "complete": "Does the caption mention everything that matters in the image, with no important detail missing?",
        "clear": "Can a reader understand at once what the caption means, without having to guess from fragments?",
        "fluent": "Is the caption written in natural language, without mistakes of grammar or spelling in any place?",
        "concise": "Does the caption say what it says without needless words, repetition or padding in any part of it?",
    }.items()
}


def best_times(calls: Sequence[Callable[[], Any]], repeats: int) -> tuple[list[Any], list[float]]:
    """What the calls return, and the shortest of `repeats` times of each in CPU seconds (this process has one thread).

    The calls take turns, so that what else the machine does meets all of them alike.
    """
    times: list[list[float]] = [[] for _ in calls]
    results: list[Any] = [None] * len(calls)
    for _ in range(repeats):
        for at, call in enumerate(calls):
            start = time.process_time()
            results[at] = call()
            times[at].append(time.process_time() - start)
    return results, [min(found) for found in times]


@torch.no_grad()
def independent(judge: Any, image: Image.Image, prompts: list[str]) -> torch.Tensor:
    """The peer: one full prompt a call, by transformers alone."""
    variants = judge.rating_tokens(("1", "2", "3", "4", "5")).variants
    rows = []
    for prompt in prompts:
        turn = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": prompt}]}]
        inputs = judge.processor.apply_chat_template(
            turn, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        probabilities = judge.model(**inputs, use_cache=False, logits_to_keep=1).logits[0, -1].softmax(-1)
        rows.append(torch.stack([probabilities[ids].sum() for ids in variants]))
    return torch.stack(rows)


def token_counts(prompts: list[list[int]]) -> tuple[int, list[int]]:
    """How many first tokens prompts have in common, and how many each has beyond them."""
    common = 0
    while len({prompt[common] for prompt in prompts}) == 1:
        common += 1
    return common, [len(prompt) - common for prompt in prompts]


def measure(kind: str, image_tokens: int, style: str, folder: Path) -> dict[str, float]:
    judge: Any = load_judge(judges_models.save(kind, image_tokens, folder))
    side = round(image_tokens**0.5) * (14 if kind == "llava" else 28)
    image = Image.fromarray(np.random.RandomState(0).randint(0, 255, (side, side, 3), dtype=np.uint8))
    reward = HarmonicEval(judge, prompts=SHORT if style == "short" else None, min_rating_mass=0)
    templates = list(reward.prompts.values())
    rows = [template.replace("{text}", caption) for caption in judges_models.CAPTIONS for template in templates]
    shared, lengths = token_counts([judge.tokenizer(row)["input_ids"] for row in rows[:5]])
    judge.rate([image], rows[:1])  # warm up
    singles = [lambda row=row: judge.rate([image], [row]) for row in rows[:5]]
    _, (*alone, five) = best_times([*singles, lambda: judge.rate([image] * 5, rows[:5])], 5)
    one = sum(alone) / len(alone)
    (found,), (tree,) = best_times([lambda: judge.rate([image] * 40, rows)], 2)
    (expected,), (peer,) = best_times([lambda: independent(judge, image, rows)], 1)
    difference = (found.probabilities - expected).abs().max().item()
    inside: list[float] = []
    rate = judge.rate

    def timed(*args: Any) -> Any:
        start = time.process_time()
        result = rate(*args)
        inside.append(time.process_time() - start)
        return result

    judge.rate = timed
    start = time.process_time()
    reward.score([image] * 8, judges_models.CAPTIONS)
    whole = time.process_time() - start
    judge.rate = rate
    print(
        f"{kind:11s} {image_tokens:5d} image tokens, {style:8s} prompts, {shared} tokens common and "
        f"{min(lengths)}-{max(lengths)} a criterion | "
        f"1 criterion {one:.2f}s, 5 criteria {five:.2f}s = x{five / one:.2f} | best-of-8 x 5: independent {peer:.1f}s, "
        f"shared {tree:.2f}s = {peer / tree:.1f} times faster, largest difference {difference:.0e} | "
        f"HarmonicEval's own work {100 * (whole - sum(inside)) / whole:.1f}%",
        flush=True,
    )
    return {"five criteria / one": five / one, "best of 8 faster": peer / tree, "largest difference": difference,
            "one criterion s": one, "own work share": (whole - sum(inside)) / whole}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=["llava:576", "qwen2_5_vl:400", "qwen2_5_vl:1024"])
    parser.add_argument("--styles", nargs="+", default=["short", "built-in"], choices=["short", "built-in"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for entry in options.kinds:
            kind, image_tokens = entry.split(":")
            for style in options.styles:
                found[f"{entry}, {style}"] = measure(kind, int(image_tokens), style, Path(folder))
    about = {"command": " ".join(["python", *sys.argv]), "date": time.strftime("%Y-%m-%d")}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    RESULTS.write_text(json.dumps({**about, **versions, "results": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
