"""The findings page quotes what the benchmarks wrote."""

import json
import re
import statistics
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
    files = ("judges_blind_spots.json", "judges_blind_spots_others.json")
    judges = {j: tables for f in files for j, tables in json.loads((RESULTS / f).read_text())["judges"].items()}
    measured = [next(row for row in judges[j][table] if row["kind"] == kind)[key] for j, table, key in COLUMNS]
    assert [float(cell) for cell in cells(ROWS[kind])] == pytest.approx(measured, abs=0.0051)


CLAIMS = {
    "captions without a false claim": "captions_right",
    "fully right and complete": "captions_right_and_complete",
    "named backgrounds that are right": "backgrounds_right",
    "captions that name a background": "backgrounds_stated",
    "different texts (the true captions: .371)": "texts_distinct",
}


def seeds(algorithm):
    runs = json.loads((RESULTS / "harmonic_seeds.json").read_text())["runs"]
    return [run for run in runs if run["algorithm"] == algorithm]


@pytest.mark.parametrize("row", CLAIMS)
def test_captions_by_claims(row):
    before, *after = cells(row)
    assert float(before) == pytest.approx(seeds("grpo")[0]["evaluations"][0][CLAIMS[row]], abs=0.00051)
    for cell, algorithm in zip(after, ("grpo", "rloo", "ppo"), strict=True):
        values = [run["evaluations"][-1][CLAIMS[row]] for run in seeds(algorithm)]
        expected = [statistics.mean(values), min(values), max(values)]
        assert [float(number) for number in re.findall(r"[\d.]+", cell)] == pytest.approx(expected, abs=0.00051)


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "ppo"])
def test_gains_over_five_seeds(algorithm):
    assert len(seeds(algorithm)) == 5
    for cell, name in zip(cells(algorithm.upper()), ("HarmonicEval", "caption_truth_reward"), strict=True):
        gains = [run["gains"][name]["overall"]["gain"] for run in seeds(algorithm)]
        half = 2.776445 * statistics.stdev(gains) / 5**0.5  # t of 97.5% with four degrees of freedom
        assert [float(x) for x in cell.split(" ± ")] == pytest.approx([statistics.mean(gains), half], abs=0.00051)
        assert all(run["gains"][name]["overall"]["low"] > 0 for run in seeds(algorithm))


@pytest.mark.parametrize(
    ("row", "table", "method"),
    [
        ("HarmonicEval, gamma 0.75", "table5", "HarmonicEval"),
        ("without harmonic weighting (uniform)", "table5", "w/o harmonic weighting"),
        ("CIDEr, with full true references", "table2", "CIDEr"),
    ],
)
def test_the_study_without_people(row, table, method):
    study = json.loads((RESULTS / "humans_shapes" / "study.json").read_text())[table][method]
    measured = [study[task]["estimate"]["value"] for task in ("referring", "vqa", "document", "captioning", "average")]
    assert [float(cell) / 100 for cell in cells(row)] == pytest.approx(measured, abs=0.00051)


@pytest.mark.parametrize("form", ["hard", "soft", "mass AM", "mass GM"])
def test_forms_of_tifa_that_train(form):
    record = json.loads((RESULTS / "tifa_training.json").read_text())
    (line,) = [line for line in record["table"] if line["form"] == form]
    for what, gain, against in zip(("oracle", "all right"), cells(form)[::2], cells(form)[1::2], strict=True):
        kinds = {"gain": gain} | ({} if form == "hard" else {"against hard": against})
        for kind, cell in kinds.items():
            runs, hard = record["runs"][form], record["runs"]["hard"]
            base = [run[f"{what} before"] for run in runs] if kind == "gain" else [run[f"{what} after"] for run in hard]
            values = [run[f"{what} after"] - start for run, start in zip(runs, base, strict=True)]
            assert cell == f"{statistics.mean(values):+.3f} ± {line[f'{what} {kind}']['half']:.3f}"
    words = {3: "three", 5: "five"}
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert f"counted in four ways, over {words[len(record['seeds'])]} seeds" in text


@pytest.mark.parametrize(
    ("file", "method", "before", "row", "learned"),
    [
        ("flow_methods", "NFT", "untrained, prompts of NFT", "NFT, flow", True),
        ("flow_methods", "Flow-GRPO", "untrained, prompts of Flow-GRPO", "Flow-GRPO, flow", True),
        ("flow_grpo_first_steps", "Flow-GRPO", "untrained, prompts of NFT", "Flow-GRPO, first steps", False),
    ],
)
def test_methods_on_the_packaged_flow(file, method, before, row, learned):
    record = json.loads((RESULTS / f"{file}.json").read_text())
    table, runs = record["table"][method], record["runs"][method]
    assert len(runs) == 5
    for column, start, gain in zip(("oracle", "judge", "gap", "counting"), cells(before), cells(row)):
        values = [run[column]["gain"]["value"] for run in runs]
        assert float(start) == pytest.approx(statistics.mean(run[column]["before"] for run in runs), abs=0.00051)
        half = 2.776445 * statistics.stdev(values) / 5**0.5  # t of 97.5% with four degrees of freedom
        assert [float(x) for x in gain.split(" ± ")] == pytest.approx([statistics.mean(values), half], abs=0.00051)
    guided = [statistics.mean(run["guidance"][0][f"{which}_audit"] for run in runs) for which in ("base", "trained")]
    assert float(cells(before)[4]) == pytest.approx(guided[0], abs=0.00051)
    assert float(cells(row)[4]) == pytest.approx(guided[1] - guided[0], abs=0.00051)
    low, high = (table["oracle"]["over_meanings"][end] for end in ("low", "high"))
    assert f"{row} [{low:+.3f}, {high:+.3f}]" in (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert table["judge"]["gain"] > table["judge"]["half_over_seeds"]
    assert (table["oracle"]["gain"] > table["oracle"]["half_over_seeds"]) == (low > 0) == learned
    if method == "Flow-GRPO":
        assert all(run["ratio_before_first_update"] == 1.0 for run in runs)
