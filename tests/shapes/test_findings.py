"""The findings page quotes what the benchmarks wrote."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
ROWS = {
    "color": "colour",
    "shape": "shape",
    "count": "number",
    "relation": "relation",
    "location": "two objects in each other's place",
    "background": "background",
    "invented": "an object invented",
    "missing": "an object missing",
}
COLUMNS = (
    ("tests/fixtures/old_rater", "true captions", "criterion_wins"),
    ("shapes-rater", "true captions", "criterion_wins"),
    ("shapes-rater", "policy's captions", "criterion_wins"),
    ("shapes-vqa", "true captions", "overall_wins"),
)


def cells(first):
    """The cells of the findings' table row that begins with this one."""
    lines = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in lines if line.startswith(f"| {first} |"))
    return [cell.strip().strip("*").split(" [")[0] for cell in row.strip("|").split("|")][1:]


@pytest.mark.parametrize("kind", ROWS)
def test_shares_of_pairs_told_apart(kind):
    judges = json.loads((RESULTS / "judges_blind_spots.json").read_text())["judges"]
    measured = [next(row for row in judges[j][table] if row["kind"] == kind)[key] for j, table, key in COLUMNS]
    assert [float(cell) for cell in cells(ROWS[kind])] == pytest.approx(measured, abs=0.0051)


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("captions without a false claim", "captions_right"),
        ("fully right and complete", "captions_right_and_complete"),
        ("named backgrounds that are right", "backgrounds_right"),
    ],
)
def test_captions_by_claims(row, key):
    runs = json.loads((RESULTS / "harmonic_seeds.json").read_text())["runs"]
    before, _, after = cells(row)
    assert float(before) == pytest.approx(runs[0]["evaluations"][0][key], abs=0.00051)
    measured = [run["evaluations"][-1][key] for run in runs]
    assert [float(value) for value in after.split(",")] == pytest.approx(measured, abs=0.00051)
