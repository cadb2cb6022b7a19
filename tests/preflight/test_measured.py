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


def test_the_counts_are_those_of_the_raw_file():
    counts = json.loads((ROOT / "benchmarks" / "results" / "gpu_counts.json").read_text("utf-8"))
    ratios = []
    for name, now in counts["now"].items():
        old = counts["old"][name]
        told = (
            [f"{one['vision']['forwards']}" for one in (old, now)],
            [f"{one['language']['forwards']}" for one in (old, now)],
        )
        rest = [[f"{one['reads']}" for one in (old, now)]]
        rest += [[f"{one[key]:.1f}" for one in (old, now)] for key in ("host_ms_a_text", "beside_ms_a_text")]
        assert f"| {name} | {' | '.join(' -> '.join(pair) for pair in (*told, *rest))} |" in GUIDE
        ratios.append(f"{old['host_ms_a_text'] / now['host_ms_a_text']:.1f}")
        assert now["reads"] <= 2 * now["language"]["forwards"] and now["vision"]["forwards"] <= 12 / 8 + 1
    assert f"The calling thread has {' and '.join(ratios)} times less to do" in GUIDE
