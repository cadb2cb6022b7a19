"""The Ray engine: the same bytes as the local one, also when an actor, the node or the driver is killed in mid-run.

Ray needs a minute or two to start on a small machine, so these tests are slow: pytest -m slow tests/rerank/test_ray.py
"""

import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest

from rewards.build import RewardSettings
from rewards.errors import InputError, RewardsError
from rewards.jobs.job import run_local
from rewards.rerank.outputs import OutputSettings, write_outputs
from rewards.rerank.settings import RerankSettings
from rewards.rerank.task import start_rerank
from tests.rerank.functions import committed, hold_at, picture, read_lines, wait_until_held, write_lines, write_texts

LENGTH = RewardSettings(kind="function", function="tests.rerank.functions:by_length")
SETTINGS = RerankSettings(reward=LENGTH, shard_size=5)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")


@pytest.fixture
def expected(tmp_path):
    source = write_texts(tmp_path, 100, candidates=4)
    job = start_rerank(source, tmp_path / "local", SETTINGS)
    run_local(job)
    write_outputs(job, OutputSettings(pairs=True))
    return source, {
        name: (job.folder / name).read_bytes() for name in ("ranked.jsonl", "problems.jsonl", "pairs.parquet")
    }


def finished(source, folder):
    job = start_rerank(source, folder, SETTINGS)
    run_local(job)
    write_outputs(job, OutputSettings(pairs=True))
    return {name: (folder / name).read_bytes() for name in ("ranked.jsonl", "problems.jsonl", "pairs.parquet")}


@pytest.fixture
def driver(tmp_path, expected, monkeypatch):
    """A run of the command on Ray, held with three shards committed."""
    source, _ = expected
    monkeypatch.setenv("RERANK_LOG", str(tmp_path / "judged"))
    log, hold, folder = tmp_path / "log", tmp_path / "hold", tmp_path / "ray"
    hold_at(hold, folder, 3)
    command = [sys.executable, "-c", "from rewards.cli.rerank import rerank; import typer; typer.run(rerank)"]
    options = ["--engine", "ray", "--actors", "2", "--pairs", "--out", str(folder)]
    settings = ["shard_size=5", "reward.kind=function", f"reward.function={LENGTH.function}"]
    with log.open("w") as output:
        running = subprocess.Popen(
            [*command, str(source), *options, *settings],
            env={
                **os.environ,
                "RERANK_HOLD": str(hold),
                "PYTHONPATH": os.getcwd(),
                "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_held(running, folder, 3, log)
        yield running
    finally:
        hold.unlink(missing_ok=True)
        everything = [running]
        with contextlib.suppress(psutil.NoSuchProcess):
            everything += psutil.Process(running.pid).children(recursive=True)
        for process in everything:
            kill(process)
        running.wait()


def kill(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


def descendants(driver, name=""):
    return [
        process
        for process in psutil.Process(driver.pid).children(recursive=True)
        if name in " ".join(process.cmdline())
    ]


def test_rows_are_the_local_engines_and_a_finished_job_starts_nothing(tmp_path, expected, monkeypatch):
    from rewards.jobs.ray_engine import run_on_ray

    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    source, contents = expected
    job = start_rerank(source, tmp_path / "ray", SETTINGS)
    done = []
    run_on_ray(job, actors=2, on_shard=done.append)
    job.close()
    assert len(done) == 20 and finished(source, tmp_path / "ray") == contents
    run_on_ray(job, actors=2)
    assert not ray.is_initialized()
    failing = RewardSettings(kind="function", function="tests.rerank.functions:always_abstains")
    stopped = start_rerank(source, tmp_path / "failing", RerankSettings(reward=failing, shard_size=100))
    with pytest.raises(RewardsError, match="abstained on 400 of 400"):
        run_on_ray(stopped, actors=1)
    with pytest.raises(InputError, match="do not fit"):
        run_on_ray(stopped, actors=1000)


def test_best_of_n_ranks_on_ray_what_it_sampled_here(tmp_path, monkeypatch):
    from rewards.jobs.engine import Engine
    from rewards.rerank.generate_settings import GenerateSettings
    from rewards.rerank.run import BestOfNSettings, run_best_of_n

    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    sampled = GenerateSettings("shapes", n=3, limit=6, max_new_tokens=6)
    rows = []
    for engine in (Engine("local"), Engine("ray", actors=2)):
        rerank = RerankSettings(RewardSettings(judge="shapes-rater"), shard_size=2)
        settings = BestOfNSettings(sampled, rerank, out=str(tmp_path / "run"))
        run_best_of_n(settings, engine)
        ranking = tmp_path / "run" / "ranking"
        rows.append((ranking / "ranked.jsonl").read_bytes())
        ranking.rename(tmp_path / engine.name)
    assert rows[0] == rows[1] and len(rows[0].splitlines()) == 6


def test_a_candidate_that_kills_every_judge_stops_the_job_with_the_rest_kept(tmp_path, monkeypatch):
    from rewards.jobs.ray_engine import run_on_ray

    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setenv("RERANK_DIES", "x" * 1)  # the first candidate of the first item, and of every eleventh
    source = write_texts(tmp_path, 11, candidates=1)
    reward = RewardSettings(kind="function", function="tests.rerank.functions:dies")
    job = start_rerank(source, tmp_path / "job", RerankSettings(reward=reward, shard_size=2))
    with pytest.raises(RewardsError, match=r"^the judge died 4 times on shard 0 \(items 1 to 2 of .*; finished shards"):
        run_on_ray(job, actors=2)
    assert job.missing()[0].number == 0


def test_a_judge_that_cannot_start_says_why_in_one_line(tmp_path, monkeypatch):
    from rewards.jobs.ray_engine import run_on_ray
    from rewards.shapes.prompts import question_store

    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    picture(tmp_path / "a.png")
    source = write_lines(tmp_path / "r.jsonl", [{"prompt": "a red circle", "candidates": ["a.png"] * 2}])
    question_store(tmp_path / "q.sqlite", ["a red circle"]).close()
    reward = RewardSettings(
        kind="tifa", judge="shapes-oracle", sentence_model=None, questions=str(tmp_path / "q.sqlite")
    )
    job = start_rerank(source, tmp_path / "job", RerankSettings(reward=reward))
    (tmp_path / "q.sqlite").unlink()
    with pytest.raises(RewardsError, match=r"^a judge on .* cannot start: question store .* does not exist; finished"):
        run_on_ray(job, actors=1)


def judged_once(tmp_path):
    """A shard that was held when its judge died had judged nothing yet: every candidate was judged exactly once."""
    whole = [len(text) for row in read_lines(tmp_path / "items.jsonl") for text in dict.fromkeys(row["candidates"])]
    return sorted(int(line) for line in (tmp_path / "judged").read_text().split()) == sorted(whole)


def test_a_killed_actor_is_replaced_in_the_same_run(tmp_path, expected, driver):
    source, contents = expected
    workers = descendants(driver, "MapWorker")
    assert len(workers) == 2
    kill(workers[0])
    (tmp_path / "hold").unlink()
    assert driver.wait(timeout=900) == 0, (tmp_path / "log").read_text()
    assert committed(tmp_path / "ray") == 20 and judged_once(tmp_path)
    assert not list((tmp_path / "ray" / "shards").glob("*.tmp"))
    assert {name: (tmp_path / "ray" / name).read_bytes() for name in contents} == contents
    assert finished(source, tmp_path / "ray") == contents


@pytest.mark.parametrize("victim", ["driver", "node"])
def test_a_killed_driver_or_node_resumes_to_the_same_bytes(tmp_path, expected, driver, victim):
    source, contents = expected
    # Of a dead node a driver learns when it gives up reconnecting: Ray ends it then, whatever it was doing.
    node = descendants(driver)
    if victim == "driver":
        kill(driver)
        driver.wait()
    for process in node:
        kill(process)
    assert driver.wait(timeout=900) != 0
    assert 3 <= committed(tmp_path / "ray") <= 5
    assert finished(source, tmp_path / "ray") == contents
    assert judged_once(tmp_path)
