"""Issue "Done when" 5: two processes under `accelerate launch` give the scores of one, with own judges or a served
one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rewards.judges.elsewhere.server import build_app
from tests.judges.elsewhere.test_serve import Served, free_port
from tests.judges.two_processes import rows

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("where", ["own", "served"])
def test_two_processes_score_as_one(tiny_judge, tmp_path, where):
    rater, answerer = tiny_judge("llava"), tiny_judge("blip")
    images, prompts = rows()
    expected = rater.rate(images, prompts).probabilities
    answers = answerer.answer(images, prompts)
    names, served = [rater.name, answerer.name], None
    if where == "served":
        served = Served(build_app({"rater": rater, "answerer": answerer}))
        names = [f"{served.url}/rater", f"{served.url}/answerer"]
    launch = [
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines",
        "1",
        "--mixed_precision", "no", "--dynamo_backend", "no", "--num_cpu_threads_per_process", "1",
        "--main_process_port", str(free_port()), str(ROOT / "tests" / "judges" / "two_processes.py"), *names,
        str(tmp_path / "out.json"),
    ]  # fmt: skip
    # `--multi_gpu` is accelerate's name for torchrun on one machine; the script asks for the CPU, and so for gloo.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(launch, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=500)
    if served is not None:
        served.stop()
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads((tmp_path / "out.json").read_text())
    assert [row for row, *_ in found] == list(range(10))
    assert len({process for *_, process in found}) == 2
    assert torch.allclose(torch.tensor([row[1] for row in found]), expected, atol=1e-5)
    assert [row[2] for row in found] == answers
    kinds = {row[3] for row in found}
    assert kinds == ({"LlavaForConditionalGeneration"} if where == "own" else {"NoneType"})  # never wrapped
