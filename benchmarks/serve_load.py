"""32 clients that ask for one sample a call: `rewards serve` against one in-process batch and against another checkout.

    git worktree add /tmp/old 67357a0                            # one request after the other, as it was
    python benchmarks/serve_load.py --old /tmp/old               # about eight minutes of CPU time
    python benchmarks/serve_load.py --old /tmp/old --cores 1 0   # judges on core 1, clients on core 0
    python benchmarks/serve_load.py --kill 3                     # SIGKILL on the way, and started again

The work is that of most RL hosts: every client rates one sample a call on HarmonicEval's five criteria; eight samples
in a row are about the same picture. The ways of doing it take turns, with the same checkpoint (random weights of
Qwen2.5-VL's or LLaVA's architecture, see judges_models.py) on one thread each: one call of the judge in this process
with all rows, and each checkout's own `rewards serve`. With `--cores` the clients do not share the judge's core, as on
machines of their own. Printed are samples a second of the clock and a CPU second of
the server, latencies, the largest queue, and the largest difference of a probability from the in-process one; `--out`
keeps every turn.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import httpx
import judges_models
import numpy as np
import torch
import transformers
from judges_shared_prefix import SHORT
from PIL import Image

from rewards.harmonic.criteria import CRITERIA, builtin_prompt
from rewards.judges.base import Judge
from rewards.judges.elsewhere.client import RemoteJudge
from rewards.judges.loading import load_judge
from rewards.runs.files import read_json, write_json

HERE = Path(__file__).resolve().parent.parent
GROUP = 8
"""Samples about one picture."""

Sample = tuple[Image.Image, list[str]]


@dataclass
class Turn:
    """What one way of judging all samples took.

    Attributes:
        way: `in process`, or the checkout that served.
        samples_a_second: Scored ones, by the clock.
        samples_a_cpu_second: By the CPU time of the process that judged.
        p50, p99: Latencies of a call, in seconds.
        largest_queue: Rows that waited at most; None where the server does not tell.
        batches: How many the server made of the turn; None where it does not tell.
        difference: The largest of a probability from the in-process one.
        unscored: Samples without a score.
        zeros: Samples with a probability of exactly 0 for every rating.
        kills: How often the server was killed on the way.
        retries: How often clients asked again.
    """

    way: str
    samples_a_second: float
    samples_a_cpu_second: float
    p50: float
    p99: float
    largest_queue: int | None = None
    batches: int | None = None
    difference: float = 0.0
    unscored: int = 0
    zeros: int = 0
    kills: int = 0
    retries: int = 0


class Server:
    """`rewards serve` of a checkout in a process of its own, on a port that stays when it is started again."""

    def __init__(self, checkout: Path, checkpoint: str, core: int | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        command = "from rewards.cli.app import app; app()"
        self._command = [sys.executable, "-c", command, "serve", "--judge", checkpoint, "--port", str(self.port)]
        self._checkout, self._core = checkout, core
        self._spent = 0.0
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(self._checkout)}
        self._process = subprocess.Popen(self._command, cwd=self._checkout, env=environment, stdout=subprocess.DEVNULL)
        if self._core is not None:
            os.sched_setaffinity(self._process.pid, {self._core})
        while True:
            try:
                httpx.get(self.url + "/health", timeout=1)
                return
            except httpx.HTTPError:
                time.sleep(0.1)

    def kill(self) -> None:
        self._spent = self.cpu_seconds()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def cpu_seconds(self) -> float:
        """User and system time so far, of the killed ones too (Linux)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return self._spent + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def told(self, metric: str) -> int | None:
        """A number of `/metrics`."""
        found = re.search(rf"{metric}\{{[^}}]*\}} (\d+)", httpx.get(self.url + "/metrics").text)
        return int(found[1]) if found else None


def work(samples: int, side: int, prompts: str) -> list[Sample]:
    """One picture and the prompts of five criteria a sample."""
    rng = np.random.RandomState(0)
    pictures = [
        Image.fromarray(rng.randint(0, 255, (side, side, 3), dtype=np.uint8)) for _ in range(-(-samples // GROUP))
    ]
    builtin = [builtin_prompt("captioning", criterion) for criterion in CRITERIA]
    templates = list(SHORT.values()) if prompts == "short" else builtin
    captions = [f"{judges_models.CAPTIONS[at % len(judges_models.CAPTIONS)]} ({at})" for at in range(samples)]
    return [
        (pictures[at // GROUP], [template.replace("{text}", caption) for template in templates])
        for at, caption in enumerate(captions)
    ]


def in_process(judge: Judge, samples: list[Sample]) -> tuple[torch.Tensor, Turn]:
    """Probabilities `(samples, 5, 5)` by one call of the judge."""
    images = [picture for picture, prompts in samples for _ in prompts]
    rows = [prompt for _, prompts in samples for prompt in prompts]
    start, cpu = time.perf_counter(), time.process_time()
    found = judge.rate(images, rows).probabilities.view(len(samples), -1, 5)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return found, Turn("in process", len(samples) / seconds, len(samples) / cpu, seconds, seconds)


def served(way: str, server: Server, samples: list[Sample], expected: torch.Tensor, clients: int, kills: int) -> Turn:
    """All samples by as many clients, each asking for one sample a call."""
    remote = [RemoteJudge(server.url, deadline=3600.0, timeout=1800.0) for _ in range(clients)]
    latencies = [0.0] * len(samples)
    found = torch.full(expected.shape, torch.nan)

    def client(number: int) -> None:
        for at in range(number, len(samples), clients):
            picture, prompts = samples[at]
            start = time.perf_counter()
            found[at] = remote[number].rate([picture] * len(prompts), prompts).probabilities
            latencies[at] = time.perf_counter() - start

    def killer() -> None:
        for at in range(kills):
            answered = len(samples) * (at + 1) // (kills + 1)
            while sum(latency > 0 for latency in latencies) < answered:
                time.sleep(0.05)
            server.kill()
            server.start()

    batches = None if kills else server.told("batches_total")
    start, cpu = time.perf_counter(), server.cpu_seconds()
    disturbing = threading.Thread(target=killer)
    disturbing.start()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    seconds = time.perf_counter() - start
    disturbing.join()
    cpu = server.cpu_seconds() - cpu
    latencies.sort()
    unscored = int(found.isnan().any(-1).any(-1).sum())
    return Turn(
        way, (len(samples) - unscored) / seconds, (len(samples) - unscored) / cpu,
        latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)], server.told("queue_rows_max"),
        None if batches is None else (server.told("batches_total") or 0) - batches,
        float((found - expected).abs().nan_to_num().max()), unscored,
        int((found == 0).all(-1).any(-1).sum()), kills, sum(one._connection.counts["retries"] for one in remote),
    )  # fmt: skip


def elsewhere(core: int | None, work: Callable[[], Turn]) -> Turn:
    """Do something, with the threads that it starts, on another core than this process."""
    with ThreadPoolExecutor(1, initializer=pin, initargs=(core,)) as pool:
        return pool.submit(work).result()


def pin(core: int | None) -> None:
    """This thread, and what it starts, to a core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def said(turn: Turn) -> str:
    told = f"{turn.way}: {turn.samples_a_second:.2f} samples/s, {turn.samples_a_cpu_second:.2f} a CPU second"
    if turn.way == "in process":
        return told
    queue = "unknown" if turn.largest_queue is None else f"{turn.largest_queue} rows"
    told += f", latency p50 {turn.p50:.2f} s, p99 {turn.p99:.2f} s, largest queue {queue}, {turn.batches} batches"
    told += f", largest difference {turn.difference:.1e}, {turn.unscored} unscored, {turn.zeros} zero"
    return told + (f", killed {turn.kills} times, {turn.retries} retries" if turn.kills else "")


def ratios(turns: list[Turn], way: str, base: str, key: str) -> list[float]:
    """Of two ways, turn by turn."""
    pairs = zip([t for t in turns if t.way == way], [t for t in turns if t.way == base], strict=True)
    return [round(getattr(one, key) / getattr(other, key), 3) for one, other in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2, help="Samples of each client in a turn.")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--model", choices=("qwen2_5_vl", "llava"), default="qwen2_5_vl")
    parser.add_argument("--image-tokens", type=int, default=400)
    parser.add_argument("--prompts", choices=("built-in", "short"), default="built-in")
    parser.add_argument("--old", type=Path, help="Another checkout, whose `rewards serve` takes part.")
    parser.add_argument("--kill", type=int, default=0, help="How often our server is killed in each turn.")
    parser.add_argument(
        "--cores", type=int, nargs=2, default=(None, None), metavar=("JUDGE", "CLIENTS"), help="Of which each has one."
    )
    parser.add_argument("--out", type=Path, help="JSON file that gets a further entry.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    judges_core, clients_core = options.cores
    pin(judges_core)
    side = round(options.image_tokens**0.5) * (14 if options.model == "llava" else 28)
    samples = work(options.clients * options.rounds, side, options.prompts)
    servers: dict[str, Server] = {}
    turns: list[Turn] = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = str(judges_models.save(options.model, options.image_tokens, Path(folder)))
        judge = load_judge(checkpoint)
        judge.rate([samples[0][0]] * 5, samples[0][1])  # warm up
        try:
            servers["rewards serve"] = Server(HERE, checkpoint, judges_core)
            if options.old is not None:
                servers["old rewards serve"] = Server(options.old.resolve(), checkpoint, judges_core)
            for server in servers.values():
                RemoteJudge(server.url).rate([samples[0][0]] * 5, samples[0][1])
            for _ in range(options.turns):
                expected, turn = in_process(judge, samples)
                turns.append(turn)
                print(said(turn), flush=True)
                for way, server in servers.items():
                    kills = options.kill if way == "rewards serve" else 0
                    asked = partial(served, way, server, samples, expected, options.clients, kills)
                    turns.append(elsewhere(clients_core, asked))
                    print(said(turns[-1]), flush=True)
        finally:
            for server in servers.values():
                server.kill()
    compared = {
        f"{way} / {base}, {key.replace('_', ' ')}": ratios(turns, way, base, key)
        for way, base in (("rewards serve", "in process"), ("rewards serve", "old rewards serve"))
        if {way, base} <= {turn.way for turn in turns}
        for key in ("samples_a_second", "samples_a_cpu_second")
    }
    for what, found in compared.items():
        print(f"{what}: {', '.join(f'{ratio:.2f}' for ratio in found)}; median {statistics.median(found):.2f}")
    if options.out is not None:
        keep(options, turns, compared)


def keep(options: argparse.Namespace, turns: list[Turn], compared: dict[str, list[float]]) -> None:
    """Add a run to the file of results."""
    runs = read_json(options.out) if options.out.exists() else []
    old = None
    if options.old is not None:
        revision = ["git", "-C", str(options.old), "rev-parse", "--short", "HEAD"]
        old = subprocess.run(revision, capture_output=True, text=True, check=True).stdout.strip()
    flags = [f"--model {options.model} --image-tokens {options.image_tokens} --prompts {options.prompts}"]
    flags += [f"--rounds {options.rounds} --turns {options.turns}"] + (
        [f"--kill {options.kill}"] if options.kill else []
    )
    flags += ["--cores {} {}".format(*options.cores)] if options.cores[0] is not None else []
    runs.append(
        {
            "command": f"python benchmarks/serve_load.py {' '.join(flags)}" + (" --old CHECKOUT" if old else ""),
            "date": time.strftime("%Y-%m-%d"),
            "old": old,
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
            "samples": options.clients * options.rounds,
            "clients": options.clients,
            "turns": [asdict(turn) for turn in turns],
            "ratios": compared,
        }
    )
    write_json(options.out, runs)


if __name__ == "__main__":
    main()
