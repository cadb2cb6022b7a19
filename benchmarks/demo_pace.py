"""How the demo feels: the longest silence on the terminal, and the CPU time of one run.

    python benchmarks/demo_pace.py --seed 1 --out benchmarks/results/demo_seed1.json     # as long as `rewards demo`

A silence is the time between two writes to the terminal, progress bars included, from the start of the command to its
end. The result holds the demo's own summary beside both, so that a further seed of its gains comes with it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rewards.runs.files import read_json, write_json


@dataclass(frozen=True)
class Pace:
    """What was seen of a command.

    Attributes:
        seconds: By the clock.
        cpu_seconds: Of the command and the processes that it started.
        longest_silence: Seconds.
        after: The last words before it.
        silences: All above 8 seconds, with the last words before each.
        threads: `OMP_NUM_THREADS`, None where it was not set.
    """

    seconds: float
    cpu_seconds: float
    longest_silence: float
    after: str
    silences: list[tuple[float, str]]
    threads: str | None


def watch(command: list[str]) -> Pace:
    """Run a command, showing what it writes."""
    started = last = time.monotonic()
    words, silences = "the start", [(0.0, "the start")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    while written := os.read(process.stdout.fileno(), 65536):
        now = time.monotonic()
        silences.append((round(now - last, 1), words))
        last, words = now, written.decode(errors="replace").strip()[-120:] or words
        sys.stdout.write(written.decode(errors="replace"))
        sys.stdout.flush()
    if process.wait():
        raise SystemExit(f"{command} ended with {process.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Pace(
        round(time.monotonic() - started, 1),
        round(used.ru_utime + used.ru_stime, 1),
        *max(silences),
        [silence for silence in silences if silence[0] > 8],
        os.environ.get("OMP_NUM_THREADS"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("runs/demo_pace"), help="Of the demo.")
    parser.add_argument("--out", type=Path, help="JSON file to write.")
    options = parser.parse_args()
    arguments = ["demo", "--seed", str(options.seed), "--out", str(options.folder), "--overwrite"]
    pace = watch([sys.executable, "-m", "rewards", *arguments])
    print(f"{pace.cpu_seconds:.0f} CPU seconds, {pace.longest_silence:.1f} s silent at most, after: {pace.after}")
    if options.out is not None:
        made = {"command": f"rewards demo --seed {options.seed}", "date": time.strftime("%Y-%m-%d"), "pace": vars(pace)}
        write_json(options.out, made | read_json(options.folder / "summary.json"))


if __name__ == "__main__":
    main()
