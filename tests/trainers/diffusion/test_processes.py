"""Runs in processes of their own: killed and resumed, and two processes against one with twice the batch."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rewards.runs.folder import list_checkpoints
from rewards.runs.metrics import read_metrics
from tests.trainers.diffusion.tiny_runs import METHODS, same_metrics

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow


def start(processes, options, kind="plain", method="ddpo"):
    launcher = [sys.executable]
    if processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher += ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={port}"]
    command = [*launcher, "-m", "tests.trainers.diffusion.tiny_process", json.dumps(options), kind, method]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def finish(process):
    output, _ = process.communicate(timeout=500)
    return process.returncode, output.decode()


def assert_close(left, right):
    """Nested lists and mappings of numbers, equal up to rounding."""
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        left, right = list(left.values()), [right[key] for key in left]
    if isinstance(left, list):
        assert len(left) == len(right)
        for a, b in zip(left, right):
            assert_close(a, b)
    else:
        assert left == right or abs(left - right) < 1e-5


def run(processes, options, kind="plain", method="ddpo"):
    code, output = finish(start(processes, options, kind, method))
    assert code == 0, output[-3000:]


@pytest.mark.parametrize(("processes", "method"), [(2, "ddpo"), *((1, method) for method in METHODS)])
def test_killed_and_resumed_run_equals_the_uninterrupted_one(tmp_path, processes, method):
    options = {"num_epochs": 6, "output_dir": str(tmp_path / "whole")}
    run(processes, options, method=method)
    cut = tmp_path / "cut"
    resumed = options | {"output_dir": str(cut), "resume": True}
    rng = random.Random(processes)
    for kill in range(3):
        process = start(processes, resumed, method=method)
        wanted = kill + 1
        while process.poll() is None and len(list_checkpoints(cut / "checkpoints")) < wanted:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.5)
        assert process.poll() is None, finish(process)[1][-3000:]
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    run(processes, resumed, method=method)
    same_metrics(read_metrics(tmp_path / "whole"), read_metrics(cut), 1e-6)


@pytest.mark.parametrize(("kind", "method"), [("some_abstain", "ddpo"), *(("plain", method) for method in METHODS)])
def test_two_processes_equal_one_with_twice_the_batch(tmp_path, kind, method):
    one = {"num_epochs": 3, "output_dir": str(tmp_path / "one"), "sample_batch_size": 8, "train_batch_size": 4}
    run(1, one, kind, method)
    run(2, {"num_epochs": 3, "output_dir": str(tmp_path / "two")}, kind, method)
    one, two = read_metrics(tmp_path / "one"), read_metrics(tmp_path / "two")
    same_metrics(one, two, 1e-4)
    for a, b in zip(one, two):
        for key in a:
            if key.endswith(("/count", "/abstained", "optimizer_steps", "pairs")):
                assert a[key] == pytest.approx(b[key], rel=1e-6), key  # counts of a part may be spread over samples
    statistics = [
        json.loads((tmp_path / name / "checkpoints" / "checkpoint-3" / "state.json").read_text())["statistics"]
        for name in ("one", "two")
    ]
    assert statistics[0].keys() == statistics[1].keys() and statistics[0]
    assert_close(*statistics)
    if kind == "some_abstain":
        assert sum(row.get("rewards/reward/abstained", 0) for row in one) > 0


def test_judge_that_dies_on_one_process_neither_hangs_nor_stops_the_other(tmp_path):
    run(2, {"num_epochs": 2, "output_dir": str(tmp_path), "max_failure_rate": 0.6}, "dies_on_rank_1")
    rows = [row for row in read_metrics(tmp_path) if "rewards/reward/abstained" in row]
    assert [row["rewards/reward/abstained"] for row in rows] == [8, 8]
    code, output = finish(start(2, {"num_epochs": 2, "output_dir": str(tmp_path / "b")}, "refuses_on_rank_1"))
    assert code != 0 and "no questions for this prompt" in output


@pytest.mark.parametrize("method", METHODS)
def test_step_that_is_not_finite_on_one_process_is_skipped_on_both(tmp_path, method):
    run(2, {"num_epochs": 2, "output_dir": str(tmp_path)}, "nan_on_rank_1", method)
    rows = [row for row in read_metrics(tmp_path) if "train/skipped_steps" in row]
    assert [row["train/skipped_steps"] for row in rows] == [1, 0]
    assert all(row["train/grad_norm"] is not None for row in rows)
