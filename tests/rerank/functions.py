"""Rewards and files for the tests of jobs; importable by name in worker processes."""

import json
import os
import signal
import time
from pathlib import Path

from PIL import Image


def by_length(prompts, completions, **columns):
    """Longer is better; a text with "?" abstains. What is judged is noted where RERANK_LOG points."""
    _hold()
    if "RERANK_LOG" in os.environ:
        with open(os.environ["RERANK_LOG"], "a") as log:
            log.write("".join(f"{len(text)}\n" for text in completions))
    return [None if "?" in text else float(len(text)) for text in completions]


def _hold():
    """Wait while the file of RERANK_HOLD is there and its job has as many shards as it says: a place to be killed."""
    hold = Path(os.environ.get("RERANK_HOLD", "/nowhere"))
    deadline = time.monotonic() + 600  # nobody came: do not outlive the tests
    while hold.exists() and committed(Path(json.loads(hold.read_text())["job"])) >= json.loads(hold.read_text())["at"]:
        if time.monotonic() > deadline:
            raise TimeoutError("held for ten minutes")
        time.sleep(0.02)


def hold_at(hold: Path, job: Path, count: int) -> Path:
    """Let the rewards of processes with RERANK_HOLD=hold wait once `count` shards of a job are committed."""
    partial = hold.with_suffix(".tmp")
    partial.write_text(json.dumps({"job": str(job), "at": count}))
    return partial.replace(hold)


def committed(job: Path) -> int:
    return len(list(job.glob("shards/*.jsonl")))


def wait_until_held(process, job: Path, count: int, log: Path) -> None:
    """Return when `count` shards are committed; the process must not have ended."""
    deadline = time.monotonic() + 550
    while committed(job) < count:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    assert process.poll() is None, log.read_text()


def dies(prompts, completions, **columns):
    """Kills its own process at one text, as a fault in a kernel would."""
    if os.environ["RERANK_DIES"] in completions:
        os.kill(os.getpid(), signal.SIGKILL)
    return by_length(prompts, completions)


def by_vowels(prompts, completions, **columns):
    """Another opinion, for audits."""
    return [float(sum(letter in "aeiou" for letter in text)) for text in completions]


def always_abstains(prompts, completions, **columns):
    return [None] * len(completions)


def by_colour(images, prompts, metadata=None):
    """Redness of a picture."""
    return [float(image.getpixel((0, 0))[0]) for image in images], {}


def picture(path: Path, colour=(200, 0, 0)) -> Path:
    Image.new("RGB", (8, 8), colour).save(path)
    return path


def write_texts(folder: Path, count: int, candidates: int = 3) -> Path:
    """Items with candidates of length 1 + (7 n + 3 k) % 11, and one picture for all."""
    picture(folder / "a.png")
    rows = [
        {"id": f"i{n}", "image": "a.png", "candidates": ["x" * (1 + (7 * n + 3 * k) % 11) for k in range(candidates)]}
        for n in range(count)
    ]
    return write_lines(folder / "items.jsonl", rows)


def write_lines(path: Path, rows) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read_lines(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]
