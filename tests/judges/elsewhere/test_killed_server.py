"""SIGKILL of `rewards serve` in the middle of a load: clients ask again, nothing is scored 0, nothing is lost."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from rewards.harmonic.reward import HarmonicEval
from rewards.judges.elsewhere.client import RemoteJudge
from rewards.judges.loading import load_judge
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.render import render
from tests.judges.elsewhere.test_serve import free_port

CLIENTS, SAMPLES, KILLS = 4, 80, 1


def start(port):
    command = [sys.executable, "-m", "rewards", "serve", "--judge", "shapes-rater", "--port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=1)
            return process
        except httpx.HTTPError:
            assert process.poll() is None, "the server ended by itself"
            time.sleep(0.1)
    raise AssertionError("the server did not come up")


@pytest.mark.slow
def test_a_server_is_killed_in_the_middle_and_nothing_is_lost():
    scenes = sample_scenes("test", SAMPLES, seed=0)
    pictures, texts = [render(scene) for scene in scenes], [str(describe(scene)) for scene in scenes]
    expected = HarmonicEval(load_judge("shapes-rater")).score(pictures, texts)
    port = free_port()
    server = start(port)
    rewards = [HarmonicEval(RemoteJudge(f"http://127.0.0.1:{port}", deadline=600.0)) for _ in range(CLIENTS)]
    found: dict[int, float] = {}

    def client(number):
        for at in range(number, SAMPLES, CLIENTS):
            scores = rewards[number].score([pictures[at]], [texts[at]])
            assert scores.reasons == [None]
            found[at] = float(scores.overall[0])

    def killer():
        nonlocal server
        for kill in range(1, KILLS + 1):
            while len(found) < SAMPLES * kill // (KILLS + 1):
                time.sleep(0.005)
            server.send_signal(signal.SIGKILL)
            server.wait()
            server = start(port)

    killing = threading.Thread(target=killer)
    killing.start()
    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(client, range(CLIENTS)))
    finally:
        killing.join()
        server.kill()
        server.wait()
    assert [found[at] for at in range(SAMPLES)] == pytest.approx(expected.overall.tolist(), abs=1e-5)
    assert sum(reward.judge._connection.counts["retries"] for reward in rewards) >= KILLS
