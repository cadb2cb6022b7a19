"""32 clients that ask for one sample a call: the judge server against one in-process batch of the same work.

    python benchmarks/serve_load.py                  # about five minutes on two cores
    python benchmarks/serve_load.py --kill 2         # the server is killed twice on the way, and started again

The work is that of most RL hosts: every client rates one sample a call on five criteria; eight samples in a row are
about the same picture. Three ways of doing it are timed in this order, with the same checkpoint (random weights of
LLaVA's architecture, see judges_models.py) on one thread each: one call of the judge in this process with all rows;
`rewards serve` as it is; and the server with batching switched off (one request after the other, as before). Printed
are samples a second, latencies, the largest queue, and the largest difference of a probability from the in-process one.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import httpx
import judges_models
import numpy as np
import torch
from judges_shared_prefix import SHORT
from PIL import Image

from rewards.judges.elsewhere.client import RemoteJudge
from rewards.judges.loading import load_judge

GROUP = 8
"""Samples about one picture."""


class Server:
    """A judge server in a process of its own, on a port that stays when it is started again."""

    def __init__(self, checkpoint: str, most_rows: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, __file__, "--serve", checkpoint, str(self.port), str(most_rows)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        while True:
            try:
                httpx.get(self.url + "/health", timeout=1)
                return
            except httpx.HTTPError:
                time.sleep(0.1)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def largest_queue(self) -> int:
        found = re.search(r"queue_rows_max\{[^}]*\} (\d+)", httpx.get(self.url + "/metrics").text)
        return int(found[1]) if found else 0


def serve(checkpoint: str, port: int, most_rows: int) -> None:
    """The server's process."""
    import uvicorn

    from rewards.judges.batching import BatchingJudge
    from rewards.judges.elsewhere.server import build_app

    torch.set_num_threads(1)
    judge = BatchingJudge(load_judge(checkpoint), most_rows=most_rows)
    uvicorn.run(build_app({"judge": judge}), host="127.0.0.1", port=port, log_level="error")


def work(samples: int, side: int) -> list[tuple[Image.Image, list[str]]]:
    """One picture and the prompts of five criteria a sample."""
    rng = np.random.RandomState(0)
    pictures = [
        Image.fromarray(rng.randint(0, 255, (side, side, 3), dtype=np.uint8)) for _ in range(-(-samples // GROUP))
    ]
    captions = [f"{judges_models.CAPTIONS[at % len(judges_models.CAPTIONS)]} ({at})" for at in range(samples)]
    prompts = [[template.replace("{text}", caption) for template in SHORT.values()] for caption in captions]
    return [(pictures[at // GROUP], prompts[at]) for at in range(samples)]


def load(
    server: Server, samples: list[tuple[Image.Image, list[str]]], clients: int, kills: int
) -> tuple[torch.Tensor, float, list[float]]:
    """Probabilities `(samples, 5, 5)`, seconds in all, and the latency of each call."""
    remote = [RemoteJudge(server.url, deadline=600.0) for _ in range(clients)]
    latencies = [0.0] * len(samples)
    found = torch.full((len(samples), len(SHORT), 5), torch.nan)

    def client(number: int) -> None:
        for at in range(number, len(samples), clients):
            picture, prompts = samples[at]
            start = time.perf_counter()
            found[at] = remote[number].rate([picture] * len(prompts), prompts).probabilities
            latencies[at] = time.perf_counter() - start

    def killer() -> None:
        for _ in range(kills):
            time.sleep(5.0)
            server.kill()
            server.start()

    start = time.perf_counter()
    disturbing = threading.Thread(target=killer)
    disturbing.start()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    seconds = time.perf_counter() - start
    disturbing.join()
    return found, seconds, sorted(latencies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3, help="Samples of each client.")
    parser.add_argument("--image-tokens", type=int, default=144)
    parser.add_argument("--kill", type=int, default=0, help="How often the batching server is killed on the way.")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], int(options.serve[1]), int(options.serve[2]))
        return
    torch.set_num_threads(1)
    samples = work(options.clients * options.rounds, round(options.image_tokens**0.5) * 14)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = str(judges_models.save("llava", options.image_tokens, Path(folder)))
        judge = load_judge(checkpoint)
        images = [picture for picture, prompts in samples for _ in prompts]
        rows = [prompt for _, prompts in samples for prompt in prompts]
        judge.rate(images[:5], rows[:5])  # warm up
        start = time.perf_counter()
        expected = judge.rate(images, rows).probabilities.view(len(samples), len(SHORT), 5)
        batch = time.perf_counter() - start
        print(f"in process, one call: {len(samples) / batch:.2f} samples/s ({len(samples)} samples, {batch:.1f} s)")
        for name, most_rows in (("batching server", 2048), ("one request at a time", 1)):
            server = Server(checkpoint, most_rows)
            try:
                kills = options.kill if most_rows > 1 else 0
                found, seconds, latencies = load(server, samples, options.clients, kills)
                lost = int(found.isnan().any(-1).any(-1).sum())
                shown = [
                    f"{len(samples) / seconds:.2f} samples/s = {batch / seconds:.0%} of in process",
                    f"latency p50 {latencies[len(latencies) // 2]:.2f} s",
                    f"p99 {latencies[int(len(latencies) * 0.99)]:.2f} s",
                    f"largest queue {server.largest_queue()} rows",
                    f"largest difference {(found - expected).abs().max():.1e}",
                    f"killed {kills} times, {lost} samples without a score",
                ]
                print(f"{name}: {', '.join(shown)}", flush=True)
            finally:
                server.kill()


if __name__ == "__main__":
    main()
