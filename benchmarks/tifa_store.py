"""Look-up of a batch of 64 prompts in a question store of 1,000,000 tuples, and its memory.

    python benchmarks/tifa_store.py [--tuples 1000000] [--file store.sqlite]

Prints the time to fill the store, the look-up time of random batches (by prompt and by id; hardly a prompt comes
twice), of a batch that was looked up before, and the memory of a process that does nothing else. Beside the time on
the clock stands the CPU time of the thread, which a busy machine does not change. The peer in the same run is what the
official scorer does: read the whole JSON file, here indexed by id.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

BATCH, EACH = 64, 5


def fill(path: Path, tuples: int) -> float:
    from rewards.tifa.questions.question import Question
    from rewards.tifa.store.store import QuestionStore

    store = QuestionStore(path)
    start = time.perf_counter()
    for first in range(0, tuples // EACH, 10_000):
        store.add(
            Question(
                f"what is thing {number} of picture {prompt}?", ("a red circle", "a blue square", "a dog", "nothing"),
                "a blue square", f"thing {number}", "object", f"a picture of {prompt} things in a large room",
                f"p_{prompt}",
            )
            for prompt in range(first, min(first + 10_000, tuples // EACH))
            for number in range(EACH)
        )  # fmt: skip
    return time.perf_counter() - start


def look_up(path: Path, by: str) -> None:
    """In a process of its own: random batches, then one of them again; prints JSON."""
    from rewards.tifa.store.store import QuestionStore

    store = QuestionStore(path, create=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    prompts = len(store) // EACH
    rng = random.Random(0)
    times: list[float] = []
    cpu: list[float] = []
    for _ in range(200):
        numbers = rng.sample(range(prompts), BATCH)
        keys = [f"p_{n}" if by == "id" else f"a picture of {n} things in a large room" for n in numbers]
        start, busy = time.perf_counter(), time.thread_time()
        found = store.prepare(keys)
        times.append(time.perf_counter() - start)
        cpu.append(time.thread_time() - busy)
        assert sum(map(len, found)) == BATCH * EACH
    start = time.perf_counter()
    store.prepare(keys)
    again = time.perf_counter() - start
    times.sort()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = {"median": median(times), "fastest": times[0], "p95": times[190], "cpu": median(cpu), "again": again}
    print(json.dumps(row | {"before": before, "after": after}))


def json_peer(path: Path, tuples: int) -> None:
    """The official way, in a process of its own: the whole file in memory."""
    rows = [
        {"id": f"p_{prompt}", "caption": f"a picture of {prompt} things in a large room",
         "question": f"what is thing {number} of picture {prompt}?",
         "choices": ["a red circle", "a blue square", "a dog", "nothing"], "answer": "a blue square",
         "element_type": "object", "element": f"thing {number}"}
        for prompt in range(tuples // EACH) for number in range(EACH)
    ]  # fmt: skip
    path.write_text(json.dumps(rows))
    del rows


def read_json_peer(path: Path) -> None:
    start = time.perf_counter()
    by_id: dict[str, list[dict]] = {}
    for row in json.loads(path.read_text()):
        by_id.setdefault(row["id"], []).append(row)
    loaded = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"load": loaded, "memory": memory}))


def run(*arguments: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--file", type=Path, help="keep the store here and use it again")
    parser.add_argument("--look-up", help=argparse.SUPPRESS)
    parser.add_argument("--write-json", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--read-json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.look_up:
        return look_up(options.file, options.look_up)
    if options.write_json:
        json_peer(options.file, options.tuples)
        return print("{}")
    if options.read_json:
        return read_json_peer(options.file)
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "questions.sqlite"
        if not path.exists():
            seconds = fill(path, options.tuples)
            print(f"filled with {options.tuples:,} tuples in {seconds:.1f} s ({options.tuples / seconds:,.0f}/s)")
        print(f"file: {path.stat().st_size / 2**20:.0f} MB")
        for by in ("prompt", "id"):
            row = run("--file", str(path), "--look-up", by)
            print(
                f"{BATCH} prompts by {by:<6}: fastest {1000 * row['fastest']:.2f} ms, "
                f"median {1000 * row['median']:.2f} ms, 95% {1000 * row['p95']:.2f} ms "
                f"(CPU {1000 * row['cpu']:.2f} ms), "
                f"looked up before {1000 * row['again']:.3f} ms; memory {row['before']:.0f} MB after import, "
                f"{row['after']:.0f} MB at most"
            )
        listed = Path(folder) / "questions.json"
        run("--file", str(listed), "--tuples", str(options.tuples), "--write-json")
        row = run("--file", str(listed), "--read-json")
        print(f"peer, JSON in memory: {row['load']:.1f} s to load, {row['memory']:.0f} MB")


if __name__ == "__main__":
    main()
