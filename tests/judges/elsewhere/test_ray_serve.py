"""Two replicas on one node, one of which is killed on the way: nothing is scored 0, nothing is lost."""

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

ray = pytest.importorskip("ray", reason="needs rewards[ray]")
pytest.importorskip("ray.serve", reason="needs ray[serve]")


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


def test_a_replica_is_killed_and_nothing_is_lost(tmp_path):
    from ray import serve

    from rewards.judges.elsewhere.ray_serve import application

    path = tiny_models.save("llava", tmp_path / "llava")
    local = load_judge(path)
    images = [tiny_models.picture(seed % 4) for seed in range(160)]
    prompts = [f"rate {at}" for at in range(160)]
    expected = local.rate(images, prompts).probabilities
    port = free_port()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(application({"rater": path}, replicas=(2, 2)))
        url = f"http://127.0.0.1:{port}/rater"
        assert RemoteJudge(url).identity() == local.identity()
        assert len(replica_processes()) == 2

        def kill() -> None:
            time.sleep(0.3)
            os.kill(replica_processes()[0], signal.SIGKILL)

        threading.Thread(target=kill).start()
        found = torch.zeros_like(expected)

        def client(number: int) -> None:
            remote = RemoteJudge(url, deadline=120.0)
            for at in range(number, 160, 16):
                found[at] = remote.rate([images[at]], [prompts[at]]).probabilities[0]

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(client, range(16)))
        assert torch.allclose(found, expected, atol=1e-5)
        assert (found > 0).all()
    finally:
        serve.shutdown()
        ray.shutdown()
