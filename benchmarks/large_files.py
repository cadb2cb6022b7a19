"""What large logs, large question stores and kept scores cost: `rewards curves`, `QuestionStore`, a cache hit.

    python benchmarks/large_files.py                 # minutes on one core; --lines 100000 --questions 60000 is quick

CPU seconds of processes of their own, and their largest resident memory. Results go to results/large_files.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tifa_store import fill

RESULTS = Path(__file__).resolve().parent / "results" / "large_files.json"
KEYS = 24


def write_log(folder: Path, lines: int) -> None:
    """A run's metrics: 24 keys a line."""
    random = np.random.RandomState(0)
    names = ["rewards/harmonic/overall/mean", "rewards/harmonic/correctness/mean", "train/loss", "train/grad_norm"]
    names += [f"train/other_{at}" for at in range(KEYS - len(names))]
    folder.mkdir()
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for step in range(lines):
            values = dict(zip(names, random.rand(KEYS).round(6).tolist()))
            file.write(json.dumps({"step": step, "time": 1.8e9 + step} | values) + "\n")


def curves(folder: Path) -> dict[str, float]:
    from rewards.report.page import write_report

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    write_report([folder], None)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": time.process_time() - begun, "MB": after / 1024, "MB after imports": before / 1024}


def store(path: Path) -> dict[str, float]:
    from rewards.tifa.questions.question import Question
    from rewards.tifa.store.store import QuestionStore

    questions = QuestionStore(path)
    more = Question("is there a cat?", ("yes", "no"), "yes", "cat", "animal", "a picture of a cat", "cat")
    told = {
        "element_types ms": milliseconds(questions.element_types),
        "fingerprint ms": milliseconds(questions.fingerprint),
    }
    questions.add([more])
    return told | {"element_types ms after a write": milliseconds(questions.element_types),
                   "fingerprint ms after it": milliseconds(questions.fingerprint)}  # fmt: skip


def cache(folder: Path) -> dict[str, float]:
    """A kept score of a 512 x 512 picture, from a PIL picture: hashing it, and reading the file."""
    from PIL import Image

    from rewards import load_judge
    from rewards.judges.cache import CachedJudge

    random = np.random.RandomState(0)
    pictures = [Image.fromarray(random.randint(0, 255, (512, 512, 3), dtype=np.uint8)) for _ in range(50)]
    judge = CachedJudge(load_judge("shapes-vqa"), folder / "scores.sqlite")
    questions = ["is there a circle?"] * len(pictures)
    judge.answer(pictures, questions)
    spent = milliseconds(lambda: judge.answer(pictures, questions))
    return {"hit ms": spent / len(pictures)}


def milliseconds(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return (time.process_time() - begun) * 1e3


def alone(part: str, path: Path) -> dict[str, float]:
    """A part in a process of its own."""
    command = [sys.executable, __file__, "--part", part, "--path", str(path)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--questions", type=int, default=600_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--part", choices=["curves", "store", "cache"], help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return print(json.dumps({"curves": curves, "store": store, "cache": cache}[options.part](options.path)))
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for lines in options.lines:
            write_log(folder / f"run-{lines}", lines)
            found[f"rewards curves, {lines} lines x {KEYS} keys"] = alone("curves", folder / f"run-{lines}")
        fill(folder / "questions.sqlite", options.questions)
        found[f"question store, {options.questions} questions"] = alone("store", folder / "questions.sqlite")
        found["a kept answer, a picture of 512 x 512"] = alone("cache", folder)
    for what, row in found.items():
        print(what, ", ".join(f"{key} {value:.1f}" for key, value in row.items()))
    about = {
        "command": "python benchmarks/large_files.py",
        "date": time.strftime("%Y-%m-%d"),
        "python": sys.version.split()[0],
    }
    options.out.write_text(json.dumps({**about, "results": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
