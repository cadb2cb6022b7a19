"""What `rewards check` estimates beside what a real epoch (or step) of the shapes configs takes on this CPU.

    python benchmarks/preflight_measured.py                 # some minutes on one core

Measured twice: the most bytes of live storages, by the same counting over real tensors, and the growth of the
process's resident memory, sampled every 5 ms, which also holds what kernels allocate, caches and fragments. The
estimate is of the first; the second says how much must be left beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from rewards.cli.configs import find_config, sections
from rewards.preflight.checking import check_drawing, check_writing
from rewards.preflight.measuring import Measure
from rewards.preflight.report import GIB
from rewards.runs.config import load_config
from rewards.tables import text_table
from rewards.trainers.diffusion.run import new_trainer
from rewards.trainers.diffusion.settings import DiffusionRunConfig
from rewards.trainers.language.run import run_language
from rewards.trainers.language.settings import LanguageRunConfig

CONFIGS = "ddpo_shapes nft_shapes awm_shapes reward_gradient_shapes grpo_shapes ppo_shapes".split()
CONFIGS.append("grpo_shapes:algorithm=rloo")  # there is no config of its own
RESULTS = Path(__file__).resolve().parent / "results" / "preflight_measured.json"


@contextmanager
def resident() -> Iterator[dict[str, int]]:
    """Growth of resident memory in a block, in bytes."""
    page, over, most = resource.getpagesize(), threading.Event(), {"bytes": 0}

    def now() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    before = now()

    def watch() -> None:
        while not over.wait(0.005):
            most["bytes"] = max(most["bytes"], now() - before)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield most
    over.set()
    thread.join()


def measured(name: str) -> dict[str, Any]:
    """One config in this process: estimate, then the real thing."""
    config, *changes = name.split(":")
    path = find_config(config)
    with tempfile.TemporaryDirectory() as folder:
        small = [f"output_dir={folder}/run", *changes]
        if "policy" in sections(path):
            small += ["trainer.max_steps=1", "data.held_out.n=8", "evaluation.audits=[]"]
            written = load_config(LanguageRunConfig, path, small)
            report = check_writing(written, name)
            with resident() as memory, Measure(real=True) as measure:
                begun = time.process_time()
                run_language(written)
        else:
            small += ["num_eval_prompts=0", "audit=null", "baseline_guidance_scales=[]"]
            drawn = load_config(DiffusionRunConfig, path, small)
            report = check_drawing(drawn, name)
            with resident() as memory, Measure(real=True) as measure:
                begun = time.process_time()
                trainer = new_trainer(drawn)
                trainer._epoch(0)
        seconds = time.process_time() - begun
    assert not report.failed, report.failed
    estimate = report.peak
    peak = {"estimate": estimate, "storages": measure.highest, "resident": memory["bytes"], "seconds": seconds}
    return {**peak, "estimate over storages": estimate / measure.highest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", default=CONFIGS)
    parser.add_argument("--raw", action="store_true", help="measure the one config in this process, print JSON")
    options = parser.parse_args()
    if options.raw:
        print(json.dumps(measured(options.configs[0])))
        return
    kept = json.loads(RESULTS.read_text())["results"] if RESULTS.is_file() else {}
    about = {"command": " ".join(["python", *sys.argv]), "date": time.strftime("%Y-%m-%d")}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    found = {}
    for name in options.configs:  # those that are not asked for stay as they were
        command = [sys.executable, __file__, "--raw", name]
        found[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
        print(name, found[name], file=sys.stderr, flush=True)
        RESULTS.write_text(json.dumps({**about, **versions, "results": kept | found}, indent=1) + "\n")
    rows = [
        [name, *(f"{one[key] / GIB:.2f}" for key in ("estimate", "storages", "resident")),
         f"{one['estimate over storages']:.2f}"] for name, one in found.items()
    ]  # fmt: skip
    print(text_table(["config", "estimate GiB", "storages", "resident", "estimate / storages"], rows))


if __name__ == "__main__":
    main()
