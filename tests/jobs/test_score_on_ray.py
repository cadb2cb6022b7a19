"""`score` and `tifa-bench` on Ray, killed three times, end with the bytes of an uninterrupted local run (slow)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from PIL import Image

from rewards.shapes.prompts import generator_prompts
from rewards.shapes.questions import questions_for
from rewards.tifa.questions.question import question_to_row
from tests.rerank.functions import committed, hold_at, picture, wait_until_held, write_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
pytest.importorskip("ray", reason="the extra 'ray' is not installed")

COMMAND = [sys.executable, "-c", "from rewards.cli import main; main()"]
RAY = ["--engine", "ray", "--actors", "1"]


def finish(words, log, expected=(0, 3)):
    with log.open("w") as output:
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        ended = subprocess.run([*COMMAND, *words], env=environment, stdout=output, stderr=subprocess.STDOUT)
    assert ended.returncode in expected, log.read_text()


def kill_everything(running):
    everything = [running]
    with contextlib.suppress(psutil.NoSuchProcess):
        everything += psutil.Process(running.pid).children(recursive=True)
    for process in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    running.wait()


def killed_at(words, job, shards, folder):
    """Run a command until so many shards are committed, then kill it and all of Ray with it."""
    hold, log = hold_at(folder / "hold", job, shards), folder / "log"
    environment = {**os.environ, "RERANK_HOLD": str(hold), "PYTHONPATH": os.getcwd()}
    with log.open("w") as output:
        running = subprocess.Popen([*COMMAND, *words], env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_held(running, job, shards, log)
    finally:
        kill_everything(running)
        hold.unlink()
    assert committed(job) >= shards


@pytest.fixture
def texts(tmp_path):
    picture(tmp_path / "a.png")
    rows = [{"image": "a.png", "text": "x" * (n % 7) + "?" * (n % 5 == 4), "id": n} for n in range(60)]
    return write_lines(tmp_path / "rows.jsonl", [*rows, "{broken", {"image": "none.png", "text": "a"}])


def test_score_killed_three_times_on_ray_ends_with_the_local_bytes(tmp_path, texts):
    reward = ["reward.kind=function", "reward.function=tests.rerank.functions:by_length", "shard_size=4"]
    local, out = tmp_path / "local.jsonl", tmp_path / "ray.jsonl"
    finish(["score", "reward", str(texts), *reward, "--out", str(local)], tmp_path / "log")
    words = ["score", "reward", str(texts), *reward, "--out", str(out), *RAY]
    for shards in (2, 5, 9):
        killed_at(words, tmp_path / "ray.jsonl.job", shards, tmp_path)
        assert not out.exists()
    finish(words, tmp_path / "log")
    assert out.read_bytes() == local.read_bytes() and len(out.read_text().splitlines()) == 62


def test_score_by_a_judge_on_ray_equals_the_local_run(tmp_path):
    rows = []
    for n, color in enumerate(["red", "blue", "black", "white"] * 3):
        Image.new("RGB", (32, 32), color).save(tmp_path / f"{n}.png")
        rows.append({"image": f"{n}.png", "text": f"a {color} square"})
    source = write_lines(tmp_path / "rows.jsonl", rows)
    words = ["score", "harmonic", str(source), "shard_size=3", "--judge", "shapes-rater", "--device", "cpu"]
    finish([*words, "--out", str(tmp_path / "local.jsonl")], tmp_path / "log")
    finish([*words, "--out", str(tmp_path / "ray.jsonl"), *RAY], tmp_path / "log")
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()


def test_tifa_bench_killed_three_times_on_ray_ends_with_the_local_bytes(tmp_path):
    questions, names = [], {}
    for n, prompt in enumerate(generator_prompts("test", 60, 3)):
        questions += [question_to_row(replace(question, id=f"p{n}")) for question in questions_for(prompt)]
        color = (255 - n, 2 * n, 0) if n != 5 else (0, 0, 0)  # a black one abstains
        Image.new("RGB", (32, 32), color).save(tmp_path / f"{n}.png")
        names[f"p{n}"] = f"{n}.png"
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    (tmp_path / "images.json").write_text(json.dumps(names))
    words = [
        "tifa-bench", "--questions", str(tmp_path / "questions.json"), "--images", str(tmp_path / "images.json"),
        "--judge", "shapes-vqa", "--device", "cpu", "--answer", "choices", "shard_size=1",
    ]  # fmt: skip
    finish([*words, "--output", str(tmp_path / "local.json")], tmp_path / "log", (3,))
    out, job = tmp_path / "ray.json", tmp_path / "ray.json.job"
    for shards in (1, 8, 20):
        killed_at([*words, "--output", str(out), *RAY], job, shards, tmp_path)
        assert not out.exists() and committed(job) < 60
    finish([*words, "--output", str(out), *RAY], tmp_path / "log", (3,))
    assert out.read_bytes() == (tmp_path / "local.json").read_bytes()
