"""What `rewards rerank` claims, measured in the shapes world.

    python benchmarks/rerank_jobs.py ranks [--items 2000]      ranks of both engines against brute force by reward.score
    python benchmarks/rerank_jobs.py overhead [--items 300]    CPU time of a local job against bare reward.score
    python benchmarks/rerank_jobs.py memory                    peak memory of the driver, 10,000 and 200,000 rows
    python benchmarks/rerank_jobs.py speedup [--seconds 60]    candidates a second of two Ray actors against one

Each starts from nothing and cleans up. `overhead` counts CPU seconds, so that a busy machine does not blur it;
`speedup` needs two free cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT)

CANDIDATES = 8
TOLERANCE = 1e-5
REPEATS = 5
LENGTH = "benchmarks.rerank_jobs:length"


def busy(prompts, completions, **columns):
    """A reward of pure computation, 2 ms of CPU a text, for measuring engines without a model."""
    values = []
    for text in completions:
        end = time.process_time() + 0.002
        value = 0
        while time.process_time() < end:
            value = (value * 31 + len(text)) % 1009
        values.append(float(len(text)))
    return values


def length(prompts, completions, **columns):
    return [float(len(text)) for text in completions]


def text_rows(folder: Path, count: int) -> Path:
    from rewards.shapes.build.corruption import flawed_caption
    from rewards.shapes.render import render
    from rewards.shapes.scenes import sample_scene

    rng = random.Random(0)
    rows = []
    for n in range(count):
        scene = sample_scene(rng)
        render(scene).save(folder / f"{n:05d}.png")
        rows.append(
            {
                "id": f"t{n}",
                "image": f"{n:05d}.png",
                "candidates": [flawed_caption(scene, rng) for _ in range(CANDIDATES)],
            }
        )
    return write(folder / "texts.jsonl", rows)


def picture_rows(folder: Path, count: int) -> Path:
    from rewards.shapes.build.corruption import corrupt_scene
    from rewards.shapes.language import describe
    from rewards.shapes.prompts import question_store
    from rewards.shapes.render import render
    from rewards.shapes.scenes import sample_scene

    rng = random.Random(1)
    rows = []
    for n in range(count):
        scene = sample_scene(rng)
        names = [f"p{n:05d}_{k}.png" for k in range(CANDIDATES)]
        for k, name in enumerate(names):
            render(scene if k == 0 else corrupt_scene(scene, rng)).save(folder / name)
        order = rng.sample(names, CANDIDATES)
        rows.append({"id": f"p{n}", "prompt": str(describe(scene)), "candidates": order})
    question_store(folder / "questions.sqlite", sorted({row["prompt"] for row in rows})).close()
    return write(folder / "pictures.jsonl", rows)


def write(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def settings(reward, **changes):
    from rewards.rerank.settings import RerankSettings

    return RerankSettings(reward=reward, **changes)


def kinds(folder: Path, items: int):
    """(name, source, reward settings) of texts and pictures."""
    from rewards.rerank.settings import RewardSettings

    questions = str(folder / "questions.sqlite")
    yield (
        "pictures",
        picture_rows(folder, items),
        RewardSettings(kind="tifa", judge="shapes-vqa", questions=questions, soft=True),
    )
    if (ROOT / "rewards/shapes/weights/rater").is_dir():
        yield "texts", text_rows(folder, items), RewardSettings(kind="harmonic", judge="shapes-rater")
    else:
        print("texts: the packaged rater is missing, skipped")


def brute_force(source: Path, reward) -> dict[str, list[float]]:
    """Scores from one reward.score of everything."""
    rows = read(source)
    folder = source.parent
    flat = [(row, candidate) for row in rows for candidate in row["candidates"]]
    if "image" in rows[0]:
        scores = reward.score([str(folder / row["image"]) for row, _ in flat], [text for _, text in flat])
    else:
        scores = reward.score([str(folder / name) for _, name in flat], [row["prompt"] for row, _ in flat])
    overall = scores.overall.tolist()
    return {row["id"]: overall[n * CANDIDATES : (n + 1) * CANDIDATES] for n, row in enumerate(rows)}


def compare(found: dict[str, list[int]], expected: dict[str, list[float]]) -> tuple[int, int]:
    """Items whose order is not that of a plain sort, and those of them that a tie within the tolerance does not excuse.

    A judge's float32 score depends on its batch by up to 1e-5, so that two candidates that close may change places.
    """
    other = wrong = 0
    for key, scores in expected.items():
        order = found[key]
        other += order != sorted(range(CANDIDATES), key=lambda k: (-round(scores[k], 6), k))
        wrong += any(scores[a] < scores[b] - TOLERANCE for a, b in itertools.pairwise(order))
    return other, wrong


def ranks(folder: Path, items: int, engines: list[str]) -> None:
    from rewards.rerank.job import run_local, start_job
    from rewards.rerank.outputs import OutputSettings, write_outputs
    from rewards.rerank.ray_engine import run_on_ray
    from rewards.rerank.settings import build_reward

    for name, source, reward in kinds(folder, items):
        expected = brute_force(source, build_reward(reward))
        rows = read(source)
        shuffled = write(folder / f"{name}_shuffled.jsonl", random.Random(2).sample(rows, len(rows)))
        for engine in engines:
            path, batch = (shuffled, 31) if engine == "local" else (source, 128)
            job = start_job(path, folder / f"job_{name}_{engine}", settings(reward, batch_size=batch))
            start = time.perf_counter()
            run_local(job) if engine == "local" else run_on_ray(job)
            seconds = time.perf_counter() - start
            write_outputs(job, OutputSettings())
            found = {row["id"]: [c["index"] for c in row["candidates"]] for row in read(job.folder / "ranked.jsonl")}
            other, wrong = compare(found, expected)
            print(
                f"{name:8s} {engine:5s} batch {batch:3d} {path.stem:18s} {len(found)} items, {wrong} ranked wrong, "
                f"{other} differ by a tie within {TOLERANCE:g}, {seconds:.0f} s",
                flush=True,
            )
            assert len(found) == items and wrong == 0


def overhead(folder: Path, items: int) -> None:
    from rewards.rerank.job import build_rewards, run_local, start_job
    from rewards.rerank.outputs import OutputSettings, write_outputs

    machinery(folder)
    for name, source, reward in kinds(folder, items):
        built = build_rewards(settings(reward))[0]
        brute_force(source, built)  # warm
        bares, wholes = [], []
        for repeat in range(REPEATS):
            start = time.process_time()
            brute_force(source, built)
            bares.append(time.process_time() - start)
            start = time.process_time()
            job = start_job(source, folder / f"job_{name}_{repeat}", settings(reward))
            run_local(job)
            write_outputs(job, OutputSettings())
            wholes.append(time.process_time() - start)
        bare, whole = min(bares), min(wholes)  # the least disturbed of each
        cost = 1000 * bare / items / CANDIDATES
        share = 100 * (whole / bare - 1)
        print(
            f"{name:8s} reward.score {bare:.1f} CPU-s ({cost:.2f} ms a candidate), job {whole:.1f} CPU-s: {share:+.1f}%"
        )


def machinery(folder: Path, items: int = 2000) -> None:
    """What a job costs beside its judge: the same with a reward that costs nothing."""
    from rewards.rerank.job import run_local, start_job
    from rewards.rerank.outputs import OutputSettings, write_outputs
    from rewards.rerank.settings import RewardSettings

    (folder / "a.png").write_bytes(b"not looked at")
    rows = [
        {"id": f"m{n}", "image": "a.png", "candidates": [f"{'x' * (20 + k)} {n}" for k in range(CANDIDATES)]}
        for n in range(items)
    ]
    source = write(folder / "machinery.jsonl", rows)
    start = time.process_time()
    job = start_job(source, folder / "job_machinery", settings(RewardSettings(kind="function", function=LENGTH)))
    run_local(job)
    write_outputs(job, OutputSettings())
    cost = 1000 * (time.process_time() - start) / items / CANDIDATES
    print(f"reading, ranking, committing and writing without a judge: {cost:.3f} ms a candidate")


def memory(folder: Path) -> None:
    """Each size in a process of its own."""
    peaks = {}
    for rows in (10_000, 200_000):
        (folder / "a.png").write_bytes(b"not looked at")
        source = folder / f"{rows}.jsonl"
        with source.open("w") as file:
            for n in range(rows):
                candidates = ["x" * (1 + (n + k) % 9) for k in range(CANDIDATES)]
                file.write(json.dumps({"id": f"i{n}", "image": "a.png", "candidates": candidates}) + "\n")
        command = [sys.executable, __file__, "memory-one", "--source", str(source), "--out", str(folder / f"job{rows}")]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        peaks[rows] = found["gb"]
        print(
            f"{rows:7d} rows x {CANDIDATES}: {found['gb'] * 1024:.0f} MB peak, "
            f"{found['seconds']:.0f} s, {found['ranked']} ranked"
        )
    assert peaks[200_000] < peaks[10_000] * 1.1, peaks


def memory_one(source: Path, out: Path) -> None:
    from rewards.rerank.job import run_local, start_job
    from rewards.rerank.outputs import OutputSettings, write_outputs
    from rewards.rerank.settings import RewardSettings

    start = time.perf_counter()
    job = start_job(source, out, settings(RewardSettings(kind="function", function=LENGTH)))
    run_local(job)
    summary = write_outputs(job, OutputSettings(top=1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"gb": peak, "seconds": time.perf_counter() - start, "ranked": summary.ranked}))


def speedup(folder: Path, seconds: int) -> None:
    import ray

    from rewards.rerank.job import start_job
    from rewards.rerank.ray_engine import run_on_ray
    from rewards.rerank.settings import RewardSettings

    items = int(seconds / 0.002 / CANDIDATES)
    (folder / "a.png").write_bytes(b"not looked at")
    rows = [
        {"id": f"i{n}", "image": "a.png", "candidates": [f"{'x' * k} {n}" for k in range(CANDIDATES)]}
        for n in range(items)
    ]
    source = write(folder / "busy.jsonl", rows)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    rates = {}
    for actors in (1, 2):
        reward = RewardSettings(kind="function", function="benchmarks.rerank_jobs:busy")
        job = start_job(source, folder / f"job{actors}", settings(reward, shard_size=64))
        times: list[float] = []
        run_on_ray(job, actors=actors, on_shard=lambda shard, times=times: times.append(time.perf_counter()))
        # From the first committed shard on: the start of Ray and its actors is a matter of seconds, whatever the job.
        rates[actors] = (len(times) - actors) * 64 * CANDIDATES / (times[-1] - times[actors - 1])
        print(f"{actors} actors: {rates[actors]:.0f} candidates a second over {times[-1] - times[0]:.0f} s")
    print(f"speed-up {rates[2] / rates[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ranks", "overhead", "memory", "memory-one", "speedup"])
    parser.add_argument("--items", type=int)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--engines", default="local,ray")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.what == "memory-one":
        memory_one(args.source, args.out)
        return
    folder = Path(tempfile.mkdtemp())
    try:
        if args.what == "ranks":
            ranks(folder, args.items or 2000, args.engines.split(","))
        elif args.what == "overhead":
            overhead(folder, args.items or 300)
        elif args.what == "memory":
            memory(folder)
        else:
            speedup(folder, args.seconds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
