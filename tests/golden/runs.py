"""The runs whose results are frozen: how each is started, by the shipped commands, examples and public names.

Everything runs on the CPU with one thread. Inputs come from `inputs.py`, values leave through `reading.py`.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner

from rewards import TIFA, HarmonicEval, QuestionStore, load_judge
from rewards.cli.app import app
from rewards.combined import Combined
from rewards.reward import Reward
from rewards.scores import Scores
from rewards.shapes.oracle import Oracle
from rewards.tifa.matching import AnswerMatcher
from tests.golden.reading import Values, lines_of, read_benchmark, read_ranking, read_run, read_scores

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "rewards" / "shapes" / "weights"
RATER = ROOT / "tests" / "fixtures" / "old_rater"  # the rater of the recording; the packaged one is trained further
MODELS = {
    "rater": RATER / "model.safetensors",
    "vqa": WEIGHTS / "vqa_judge" / "model.safetensors",
    "captioner": WEIGHTS / "captioner" / "model.safetensors",
    "generator": WEIGHTS / "stable_diffusion" / "unet" / "diffusion_pytorch_model.safetensors",
}
"""The weights that the frozen results were made with. Weights trained anew go into the package; those of the recording
then move to `tests/fixtures`, as the rater's have, and the runs below name that folder."""
# The recording treats every row as independent; the shipped configs treat scenes of one meaning as one.
TEXTS = [
    "data.cluster=null",
    "data.train.n=16",
    "data.held_out.n=12",
    "trainer.per_device_train_batch_size=16",
    "evaluation.num_samples=2",
]


def ddpo(inputs: Path, out: Path) -> Values:
    """Two epochs of DDPO on soft TIFA, the oracle as audit."""
    settings = {
        "output_dir": out,
        "num_train_prompts": 16,
        "num_eval_prompts": 12,
        "trainer.num_epochs": 2,
        "trainer.sample_batch_size": 16,
        "trainer.sample_num_batches_per_epoch": 2,
        "trainer.sample_num_images_per_prompt": 4,
        "trainer.train_batch_size": 16,
        "trainer.train_kl_coefficient": 0.1,
        "trainer.eval_batch_size": 5,
        "trainer.num_logged_samples": 4,
    }
    overrides = [f"{name}={value}" for name, value in settings.items()]
    _example("ddpo_sd.py", "--config", "configs/ddpo_shapes.yaml", *overrides)
    return read_run(out)


def grpo(inputs: Path, out: Path) -> Values:
    """Three steps of GRPO on HarmonicEval, the truth as audit, with an evaluation in the middle."""
    return _text("grpo_vlm.py", "grpo_shapes.yaml", out, "trainer.max_steps=3", "evaluation.every=2", *_groups(4))


def grpo_per_criterion(inputs: Path, out: Path) -> Values:
    """Two steps of GRPO with a reward a criterion, weighted, and more than one update on each batch of texts."""
    parts = ["trainer.per_criterion=true", "reward.criteria=[fluency, correctness]"]
    weights = "trainer.criterion_weights={fluency: 0.5, correctness: 2.0}"
    more = ["trainer.max_steps=4", "trainer.num_iterations=2", "trainer.beta=0.02"]
    return _text("grpo_vlm.py", "grpo_shapes.yaml", out, *parts, weights, *more, *_groups(4))


def rloo(inputs: Path, out: Path) -> Values:
    """Three steps of RLOO on HarmonicEval."""
    return _text("grpo_vlm.py", "grpo_shapes.yaml", out, "algorithm=rloo", "trainer.max_steps=3", *_groups(4))


def ppo(inputs: Path, out: Path) -> Values:
    """Four steps of PPO on HarmonicEval: two batches of texts with two updates each."""
    return _text("ppo_vlm.py", "ppo_shapes.yaml", out, "trainer.max_steps=4")


def rerank_texts(inputs: Path, out: Path) -> Values:
    """40 pictures with 6 texts each by HarmonicEval, and what is made of the ranking for DPO and SFT."""
    reward = ["reward.kind=harmonic", f"reward.judge={RATER}", "reward.gamma=0.5", "reward.device=cpu"]
    outputs = ["--pairs", "--min-margin", "0.25", "--sft", "--gain"]
    audit = "audit={kind: function, function: 'rewards.shapes.truth_reward:caption_truth_reward'}"
    _command("rerank", inputs / "texts.jsonl", *reward, audit, "shard_size=16", "--out", out, *outputs, status=3)
    return read_ranking(out)


def rerank_pictures(inputs: Path, out: Path) -> Values:
    """30 prompts with 4 pictures each by soft TIFA, the oracle as audit."""
    store = inputs / "questions.sqlite"
    reward = f"reward={{kind: tifa, judge: shapes-vqa, device: cpu, soft: true, questions: '{store}'}}"
    audit = f"audit={{kind: tifa, judge: shapes-oracle, sentence_model: null, questions: '{store}'}}"
    _command("rerank", inputs / "pictures.jsonl", reward, audit, "batch_size=17", "--out", out, "--gain", status=None)
    return read_ranking(out)


def best_of_n_texts(inputs: Path, out: Path) -> Values:
    """The best of 4 captions of 8 pictures."""
    sampling = ["generate.n=4", "generate.limit=8", "generate.device=cpu"]
    judge = [f"rerank.reward.judge={RATER}", "rerank.reward.device=cpu"]
    _command("best-of-n", "--config", ROOT / "configs" / "best_of_n_shapes.yaml", *sampling, *judge, f"out={out}")
    return read_ranking(out / "ranking") | {"texts": _candidates(out)}


def best_of_n_pictures(inputs: Path, out: Path) -> Values:
    """The best of 3 pictures of 6 prompts."""
    sampling = ["generate.n=3", "generate.limit=6", "generate.num_inference_steps=5", "generate.device=cpu"]
    config = ROOT / "configs" / "best_of_n_shapes_pictures.yaml"
    _command("best-of-n", "--config", config, *sampling, "rerank.reward.device=cpu", f"out={out}")
    return read_ranking(out / "ranking")


def score_harmonic(inputs: Path, out: Path) -> list[Values]:
    """32 texts by criterion."""
    judge = ["--judge", RATER, "--device", "cpu"]
    out = out / "scores.jsonl"
    _command("score", "harmonic", inputs / "rated.jsonl", "--out", out, *judge, "--batch-size", 7, status=3)
    return read_scores(out)


def score_tifa(inputs: Path, out: Path) -> Values:
    """32 pictures by question: by free-form answers, and softly by the choices."""
    values: Values = {}
    judge = ["--judge", "shapes-vqa", "--device", "cpu", "--questions", inputs / "questions.sqlite"]
    ways = {"free_form": ["--sentence-model", "none"], "soft": ["--answer", "choices", "--soft"]}
    for name, way in ways.items():
        path = out / f"{name}.jsonl"
        _command("score", "tifa", inputs / "judged.jsonl", "--out", path, *judge, *way, status=3)
        values[name] = read_scores(path)
    return values


def tifa_bench(inputs: Path, out: Path) -> Values:
    """12 prompts with 15 pictures in the official formats."""
    values: Values = {}
    files = ["--questions", inputs / "official.json", "--images", inputs / "official_pictures.json"]
    for answer in ("free_form", "choices"):
        path = out / f"{answer}.json"
        judge = ["--judge", "shapes-vqa", "--device", "cpu", "--answer", answer, "--sentence-model", "none"]
        _command("tifa-bench", *files, "--output", path, *judge)
        values[answer] = read_benchmark(path)
    details = values["choices"]["official"].pop("question_details")  # of the same questions: the answers are enough
    values["choices"]["answers"] = {
        id: [[row["multiple_choice_vqa"], row["scores"]] for row in rows.values()] for id, rows in details.items()
    }
    return values


def harmonic_python(inputs: Path, out: Path) -> Values:
    """HarmonicEval called from Python: settings that the commands do not reach, and TRL's convention."""
    judge = load_judge(str(RATER), device="cpu")
    rows = lines_of(inputs / "rated.jsonl")[:16]
    images = [None if "missing" in row["image"] else str(inputs / row["image"]) for row in rows]
    texts = [row["text"] for row in rows]
    ways: dict[str, dict[str, Any]] = {
        "default": {},
        "gamma_0.1": {"gamma": 0.1},
        "gamma_0": {"gamma": 0.0},
        "gamma_1": {"gamma": 1.0},
        "raw": {"normalize": False, "criteria": ["clarity", "correctness"]},
        "mass_needed": {"min_rating_mass": 0.99999},
    }
    values: Values = {name: _harmonic(HarmonicEval(judge, **way).score(images, texts)) for name, way in ways.items()}
    raw = HarmonicEval(judge, **ways["raw"]).score(images, texts)
    values["raw"]["probabilities"] = raw.probabilities.tolist()
    said = {"prompts": ["describe the picture"] * 16, "completions": [text or "" for text in texts], "image": images}
    logged: Values = {}
    reward = HarmonicEval(judge)
    values["trl"] = {"rewards": reward(**said, log_metric=logged.__setitem__), "logged": _without_name(logged)}
    values["per_criterion"] = {f.part: f(**said) for f in reward.per_criterion()}
    return values


def tifa_python(inputs: Path, out: Path) -> Values:
    """TIFA called from Python in its three ways, and two rewards combined over two batches."""
    judge = load_judge("shapes-vqa", device="cpu")
    store = QuestionStore(inputs / "questions.sqlite", create=False)
    rows = lines_of(inputs / "judged.jsonl")
    images = [str(inputs / row["image"]) for row in rows]
    prompts = [row["prompt"] for row in rows]
    exact = AnswerMatcher(sentence_model=None)
    ways = {
        "free_form": TIFA(judge, store, matcher=exact),
        "hard": TIFA(judge, store, answer="choices"),
        "soft": TIFA(judge, store, soft=True),
        "oracle": TIFA(Oracle(), store, matcher=exact),
    }
    values: Values = {name: _tifa(reward, images, prompts) for name, reward in ways.items()}
    for policy in ("abstain", "renormalize"):
        for scale in ("none", "running"):
            both = Combined([ways["soft"], _Brevity()], [1.0, 0.25], standardize=scale, on_abstain=policy)
            batches = [both(images[at], prompts[at])[0].tolist() for at in (slice(0, 12), slice(12, 32))]
            values[f"combined_{policy}_{scale}"] = batches[0] + batches[1]
    return values


Run = Callable[[Path, Path], Any]
TRAININGS: dict[str, Run] = {run.__name__: run for run in (ddpo, grpo, grpo_per_criterion, rloo, ppo)}
SCORES: dict[str, Run] = {
    run.__name__: run
    for run in (
        rerank_texts,
        rerank_pictures,
        best_of_n_texts,
        best_of_n_pictures,
        score_harmonic,
        score_tifa,
        tifa_bench,
        harmonic_python,
        tifa_python,
    )
}


def _groups(size: int) -> list[str]:
    return [f"trainer.num_generations={size}"]


def _text(script: str, config: str, out: Path, *overrides: str) -> Values:
    _example(script, "--config", f"configs/{config}", f"output_dir={out}", f"reward.judge={RATER}", *TEXTS, *overrides)
    return read_run(out)


def _example(script: str, *arguments: Any) -> None:
    """Run an example in a process of its own: nothing that happened in this one reaches it."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, f"examples/{script}", *map(str, arguments)]
    environment = {**os.environ, **one, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def _command(*arguments: Any, status: int | None = 0) -> None:
    """Run a `rewards` command in this process; `status` is the exit status that it must have (None: 0 or 3)."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    if result.exit_code not in ((0, 3) if status is None else (status,)):
        raise RuntimeError(f"rewards {' '.join(map(str, arguments))} ended with {result.exit_code}:\n{result.output}")


def _candidates(out: Path) -> list[Sequence[str]]:
    return [row["candidates"] for row in lines_of(out / "candidates" / "candidates.jsonl")]


def _harmonic(scores: Any) -> Values:
    names = ("overall", "criteria", "sigma", "weights", "rating_mass")
    return {name: getattr(scores, name).tolist() for name in names} | {"abstained": scores.abstained.tolist()}


class _Brevity(Reward):
    """A reward of one's own on another scale, which cannot judge every fifth sample."""

    __name__ = "brevity"

    def score(self, images: Any, texts: Any, /, **columns: Any) -> Scores:
        values = [math.nan if place % 5 == 3 else -float(len(text)) for place, text in enumerate(texts)]
        return Scores(torch.tensor(values), ["no" if math.isnan(value) else None for value in values])

    def identity(self, texts: Any = None) -> Any:
        return {}


def _tifa(reward: TIFA, images: Sequence[str], prompts: Sequence[str]) -> Values:
    scores = reward.score(images, prompts)
    rewards, info = reward(images, prompts)
    return {
        "overall": scores.overall.tolist(),
        "answers": [[row.image, row.choice, row.how, row.right, row.score] for row in scores.answers],
        "by_element_type": {name: list(pair) for name, pair in scores.by_element_type().items()},
        "diffusion": {"rewards": rewards.tolist(), "logged": _without_name(info)},
    }


def _without_name(logged: dict[str, float]) -> Values:
    """Keys without `rewards/<name>/`."""
    return {key.split("/", 2)[2]: value for key, value in logged.items()}
