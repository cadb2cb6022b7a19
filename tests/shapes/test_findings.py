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


def test_the_gamed_judge_is_content_and_the_truth_is_not():
    record = json.loads((RESULTS / "grpo_old_rater.json").read_text())
    for row in record["evaluations"]:
        expected = [row["judge"], row["truth"], row["correctness"]]
        assert [float(cell) for cell in cells(str(row["step"]))] == pytest.approx(expected, abs=0.00051)
    best = max(record["evaluations"], key=lambda row: row["truth"])
    assert best["step"] == record["best_step"] == 40
    gaps = [row["judge"] - row["truth"] for row in record["evaluations"]]
    stopped = next(i for i, gap in enumerate(gaps) if gap - gaps[0] > 0.1)
    assert record["evaluations"][stopped]["step"] == 50


FLOW_COLUMNS = ("oracle", "judge", "gap", "counting")


def test_methods_on_the_packaged_flow():
    record = json.loads((RESULTS / "flow_methods.json").read_text())
    for method, table in record["table"].items():
        runs = record["runs"][method]
        assert len(runs) == 5
        for column, before, gain in zip(FLOW_COLUMNS, cells("untrained flow"), cells(f"{method}, flow")):
            values = [run[column]["gain"]["value"] for run in runs]
            assert float(before) == pytest.approx(statistics.mean(run[column]["before"] for run in runs), abs=0.00051)
            half = 2.776445 * statistics.stdev(values) / 5**0.5  # t of 97.5% with four degrees of freedom
            assert [float(x) for x in gain.split(" ± ")] == pytest.approx([statistics.mean(values), half], abs=0.00051)
        base, trained = (
            statistics.mean(run["guidance"][0][which] for run in runs) for which in ("base_audit", "trained_audit")
        )
        assert float(cells("untrained flow")[4]) == pytest.approx(base, abs=0.00051)
        assert float(cells(f"{method}, flow")[4]) == pytest.approx(trained - base, abs=0.00051)
        learned = {name: table[name]["gain"] > table[name]["half_over_seeds"] for name in ("oracle", "judge")}
        assert learned == {"oracle": method == "NFT", "judge": True}
        low, high = (table["oracle"]["over_meanings"][end] for end in ("low", "high"))
        text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
        assert f"{method} [{low:+.3f}, {high:+.3f}]" in text
    assert all(run["oracle"]["gain"]["low"] > 0 for run in record["runs"]["NFT"])
    assert sum(run["oracle"]["gain"]["value"] < 0 for run in record["runs"]["Flow-GRPO"]) == 2
    assert all(run["ratio_before_first_update"] == 1.0 for run in record["runs"]["Flow-GRPO"])
