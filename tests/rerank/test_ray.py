"""The Ray engine: the same bytes as the local one, also when an actor, the node or the driver is killed in mid-run.

Ray needs a minute or two to start on a small machine, so these tests are slow: pytest -m slow tests/rerank/test_ray.py
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from rewards.errors import InputError, RewardsError
from rewards.rerank.job import run_local, start_job
from rewards.rerank.outputs import OutputSettings, write_outputs
from rewards.rerank.settings import RerankSettings, RewardSettings

from .functions import write_texts

LENGTH = RewardSettings(kind="function", function="tests.rerank.functions:by_length")
SETTINGS = RerankSettings(reward=LENGTH, shard_size=5)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")


@pytest.fixture
def expected(tmp_path):
    source = write_texts(tmp_path, 100, candidates=4)
    job = start_job(source, tmp_path / "local", SETTINGS)
    run_local(job)
    write_outputs(job, OutputSettings(pairs=True))
    return source, {
        name: (job.folder / name).read_bytes() for name in ("ranked.jsonl", "problems.jsonl", "pairs.parquet")
    }


def finished(source, folder):
    job = start_job(source, folder, SETTINGS)
    run_local(job)
    write_outputs(job, OutputSettings(pairs=True))
    return {name: (folder / name).read_bytes() for name in ("ranked.jsonl", "problems.jsonl", "pairs.parquet")}


def start_driver(source, folder, log):
    command = [
        sys.executable,
        "-c",
        "from rewards.cli.rerank import rerank; import typer; typer.run(rerank)",
        str(source),
    ]
    options = [
        "--engine",
        "ray",
        "--actors",
        "2",
        "--pairs",
        "--out",
        str(folder),
        "shard_size=5",
        "reward.kind=function",
    ]
    environment = {**os.environ, "RERANK_SLEEP": "0.05", "PYTHONPATH": os.getcwd()}
    words = [*command, *options, f"reward.function={LENGTH.function}"]
    return subprocess.Popen(words, env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT)


def wait_for_shards(driver, folder, count, log):
    deadline = time.time() + 600
    while len(list(folder.glob("shards/*.jsonl"))) < count:
        assert driver.poll() is None and time.time() < deadline, log.read_text()
        time.sleep(0.05)


def descendants(driver, name):
    return [
        process
        for process in psutil.Process(driver.pid).children(recursive=True)
        if name in " ".join(process.cmdline())
    ]


def test_rows_are_the_local_engines_and_a_finished_job_starts_nothing(tmp_path, expected, monkeypatch):
    from rewards.rerank.ray_engine import run_on_ray

    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    source, contents = expected
    job = start_job(source, tmp_path / "ray", SETTINGS)
    done = []
    run_on_ray(job, actors=2, on_shard=done.append)
    assert len(done) == 20 and finished(source, tmp_path / "ray") == contents
    run_on_ray(job, actors=2)
    assert not ray.is_initialized()
    failing = RewardSettings(kind="function", function="tests.rerank.functions:always_abstains")
    stopped = start_job(source, tmp_path / "failing", RerankSettings(reward=failing, shard_size=100))
    with pytest.raises(RewardsError, match="abstained on 400 of 400"):
        run_on_ray(stopped, actors=1)
    with pytest.raises(InputError, match="do not fit"):
        run_on_ray(stopped, actors=1000)


def test_a_killed_actor_is_replaced_in_the_same_run(tmp_path, expected):
    source, contents = expected
    log = tmp_path / "log"
    driver = start_driver(source, tmp_path / "ray", log)
    wait_for_shards(driver, tmp_path / "ray", 3, log)
    workers = descendants(driver, "MapWorker")
    assert workers, "no actor found"
    workers[0].send_signal(signal.SIGKILL)
    assert driver.wait(timeout=900) == 0, log.read_text()
    assert finished(source, tmp_path / "ray") == contents


@pytest.mark.parametrize("victim", ["driver", "node"])
def test_a_killed_driver_or_node_resumes_to_the_same_bytes(tmp_path, expected, victim):
    source, contents = expected
    log = tmp_path / "log"
    driver = start_driver(source, tmp_path / "ray", log)
    wait_for_shards(driver, tmp_path / "ray", 3, log)
    node = psutil.Process(driver.pid).children(recursive=True)
    if victim == "driver":
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    for process in node:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    assert driver.wait(timeout=600) != 0
    committed = len(list((tmp_path / "ray").glob("shards/*.jsonl")))
    assert 3 <= committed < 20
    assert finished(source, tmp_path / "ray") == contents
