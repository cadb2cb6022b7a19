"""A run killed with SIGKILL at three random moments and resumed equals the uninterrupted run; one process and two."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rewards.runs.evaluations import EvaluationLog
from rewards.runs.metrics import read_metrics
from tests import tiny_models
from tests.trainers.language.text_world import run_settings

ROOT = Path(__file__).resolve().parents[3]
STEPS = 6
TWO_PROCESSES = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


def start(algorithm: str, config: Path, folder: Path, launcher: list[str], *overrides: str) -> subprocess.Popen:
    script = "ppo_vlm.py" if algorithm == "ppo" else "grpo_vlm.py"
    chosen = [] if algorithm == "ppo" else ["--algorithm", algorithm]
    command = [
        sys.executable,
        *launcher,
        f"examples/{script}",
        "--config",
        str(config),
        *chosen,
        f"output_dir={folder}",
    ]
    with open(f"{folder}.log", "ab") as log:  # a pipe that nobody reads would stop the run when it is full
        return subprocess.Popen(
            [*command, *overrides], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip


def errors(folder: Path) -> str:
    return Path(f"{folder}.log").read_text()[-3000:]


def training_lines(folder: Path) -> list[dict]:
    return [row for row in read_metrics(folder) if "train/loss" in row] if (folder / "metrics.jsonl").exists() else []


def kill_at(process: subprocess.Popen, folder: Path, lines: int, delay: float) -> None:
    """SIGKILL to the whole run some time after so many steps were logged."""
    deadline = time.monotonic() + 500
    while len(training_lines(folder)) < lines and time.monotonic() < deadline:
        assert process.poll() is None, errors(folder)
        time.sleep(0.05)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize(
    ("algorithm", "launcher"),
    [("grpo", []), ("rloo", []), ("ppo", []), ("grpo", TWO_PROCESSES), ("ppo", TWO_PROCESSES)],
)
def test_killed_three_times_and_resumed(algorithm, launcher, tmp_path):
    policy = tiny_models.save("llava", tmp_path / "llava")
    settings = run_settings(
        policy, policy, tmp_path, max_steps=STEPS, learning_rate=0.02, save_strategy="steps", save_steps=2,
        num_iterations=2,
    )  # fmt: skip
    settings["evaluation"]["every"] = 3
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(settings))

    whole = start(algorithm, config, tmp_path / "whole", launcher)
    assert whole.wait() == 0, errors(tmp_path / "whole")
    moments = random.Random(algorithm)
    for lines in sorted(moments.choices(range(STEPS), k=3)):
        run = start(algorithm, config, tmp_path / "killed", launcher, "resume=auto")
        kill_at(run, tmp_path / "killed", lines, delay=moments.uniform(0, 1.5))
    last = start(algorithm, config, tmp_path / "killed", launcher, "resume=true")
    assert last.wait() == 0, errors(tmp_path / "killed")

    assert len(list((tmp_path / "whole" / "checkpoints" / "checkpoint-2").glob("rng_state*"))) == (2 if launcher else 1)
    expected, found = training_lines(tmp_path / "whole"), training_lines(tmp_path / "killed")
    assert [row["step"] for row in found] == list(range(1, STEPS + 1))
    for old, new in zip(expected, found, strict=True):
        for key in old.keys() - {"time", "time/step", "time/sample", "time/judge"}:
            assert new[key] == pytest.approx(old[key], abs=1e-6), (old["step"], key)
    evaluations = [EvaluationLog(tmp_path / name).read() for name in ("whole", "killed")]
    assert [row.step for row in evaluations[0]] == [0, 3, 6]
    assert evaluations[0] == evaluations[1]
