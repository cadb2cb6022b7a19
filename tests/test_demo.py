"""The demo's tables, and that a killed demo leaves files that can be read."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from rewards.demo.run import demo_tables, format_tables
from rewards.report.page import write_report
from rewards.runs.metrics import read_metrics
from rewards.runs.samples import read_samples

SUMMARY = {
    "nft": {
        "prompts": 256,
        "reward": {
            "TIFA": {
                "overall": {"before": 0.6, "after": 0.75, "gain": 0.15, "low": 0.1, "high": 0.2},
                "color": {"before": 0.5, "after": 0.75, "gain": 0.25, "low": 0.2, "high": 0.3},
            }
        },
        "audits": {"oracle": {"overall": {"before": 0.5, "after": 0.6, "gain": 0.1, "low": 0.05, "high": 0.15}}},
        "baselines": [
            {"guidance_scale": 2.0, "base": 0.7, "trained": 0.8, "base_audit": 0.65, "trained_audit": 0.75},
        ],
    },
    "grpo": {
        key: {name: {"overall": {"before": 3.0, "after": 3.5, "gain": 0.5, "low": 0.4, "high": 0.6, "count": 8}}}
        for key, name in (("reward", "HarmonicEval"), ("audits", "caption_truth_reward"))
    },
    "best_of_8": {
        "items": 12,
        "curves": {name: [{"value": 3.0}, {"value": 4.0}] for name in ("overall", "truth")},
    },
}


def test_tables_hold_the_summary():
    text = format_tables(demo_tables(SUMMARY))
    rows = {cells[0].strip(): cells[1:] for line in text.splitlines() if (cells := re.split(r" {2,}", line.strip()))}
    assert rows["TIFA, judge"] == ["0.600", "0.750", "+0.150", "+0.100 to +0.200"]
    assert rows["color"] == ["0.500", "0.750", "+0.250", "+0.200 to +0.300"]
    assert rows["guidance 2 instead of 1, oracle"] == ["0.650", "0.750", "+0.100"]
    assert rows["truth"] == ["3.000", "4.000", "+1.000"]  # the last table's


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 4, 9])
def test_a_killed_demo_leaves_readable_files(tmp_path, lines):
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'rewards'; from rewards.cli import main; main()"]
    out = tmp_path / "demo"
    process = subprocess.Popen([*command, "demo", "--out", str(out)], start_new_session=True)
    metrics = out / "nft" / "metrics.jsonl"
    try:
        deadline = time.time() + 500
        while not (metrics.exists() and metrics.read_text().count("\n") >= lines):
            assert process.poll() is None and time.time() < deadline
            time.sleep(0.5)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(read_metrics(metrics)) >= lines
    assert read_samples(out / "nft")
    page = write_report([out / "nft"], tmp_path / "report").page
    assert "TIFA" in page.read_text()
    for file in out.rglob("*.json"):
        json.loads(file.read_text())
