"""The script for those who have a GPU runs to its table, here with a few small pictures."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_first_hour.py"


@pytest.mark.slow
def test_the_first_hour_on_a_gpu_runs_without_one(capsys):
    spec = importlib.util.spec_from_file_location("gpu_first_hour", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(["--dry-run"])
    table = capsys.readouterr().out
    for row in ("HarmonicEval, shapes-rater", "TIFA, shapes-vqa", "from 16 threads", "an epoch of ddpo_shapes"):
        line = next(line for line in table.splitlines() if row in line)
        assert "texts/s" in line or " s with loading" in line
        assert "from 16 threads" in row or any(part.replace(".", "").isdigit() for part in line.split()[-3:])
