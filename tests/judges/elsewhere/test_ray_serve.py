"""Two replicas on one node, one of which is killed on the way: nothing is scored 0, nothing is lost (slow).

Ray Serve gives its proxy 5 s to start, three times, and then ends it; its processes give way to all others. Both is too
little for two busy cores, hence `PATIENCE`.
"""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rewards.judges.elsewhere.client import RemoteJudge
from rewards.judges.loading import load_judge
from tests import tiny_models
from tests.judges.elsewhere.test_serve import free_port

ray = pytest.importorskip("ray", reason="needs readable-rewards[ray]")
pytest.importorskip("ray.serve", reason="needs ray[serve]")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PATIENCE = {
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "300",
    "RAY_worker_niceness": "0",
}
SAMPLES, CLIENTS = 160, 16


def replica_processes() -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if b"ServeReplica:default:judges" in file.read():
                        found.append(int(entry))
            except OSError:
                pass
    return found


def test_a_replica_is_killed_and_nothing_is_lost(tmp_path, monkeypatch):
    for name, seconds in PATIENCE.items():
        monkeypatch.setenv(name, seconds)  # read by the processes that Ray starts
    from ray import serve

    from rewards.judges.elsewhere.ray_serve import application

    path = tiny_models.save("llava", tmp_path / "llava")
    local = load_judge(path)
    images = [tiny_models.picture(seed % 4) for seed in range(SAMPLES)]
    prompts = [f"rate {at}" for at in range(SAMPLES)]
    expected = local.rate(images, prompts).probabilities
    port = free_port()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(application({"rater": path}, replicas=(2, 2)))
        url = f"http://127.0.0.1:{port}/rater"
        assert RemoteJudge(url).identity() == local.identity()
        first = replica_processes()
        assert len(first) == 2
        found = torch.full_like(expected, torch.nan)
        remotes = [RemoteJudge(url, deadline=600.0) for _ in range(CLIENTS)]
        answered_at_the_kill = []

        def kill() -> None:
            while (answered := int((~found[:, 0].isnan()).sum())) < SAMPLES // 4:
                time.sleep(0.005)
            os.kill(first[0], signal.SIGKILL)
            answered_at_the_kill.append(answered)

        def client(number: int) -> None:
            for at in range(number, SAMPLES, CLIENTS):
                found[at] = remotes[number].rate([images[at]], [prompts[at]]).probabilities[0]

        killing = threading.Thread(target=kill)
        killing.start()
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(client, range(CLIENTS)))
        killing.join()
        assert answered_at_the_kill[0] < SAMPLES
        assert torch.allclose(found, expected, atol=1e-5)
        assert (found > 0).all()
        until = time.monotonic() + 300
        while first[0] in (now := replica_processes()) or len(now) < 2:  # Ray Serve starts another one
            assert time.monotonic() < until, f"replicas {first}, now {now}"
            time.sleep(0.5)
    finally:
        serve.shutdown()
        ray.shutdown()
