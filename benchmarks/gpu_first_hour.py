"""The first hour on a GPU: judges, a trainer and the server, in one table to paste into an issue.

    python benchmarks/gpu_first_hour.py                                        # the packaged models, minutes on a CPU
    python benchmarks/gpu_first_hour.py --rater Qwen/Qwen2.5-VL-3B-Instruct --answerer blip-large --config ddpo_sd15 \
        trainer.sample_batch_size=4
    python benchmarks/gpu_first_hour.py --dry-run                             # does it run here? Rates mean nothing

It was never run on a GPU by us: what it prints there is wanted. Memory stands beside the estimate of `rewards check`;
busy is the mean of what `nvidia-smi` tells four times a second.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rewards import TIFA, HarmonicEval, Question, QuestionStore, load_judge
from rewards.build import RewardSettings
from rewards.cli.configs import find_config
from rewards.errors import RewardsError
from rewards.judges.base import Judge
from rewards.judges.batching import BatchingJudge
from rewards.preflight.checking import check_drawing
from rewards.preflight.judging import estimate_judge
from rewards.preflight.report import GIB, most
from rewards.runs.config import load_config
from rewards.tables import text_table
from rewards.trainers.diffusion.run import run_diffusion
from rewards.trainers.diffusion.settings import DiffusionRunConfig

DRY_RUN = [f"trainer.{setting}" for setting in (
    "sample_num_steps=2", "sample_batch_size=2", "sample_num_batches_per_epoch=1", "sample_num_images_per_prompt=2",
    "train_batch_size=2", "train_gradient_accumulation_steps=1",
)]  # fmt: skip


class Seen:
    """What was measured in a block: seconds, peak GiB and busy share where there is a GPU."""

    seconds = 0.0
    peak: float | None = None
    busy: float | None = None


@contextmanager
def watched() -> Iterator[Seen]:
    seen, over, shares = Seen(), threading.Event(), []
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]

    def ask() -> None:
        while not over.wait(0.25):
            shares.append(float(subprocess.run(query, capture_output=True, text=True).stdout.split()[0]))

    watcher = threading.Thread(target=ask, daemon=True) if shutil.which("nvidia-smi") else None
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    if watcher is not None:
        watcher.start()
    begun = time.perf_counter()
    yield seen
    seen.seconds = time.perf_counter() - begun
    over.set()
    if watcher is not None:
        watcher.join()
        seen.busy = sum(shares) / len(shares) if shares else None
    if torch.cuda.is_available():
        seen.peak = torch.cuda.max_memory_allocated() / GIB


def row(what: str, rate: Callable[[Seen], str], seen: Seen, estimate: float | None) -> list[str]:
    memory = "-" if seen.peak is None else f"{seen.peak:.2f}"
    told = "-" if estimate is None else f"{estimate:.2f}"
    return [what, rate(seen), memory, told, "-" if seen.busy is None else f"{seen.busy:.0f}%"]


def estimated(settings: RewardSettings) -> float | None:
    try:
        return most(estimate_judge(settings, [], [])) / GIB
    except RewardsError:
        return None


def judges(options: argparse.Namespace, folder: Path) -> Iterator[list[str]]:
    random, count = np.random.RandomState(0), options.pictures
    pictures = [Image.fromarray(random.randint(0, 255, (*options.size, 3), dtype=np.uint8)) for _ in range(count)]
    texts = [f"a red circle to the left of a blue square, number {at}" for at in range(count)]
    store = QuestionStore(folder / "questions.sqlite")
    words = "red blue green yellow white black".split()
    store.add(
        [Question(f"is there a {c} circle?", ("yes", "no"), "yes", c, "object", t, t) for t in texts for c in words]
    )
    rater, answerer = load_judge(options.rater), load_judge(options.answerer)
    rewards: list[tuple[str, Any, str]] = [
        (f"HarmonicEval, {options.rater}, one text a picture", HarmonicEval(rater, min_rating_mass=0), options.rater),
        (f"TIFA, {options.answerer}, 6 questions", TIFA(answerer, store, answer="choices"), options.answerer),
    ]
    for what, reward, name in rewards:
        reward.score(pictures[:2], texts[:2])
        with watched() as seen:
            reward.score(pictures, texts)
        yield row(what, lambda s: f"{count / s.seconds:.1f} texts/s", seen, estimated(RewardSettings(judge=name)))
    with watched() as seen:
        ask_from_threads(rater, pictures, texts)
    yield row("the same, one text a call from 16 threads", lambda s: f"{count / s.seconds:.1f} texts/s", seen, None)


def ask_from_threads(judge: Judge, pictures: list[Any], texts: list[str]) -> None:
    """As a server's queue does: calls that arrive together are judged together."""
    reward = HarmonicEval(batching := BatchingJudge(judge), min_rating_mass=0)
    places = iter(range(len(texts)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                at = next(places, None)
            if at is None:
                return
            reward.score([pictures[at]], [texts[at]])

    workers = [threading.Thread(target=work) for _ in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    batching.close()


def training(options: argparse.Namespace, folder: Path) -> list[str]:
    path = find_config(options.config)
    config = load_config(DiffusionRunConfig, path, options.overrides)
    short = {**config.trainer, "num_epochs": 1, "eval_freq": 0, "save_freq": 0}
    config = replace(config, output_dir=str(folder / "run"), trainer=short, stages=[], num_eval_prompts=0, resume=False)
    with watched() as seen:
        run_diffusion(config)
    estimate = check_drawing(config, path.name).peak / GIB
    return row(f"an epoch of {path.stem}", lambda s: f"{s.seconds:.1f} s with loading", seen, estimate)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rater", default="shapes-rater", help="a decoder judge")
    parser.add_argument("--answerer", default="shapes-vqa", help="a VQA judge")
    parser.add_argument("--config", default="ddpo_shapes", help="a run of models that draw")
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--size", type=int, nargs=2, default=[480, 640])
    parser.add_argument("--dry-run", action="store_true", help="a few small pictures; the tests run this on a CPU")
    parser.add_argument("overrides", nargs="*", help="key=value settings of the run")
    options = parser.parse_args(arguments)
    if options.dry_run:
        options.pictures, options.size = 4, [64, 64]
        options.overrides += DRY_RUN
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    with tempfile.TemporaryDirectory() as name:
        rows = [*judges(options, Path(name)), training(options, Path(name))]
    header = ["what", "rate", "peak GiB", "estimate", "busy"]
    print(f"{device}, torch {torch.__version__}\n{text_table(header, rows)}")


if __name__ == "__main__":
    main()
