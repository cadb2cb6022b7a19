"""What `rewards rerank` claims, measured in the shapes world.

    python benchmarks/rerank_jobs.py ranks [--items 2000]      ranks of both engines against a sort of reward.score
    python benchmarks/rerank_jobs.py overhead [--items 60]     CPU time of a local job against bare reward.score
    python benchmarks/rerank_jobs.py memory                    peak memory of the driver, 10,000 and 200,000 rows
    python benchmarks/rerank_jobs.py speedup [--seconds 60]    candidates a second of two Ray actors against one

Each starts from nothing and cleans up. `overhead` counts CPU seconds of runs that alternate, so that a busy machine
does not blur it; `speedup` needs two free cores and says how much of them others used. Figures: rerank_results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT)

from rewards.build import RewardSettings, build_reward  # noqa: E402
from rewards.jobs.job import Job, run_local  # noqa: E402
from rewards.rerank.outputs import OutputSettings, Summary, write_outputs  # noqa: E402
from rewards.rerank.settings import RerankSettings  # noqa: E402
from rewards.rerank.task import start_rerank  # noqa: E402

CANDIDATES = 8
REPEATS = 11
LENGTH = RewardSettings(kind="function", function="benchmarks.rerank_jobs:length")
BUSY = RewardSettings(kind="function", function="benchmarks.rerank_jobs:busy")
RATER = RewardSettings(kind="harmonic", judge="shapes-rater")
BUSY_SECONDS = 0.002
# Each engine sees small and large batches, in the order of the items and shuffled.
RUNS = [("local", 31, True), ("local", 1000, False), ("ray", 128, True), ("ray", 1, False)]


def busy(prompts, completions, **columns):
    """A reward of pure computation, for measuring engines without a model."""
    values = []
    for text in completions:
        end = time.process_time() + BUSY_SECONDS
        value = 0
        while time.process_time() < end:
            value = (value * 31 + len(text)) % 1009
        values.append(float(len(text)))
    return values


def length(prompts, completions, **columns):
    return [float(len(text)) for text in completions]


def run(job: Job, engine: str = "local", actors: int | None = None) -> Summary:
    """Finish a job and write its rows."""
    if engine == "local":
        run_local(job)
    else:
        from rewards.jobs.ray_engine import run_on_ray

        run_on_ray(job, actors=actors)
    return write_outputs(job, OutputSettings())


def read(path: Path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tifa_settings(folder: Path) -> RewardSettings:
    return RewardSettings(kind="tifa", judge="shapes-vqa", questions=str(folder / "questions.sqlite"), soft=True)


def ranks(folder: Path, items: int, engines: list[str]) -> None:
    from tests.rerank import brute_force

    kinds = {
        "pictures": (brute_force.picture_rows, brute_force.picture_scores, tifa_settings(folder)),
        "texts": (brute_force.text_rows, brute_force.text_scores, RATER),
    }
    for kind, (write, score, reward) in kinds.items():
        rows = write(folder, items)
        start = time.process_time()
        scores = score(folder, rows)
        print(f"{kind}: one call of reward.score, {time.process_time() - start:.0f} CPU-s", flush=True)
        candidates = {row["id"]: row["candidates"] for row in rows}
        for number, (engine, batch, shuffled) in enumerate(RUNS):
            if engine not in engines:
                continue
            ordered = random.Random(number).sample(rows, items) if shuffled else rows
            source = brute_force.write_rows(folder / f"{kind}{number}.jsonl", ordered)
            job = start_rerank(source, folder / f"job_{kind}{number}", RerankSettings(reward=reward, batch_size=batch))
            run(job, engine)
            ranked = read(job.folder / "ranked.jsonl")
            assert [row["id"] for row in ranked] == [row["id"] for row in ordered]
            found = brute_force.compare(ranked, scores, candidates)
            order = "shuffled" if shuffled else "in order"
            print(
                f"{kind:8s} {engine:5s} batch {batch:4d} {order}: {found.items} items, {len(found.wrong)} wrong; "
                f"{found.exchanged} with candidates within {brute_force.TOLERANCE:g} exchanged, largest difference of "
                f"a score {found.largest:.1e}, {found.abstained} abstentions",
                flush=True,
            )
            assert found.items == items and not found.wrong, found.wrong


def overhead(folder: Path, items: int) -> None:
    from tests.rerank import brute_force

    machinery(folder)
    for kind in ("texts", "pictures"):
        if kind == "texts":
            rows, reward = brute_force.text_rows(folder, items), RATER
        else:
            rows, reward = brute_force.picture_rows(folder, items, cut_every=items), tifa_settings(folder)
        rows = [distinct(row) for row in rows]  # equal candidates are judged once: that would flatter the job
        count = sum(len(row["candidates"]) for row in rows)
        source = brute_force.write_rows(folder / f"{kind}.jsonl", rows)
        beside_score(source, folder, reward)
        pairs = alternating(
            partial(bare, build_reward(reward), folder, rows),
            lambda n, source=source, name=kind, reward=reward: local_job(source, folder / f"{name}{n}", reward),
        )
        alone, whole = (1000 * statistics.median(seconds) / count for seconds in zip(*pairs))
        shares = sorted(100 * (job / score - 1) for score, job in pairs)
        print(
            f"{kind:8s} {count} candidates, {REPEATS} pairs: reward.score {alone:.2f} ms of CPU a candidate, job "
            f"{whole:.2f}; overhead, median of pairs {statistics.median(shares):+.1f}% "
            f"(from {shares[0]:+.1f}% to {shares[-1]:+.1f}%)",
            flush=True,
        )


def beside_score(source: Path, folder: Path, reward: RewardSettings) -> None:
    """CPU time of a job outside `reward.score` over the time inside it, measured in the same job."""
    from rewards.harmonic.reward import HarmonicEval
    from rewards.tifa.reward import TIFA

    judged: Any = TIFA if reward.kind == "tifa" else HarmonicEval
    plain, spent, shares = judged.score, 0.0, []

    def timed(self, *arguments, **keywords):
        nonlocal spent
        start = time.process_time()
        try:
            return plain(self, *arguments, **keywords)
        finally:
            spent += time.process_time() - start

    judged.score = timed
    for repeat in range(REPEATS + 1):
        spent, start = 0.0, time.process_time()
        local_job(source, folder / f"beside_{reward.kind}{repeat}", reward)
        shares.append(100 * ((time.process_time() - start) / spent - 1))
    judged.score = plain
    found = sorted(shares[1:])  # the first warms up
    print(
        f"{reward.kind:8s} {REPEATS} jobs: outside reward.score {statistics.median(found):.1f}% of the time inside "
        f"(from {found[0]:.1f}% to {found[-1]:.1f}%)",
        flush=True,
    )


def alternating(first, second) -> list[tuple[float, float]]:
    """CPU seconds of both, in turns, each time the other one first; a first round that warms up is dropped."""
    found = []
    for repeat in range(REPEATS + 1):
        seconds = {}
        for action in (first, second) if repeat % 2 else (second, first):
            start = time.process_time()
            action(repeat)
            seconds[action] = time.process_time() - start
        found.append((seconds[first], seconds[second]))
    return found[1:]


def distinct(row):
    return {**row, "candidates": list(dict.fromkeys(row["candidates"]))}


def bare(reward, folder: Path, rows, repeat: int) -> None:
    """One call of reward.score with everything: what a script without any engine does."""
    flat = [(row, candidate) for row in rows for candidate in row["candidates"]]
    if "image" in rows[0]:
        reward.score([str(folder / row["image"]) for row, _ in flat], [text for _, text in flat])
    else:
        reward.score([str(folder / name) for _, name in flat], [row["prompt"] for row, _ in flat])


def local_job(source: Path, folder: Path, reward: RewardSettings) -> None:
    run(start_rerank(source, folder, RerankSettings(reward=reward)))


def machinery(folder: Path, items: int = 2000) -> None:
    """What a job costs beside its judge: the same with a reward that costs nothing."""
    source = plain_rows(folder, items)
    start = time.process_time()
    local_job(source, folder / "job_machinery", LENGTH)
    cost = 1000 * (time.process_time() - start) / items / CANDIDATES
    print(f"reading, ranking, committing and writing without a judge: {cost:.3f} ms of CPU a candidate", flush=True)


def plain_rows(folder: Path, items: int) -> Path:
    """Texts about a picture that no one looks at."""
    (folder / "a.png").write_bytes(b"not looked at")
    source = folder / f"plain{items}.jsonl"
    with source.open("w") as file:
        for n in range(items):
            candidates = [f"{'x' * (1 + (n + 3 * k) % 11)} {n}" for k in range(CANDIDATES)]
            file.write(json.dumps({"id": f"i{n}", "image": "a.png", "candidates": candidates}) + "\n")
    return source


def memory(folder: Path, engines: list[str]) -> None:
    """Each size in a process of its own."""
    for engine in engines:
        peaks = {}
        for rows in (10_000, 200_000):
            words = ["--source", plain_rows(folder, rows), "--out", folder / f"job_{engine}{rows}", "--engines", engine]
            command = [sys.executable, __file__, "memory-one", *map(str, words)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = json.loads(output.splitlines()[-1])
            peaks[rows] = found["mb"]
            print(
                f"{engine:5s} {rows:7d} rows of {CANDIDATES}: driver's peak {found['mb']:.0f} MB, "
                f"{found['seconds']:.0f} s, {found['ranked']} ranked",
                flush=True,
            )
        print(f"{engine:5s} 200,000 against 10,000 rows: {100 * (peaks[200_000] / peaks[10_000] - 1):+.1f}%")


def memory_one(source: Path, out: Path, engine: str) -> None:
    start = time.perf_counter()
    summary = run(start_rerank(source, out, RerankSettings(reward=LENGTH)), engine)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024
    print(json.dumps({"mb": peak, "seconds": time.perf_counter() - start, "ranked": summary.ranked}))


def speedup(folder: Path, seconds: int, judge: str) -> None:
    """Two actors against one, in the steady state and whole: from starting Ray to the last output."""
    from tests.rerank import brute_force

    reward, cost = {"busy": (BUSY, BUSY_SECONDS), "rater": (RATER, 0.0036)}[judge]
    items = int(2 * seconds / cost / CANDIDATES)
    if judge == "busy":
        source = plain_rows(folder, items)
    else:
        rows = [distinct(row) for row in brute_force.text_rows(folder, items)]
        source = brute_force.write_rows(folder / "texts.jsonl", rows)
    count = sum(len(row["candidates"]) for row in read(source))
    steady, whole, free = {}, {}, {}
    for actors in (1, 2):
        with Watch() as watch:
            start = time.time()
            job = start_rerank(source, folder / f"job{actors}", RerankSettings(reward=reward, shard_size=32))
            run(job, "ray", actors)
            taken = time.time() - start
        # Once every actor has committed its first shard, Ray, the processes and the judges have started.
        commits = sorted(job.path_of(shard).stat().st_mtime for shard in job.shards())
        begin, end = commits[actors - 1], commits[-1]
        done = (1 - actors / len(commits)) * count
        ran, waited = watch.of_actors(begin, end)
        steady[actors], whole[actors] = done / (end - begin), count / taken
        free[actors] = steady[actors] / (1 - waited)
        print(
            f"{judge}: {actors} actors, {count} candidates: {steady[actors]:.0f} a second over {end - begin:.0f} s; "
            f"whole job {taken:.0f} s, {whole[actors]:.0f} a second, first shard after {commits[0] - start:.0f} s; "
            f"others used {watch.others:.2f} cores; an actor ran {ran:.0%} of the time, waited for a core {waited:.0%}",
            flush=True,
        )
    print(
        f"{judge}: speed-up {steady[2] / steady[1]:.2f} in the steady state, {whole[2] / whole[1]:.2f} of the whole "
        f"job; without the time in which actors waited for a core {free[2] / free[1]:.2f}"
    )


class Watch:
    """What else the machine did while the block ran, and whether the actors had a core, sampled each second.

    Attributes:
        others: cores that processes outside this one's tree used.
    """

    def __enter__(self):
        self._stop, self._used, self._start = threading.Event(), 0.0, time.monotonic()
        self._threads: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._stop.set()
        self._thread.join()
        self.others = self._used / (time.monotonic() - self._start)

    def of_actors(self, begin: float, end: float) -> tuple[float, float]:
        """Shares of the time from `begin` to `end` in which an actor's busiest thread ran, and waited for a core."""
        busiest: dict[int, tuple[float, float]] = {}
        for (process, _), samples in self._threads.items():
            inside = [sample for sample in samples if begin <= sample[0] <= end]
            if len(inside) > 1:
                wall, ran, waited = (last - first for first, last in zip(inside[0], inside[-1]))
                busiest[process] = max(busiest.get(process, (0.0, 0.0)), (ran / wall, waited / wall))
        return tuple(statistics.mean(values) for values in zip(*busiest.values()))

    def _watch(self):
        import psutil

        before: dict[tuple[int, float], float] = {}
        while not self._stop.wait(1):
            children = psutil.Process().children(recursive=True)
            own = {os.getpid()} | {process.pid for process in children}
            now = {}
            for process in psutil.process_iter(["cpu_times", "create_time"]):
                times = process.info["cpu_times"]
                if process.pid not in own and times is not None:
                    now[process.pid, process.info["create_time"]] = times.user + times.system
            self._used += sum(used - before[process] for process, used in now.items() if process in before)
            before = now
            for process in children:
                self._sample(process)

    def _sample(self, process):
        import psutil

        try:
            if "MapWorker" in " ".join(process.cmdline()):
                for thread in Path(f"/proc/{process.pid}/task").iterdir():
                    ran, waited, _ = (thread / "schedstat").read_text().split()
                    sample = (time.time(), int(ran) / 1e9, int(waited) / 1e9)
                    self._threads.setdefault((process.pid, int(thread.name)), []).append(sample)
        except (psutil.Error, OSError):  # it ended meanwhile
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ranks", "overhead", "memory", "memory-one", "speedup"])
    parser.add_argument("--items", type=int)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--judge", choices=["busy", "rater"], default="rater", help="of speedup")
    parser.add_argument("--engines", default="local,ray")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.what == "memory-one":
        memory_one(args.source, args.out, args.engines)
        return
    folder = Path(tempfile.mkdtemp())
    try:
        if args.what == "ranks":
            ranks(folder, args.items or 2000, args.engines.split(","))
        elif args.what == "overhead":
            overhead(folder, args.items or 60)
        elif args.what == "memory":
            memory(folder, args.engines.split(","))
        else:
            speedup(folder, args.seconds, args.judge)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
