"""Time and memory of `agreement` at the sizes that occur, with scipy's own calls for one statistic as the peer.

    python benchmarks/humans_agreement.py

2,000 clustered resamples of seven statistics. Each case runs in its own process, so that its peak memory is its own.
Asserts the limit of memory, 1 GB; times are to be read against scipy's in the same row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

# Name -> (items, clusters, distinct human scores); clusters None: every item by itself.
CASES: dict[str, tuple[int, int | None, int]] = {
    "TIFA's study": (800, 160, 9),
    "THumB": (2_500, 500, 41),
    "Flickr8k-Expert": (16_992, 1_000, 4),
    "Flickr8k-CF": (47_830, 1_000, 20),
    "no clusters": (16_992, None, 4),
    "100,000 items": (100_000, 20_000, 9),
}


def data(case: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    items, clusters, distinct = CASES[case]
    rng = np.random.default_rng(0)
    human = rng.integers(0, distinct, items) / (distinct - 1)
    metric = human + rng.normal(size=items)
    return metric, human, None if clusters is None else rng.integers(0, clusters, items)


def run(case: str) -> None:
    from rewards.humans.statistics.agreement import agreement

    metric, human, groups = data(case)
    start = time.perf_counter()
    found = agreement(metric, human, groups)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        json.dumps({"seconds": seconds, "gb": peak, "tau_b": str(found["kendall_tau_b"]), "clusters": found.clusters})
    )


def scipy_seconds(case: str, resamples: int = 5) -> float:
    """Seconds that 2,000 resamples of tau-b alone would take scipy, from a few of them."""
    import scipy.stats

    metric, human, _ = data(case)
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for _ in range(resamples):
        drawn = rng.integers(0, len(metric), len(metric))
        scipy.stats.kendalltau(metric[drawn], human[drawn])
    return (time.perf_counter() - start) / resamples * 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES)
    case = parser.parse_args().case
    if case:
        run(case)
        return
    for name, (items, _, _) in CASES.items():
        command = [sys.executable, __file__, "--case", name]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"{name:16s} {items:7d} items {found['clusters']:6d} clusters "
            f"{found['seconds']:6.2f} s {found['gb']:5.2f} GB"
            f"  tau-b {found['tau_b']}  scipy, tau-b alone: {scipy_seconds(name):6.2f} s"
        )
        assert found["gb"] < 1, found


if __name__ == "__main__":
    main()
