"""What the guide says of estimates and counts is what the benchmarks found."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "clusters.md").read_text("utf-8")
MEASURED = json.loads((ROOT / "benchmarks" / "results" / "preflight_measured.json").read_text("utf-8"))["results"]


@pytest.mark.parametrize("name", MEASURED)
def test_estimates_are_near_what_was_measured(name):
    found = MEASURED[name]
    assert abs(found["estimate"] / found["storages"] - 1) <= 0.15
    cells = [f"{found[key] / 2**20:.0f}" for key in ("estimate", "storages", "resident")]
    assert f"| `{name}` | {' | '.join(cells)} | {found['estimate'] / found['storages']:.2f} |" in GUIDE
