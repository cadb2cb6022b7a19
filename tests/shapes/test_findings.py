"""The findings page quotes what the benchmarks wrote."""

import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from rewards.runs.intervals import mean_interval

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
        ("flow_methods.json", "NFT", "untrained, prompts of NFT", "NFT, flow", True),
        ("flow_methods.json", "Flow-GRPO", "untrained, prompts of Flow-GRPO", "Flow-GRPO, flow", True),
        ("flow_grpo_first_steps.json", "Flow-GRPO", "untrained, prompts of NFT", "Flow-GRPO, first steps", False),
    ],
)
def test_methods_on_the_packaged_flow(file, method, before, row, learned):
    record = json.loads((RESULTS / file).read_text())
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


GAMED = json.loads((RESULTS / "grpo_old_rater.json").read_text())


@pytest.mark.parametrize("run", GAMED["runs"], ids=lambda run: f"seed {run['seed']}")
def test_what_the_gap_stop_keeps_of_a_run_whose_judge_is_gamed(run):
    by_step = {row["step"]: row for row in run["evaluations"]}
    gaps = {step: row["judge"] - row["truth"] for step, row in by_step.items()}
    stopped = next((step for step, gap in gaps.items() if gap - gaps[0] > GAMED["audit_max_gap"]), None)
    seen = [row for step, row in by_step.items() if stopped is None or step <= stopped]
    kept, end = max(seen, key=lambda row: row["truth"]), by_step[60]
    assert (run["stopped_at"], run["kept"]) == (stopped, kept["step"])
    figures = [f"{row['truth']:.3f}" for row in (kept, end)]
    figures += [f"{row['backgrounds_right']:.3f}".lstrip("0") for row in (kept, end)]
    assert cells(str(run["seed"])) == [str(stopped or "no"), str(kept["step"]), *figures]
    assert 4.91 <= end["judge"] <= 4.935  # content in every seed
    fell = end["backgrounds_right"] < 0.9
    assert fell == (stopped is not None) and (not fell or kept["truth"] > end["truth"])


WEIGHTING = json.loads((RESULTS / "harmonic_weighting.json").read_text())


def test_what_content_weighed_for_the_rater_before():
    first, *others = {round(1 - run["evaluations"][0]["weight_of_style"], 3) for run in GAMED["runs"]}
    after = [1 - run["evaluations"][-1]["weight_of_style"] for run in GAMED["runs"]]
    told = [f"{value:.3f}".lstrip("0") for value in (first, min(after), max(after))]
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert others == [] and f"it was {told[0]} and, after training, {told[1]} to {told[2]}" in text


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "ppo"])
def test_entropy(algorithm):
    entropies = [list(run["entropy"].values()) for run in seeds(algorithm)]
    first, last = (f"{statistics.mean(run[at] for run in entropies):.2f}".lstrip("0") for at in (0, -1))
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    told = text.split("Entropy a token falls")[1].split("\n")[0]
    assert f"{last} ({algorithm.upper()})" in told and f"from {first} to" in told


def with_half(row, sign):
    """Mean and half interval, from the seeds' own values; shares without their leading 0."""
    values = row["seeds"]
    half = 2.776445 * statistics.stdev(values) / len(values) ** 0.5  # t of 97.5% with four degrees of freedom
    return f"{statistics.mean(values):{sign}.3f} ± {half:.3f}".replace("0.", ".")


@pytest.mark.parametrize("weighting", WEIGHTING["table"])
def test_how_criteria_should_weigh(weighting):
    table, paper = WEIGHTING["table"], "gamma 0.75"
    told = cells(weighting)
    for at, name in enumerate(("captions_right", "captions_right_and_complete", "truth")):
        assert len(table[weighting][name]["seeds"]) == 5
        assert told[2 * at] == with_half(table[weighting][name], "")
        if weighting != paper:
            difference = table[weighting][f"{name} against {paper}"]
            assert told[2 * at + 1] == with_half(difference, "+")
            assert abs(difference["mean"]) < difference["half"]  # none excludes 0


def test_what_the_criteria_weigh():
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    table, before = WEIGHTING["table"], WEIGHTING["weights"]["before"]
    share = [row["correctness"] + row["completeness"] for row in (
        before["gamma 0.75"], table["gamma 0.75"]["weights after"]["gamma 0.75"],
        before["gamma 0.5"], table["gamma 0.5"]["weights after"]["gamma 0.5"],
    )]  # fmt: skip
    told = [f"{value:.3f}".lstrip("0") for value in share]
    assert f"carry {told[0]} of the weight at gamma 0.75 before training and {told[1]} after;" in text
    assert f"at gamma 0.5 {told[2]} and, trained with it, {told[3]}." in text
    others = [
        WEIGHTING["weights"]["another picture's caption"][f"gamma {gamma}"]["overall"] for gamma in (0.5, 0.75, 1)
    ]
    truth = json.loads((RESULTS / "harmonic_seeds.json").read_text())["levels"]["another picture's caption"]["truth"]
    first, second, third = (f"{rating:.2f}" for rating in others)
    assert f"is rated {first}, {second}\nand {third} at gamma .5, .75 and 1 (truth {truth:.2f})" in text
    differences = [v for row in table.values() for k, v in row.items() if " against " in k and any(v["seeds"])]
    clear = [v for v in differences if abs(v["mean"]) > v["half"]]
    assert len(differences) == 20 and clear == [table["floor"]["words against gamma 0.75"]]
    assert f"are {-clear[0]['mean']:.2f} ± {clear[0]['half']:.2f} words shorter".replace("0.", ".") in text


def numbers(cell):
    return [float(number) for number in re.findall(r"[-+]?\d*\.\d+", cell)]


def rows_of(raw, key="results"):
    return json.loads((RESULTS / raw).read_text())[key]


SURPLUS = rows_of("tifa_surplus.json")


@pytest.mark.parametrize("figure", list(SURPLUS["guidance 1, with surplus questions"]))
def test_questions_on_surplus_objects(figure):
    columns = [f"guidance {guidance}, {kind} surplus questions" for guidance in (1, 2) for kind in ("without", "with")]
    if figure in ("questions", "pictures with surplus", "mean"):
        return
    lines = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in lines if line.startswith(f"| {figure} |"))
    told = [numbers(cell) for cell in row.strip("|").split("|")[1:]]
    for column, cell in zip(columns, told, strict=True):
        assert cell == pytest.approx(SURPLUS[column].get(figure, []), abs=0.00051)


def test_how_many_pictures_show_surplus_objects():
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    first, second = (SURPLUS[f"guidance {g}, with surplus questions"] for g in (1, 2))
    told = (
        "{} of the pictures show an object that the prompt does not name or one more than\nit says, {} with guidance 2"
    )
    assert told.format(*(row["pictures with surplus"] for row in (first, second))) in text
    assert f"{1 - SURPLUS['guidance 1, without surplus questions']['questions'] / first['questions']:.0%} of" in text


OTHERS = rows_of("judges_other_generator.json")


@pytest.mark.parametrize("pictures", list(OTHERS))
def test_the_judge_on_a_generator_that_it_never_saw(pictures):
    lines = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in lines if line.startswith(f"| {pictures} |"))
    told = [numbers(cell) for cell in row.strip("|").split("|")[1:]]
    figures = ("agreement", "passed of failed", "oracle", "gap", "soft gap")
    for figure, cell in zip(figures, told, strict=True):
        assert cell == pytest.approx(OTHERS[pictures][figure], abs=0.00051)


def test_the_parts_of_the_shapes_world():
    text = (ROOT / "docs" / "shapes_world.md").read_text(encoding="utf-8")
    for pictures, said in (
        ("seen in training, guidance 1", "right on {} of the questions of 256 held-out prompts"),
        ("seen in training, guidance 2", "on {} with guidance 2 ("),
        ("never seen, guidance 1", "the same with flow matching: {}, with"),
        ("never seen, guidance 2", "with guidance 2 {};"),
    ):
        assert said.format(f"{OTHERS[pictures]['oracle'][0]:.1%}") in text
    logs = {
        part: (ROOT / "rewards" / "shapes" / "weights" / part / "build.jsonl").read_text().splitlines()
        for part in ("vqa_judge", "rater")
    }
    last = {part: [json.loads(line)["test"] for line in lines if '"test"' in line][-1] for part, lines in logs.items()}
    assert last["vqa_judge"]["accuracy"] > 0.999 and "answers 99.9%" in text
    taus = last["rater"].values()
    assert f"tau-b with the truth {min(taus):.2f} to {max(taus):.2f} by criterion" in text


EVALUATION = rows_of("harmonic_evaluation.json", "tables")


@pytest.mark.parametrize("gamma", [0.5, 0.75, 1])
def test_which_gamma_for_evaluation(gamma):
    table = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split("\n| gamma | ")[1]
    row = next(line for line in table.splitlines() if line.startswith(f"| {gamma} |"))
    told = iter([numbers(cell) for cell in row.strip("|").split("|")[1:]])
    for captions in EVALUATION.values():
        for name in ("tau-b", "distance"):
            measured = captions[f"gamma {gamma}"]
            expected = [*measured[name], *measured.get(f"{name} against gamma 1", [])]
            assert next(told) == pytest.approx(expected, abs=0.00051)
    assert next(told, None) is None


def test_the_demo_from_a_second_seed():
    demo = json.loads((RESULTS / "demo_seed1.json").read_text())
    oracle, (guidance,) = demo["nft"]["audits"]["oracle"], demo["nft"]["baselines"]
    one = oracle["overall"]
    told = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())
    assert f"from {one['before']:.3f} to {one['after']:.3f}" in told
    assert f"a gain of {one['gain']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]" in told
    assert f"guidance 2 of the untrained pipeline ({guidance['base_audit']:.3f})" in told
    assert one["before"] + one["low"] > guidance["base_audit"]
    assert f"Counting gains {oracle['counting']['gain']:+.3f}" in told
    assert f"the trained pipeline has {guidance['trained_audit']:.3f}" in told
    assert f"{demo['pace']['cpu_seconds']:.0f} CPU seconds" in told
    again = json.loads((RESULTS / "demo_seed1_again.json").read_text())
    for run in (demo, again):
        assert run["pace"]["threads"] == "1"
    assert all(again[part][key] == demo[part][key] for part in ("nft", "grpo") for key in ("reward", "audits"))
    assert again["best_of_8"] == demo["best_of_8"]
    assert f"in {again['pace']['cpu_seconds']:.0f} CPU seconds" in told
    assert f"silence on the terminal was {demo['pace']['longest_silence']:.1f} s" in told


EQUAL_CPU = [json.loads(line) for line in (RESULTS / "methods_equal_cpu.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("method", "row"),
    [
        ("untrained", "untrained, prompts of all methods"),
        ("ddpo", "DDPO, 200 s"),
        ("nft", "NFT, 200 s"),
        ("awm", "AWM, 200 s"),
        ("reward_gradient", "DRaFT-1, 200 s"),
        ("nft_reward_gradient", "NFT, then DRaFT-1, 200 s"),
    ],
)
def test_methods_at_equal_cpu_seconds(method, row):
    def column(method, name, guidance="1"):
        found = {run["seed"]: run for run in EQUAL_CPU if run["method"] == method and run["budget"] in (0, 200)}
        assert sorted(found) == [0, 1, 2, 3, 4] and all(len(run["clusters"]) == 256 for run in found.values())
        return np.array([found[seed]["held_out"][guidance][name] for seed in range(5)], dtype=float)

    names = (("oracle", "1"), ("judge", "1"), ("counting", "1"), ("oracle", "2"))
    oracle, judge, counting, guided = (float(np.nanmean(column(method, *which), axis=1).mean()) for which in names)
    expected = [oracle, judge, judge - oracle, counting, guided]
    clusters = [name for run in EQUAL_CPU if run["method"] == "untrained" for name in run["clusters"]]
    for other in {"untrained": (), "ddpo": ("untrained",)}.get(method, ("untrained", "ddpo")):
        gain = mean_interval((column(method, "oracle") - column(other, "oracle")).ravel(), clusters)
        expected += [gain.value, gain.low, gain.high]
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {row} |"))
    assert numbers(line) == pytest.approx(expected, abs=6e-4)
