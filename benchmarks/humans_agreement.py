"""Time and memory of `agreement` on many pairs, with scipy's bootstrap of one statistic as the peer.

    python benchmarks/humans_agreement.py [--pairs 100000]

Each case runs in its own process, so that its peak memory is its own. Asserts the limits: under 10 s and 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

CASES = ("no groups", "prompts of 5", "160 prompts", "continuous human score", "command line")


def data(case: str, pairs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    rng = np.random.default_rng(0)
    human = rng.normal(size=pairs) if case == "continuous human score" else rng.integers(2, 11, pairs) / 2
    metric = human + rng.normal(size=pairs) * 2
    groups = {"no groups": None, "160 prompts": rng.integers(0, 160, pairs)}.get(case, np.arange(pairs) // 5)
    return metric, human, groups


def run(case: str, pairs: int) -> None:
    metric, human, groups = data(case, pairs)
    start = time.perf_counter()
    if case == "command line":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pairs.csv"
            rows = (f"{m},{h},p{g}\n" for m, h, g in zip(metric, human, groups, strict=True))
            file.write_text("metric,human,prompt\n" + "".join(rows))
            start = time.perf_counter()
            command = [sys.executable, "-c", "from rewards.cli.humans import app; app()", "agreement", str(file)]
            options = ["--metric", "metric", "--group", "prompt", "--json"]
            output = subprocess.run([*command, *options], check=True, capture_output=True).stdout
            result = json.loads(output)["metrics"]["metric"]
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    else:
        from rewards.humans.statistics.agreement import agreement

        result = agreement(metric, human, groups).as_dict()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = time.perf_counter() - start
    tau = result["statistics"]["kendall_tau_b"]
    print(
        json.dumps({"case": case, "seconds": seconds, "gb": peak / 2**20, "tau_b": tau, "clusters": result["clusters"]})
    )


def scipy_seconds(pairs: int, resamples: int = 3) -> float:
    """Seconds that 2000 resamples of tau-b alone would take scipy, from a few of them."""
    import scipy.stats

    metric, human, _ = data("no groups", pairs)
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for _ in range(resamples):
        drawn = rng.integers(0, pairs, pairs)
        scipy.stats.kendalltau(metric[drawn], human[drawn])
    return (time.perf_counter() - start) / resamples * 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--case", choices=CASES)
    args = parser.parse_args()
    if args.case:
        run(args.case, args.pairs)
        return
    print(f"{args.pairs} pairs, seven statistics, 2000 clustered resamples, one thread")
    for case in CASES:
        command = [sys.executable, __file__, "--case", case, "--pairs", str(args.pairs)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        tau = found["tau_b"]
        print(
            f"{case:24s} {found['seconds']:6.2f} s {found['gb']:5.2f} GB  {found['clusters']:6d} clusters  "
            f"tau-b {tau['value']:.4f} [{tau['low']:.4f}, {tau['high']:.4f}]"
        )
        assert found["seconds"] < 10 and found["gb"] < 1, found
    print(f"scipy.stats.kendalltau, tau-b only, 2000 resamples: about {scipy_seconds(args.pairs):.0f} s")


if __name__ == "__main__":
    main()
