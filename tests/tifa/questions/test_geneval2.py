"""GenEval 2's file in, its questions answered by the shapes judge, its report out."""

import json
import math
from pathlib import Path
from statistics import fmean, geometric_mean

import pytest
from typer.testing import CliRunner

from rewards.cli.app import app
from rewards.errors import InputError
from rewards.judges.loading import load_judge
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import NUMBERS, describe
from rewards.shapes.questions import questions_for
from rewards.shapes.render import render
from rewards.tifa.geneval2 import geneval2_report
from rewards.tifa.questions.geneval2 import read_geneval2, write_geneval2
from rewards.tifa.questions.question_files import read_question_file, write_question_file
from rewards.tifa.store.store import QuestionStore
from rewards.tifa.surface_forms import surface_forms
from tests.shared_data import shared_file

ROWS = [
    {
        "prompt": "two red circles",
        "atom_count": 3,
        "vqa_list": [["How many circles are there?", "two"], ["Are the circles red?", "Yes"]],
        "skills": ["count", "attribute"],
    },
    {
        "prompt": "a blue square",
        "atom_count": 4,
        "vqa_list": [["Is there a blue square?", "Yes"], ["How many blue squares are there?", "one"]],
        "skills": ["object", "count"],
    },
]


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_released_file_goes_through_a_store_and_back(tmp_path: Path) -> None:
    released = shared_file("geneval2/geneval2_data.jsonl")
    store = tmp_path / "q.sqlite"
    done = CliRunner().invoke(app, ["questions", "import", str(released), "--store", str(store)])
    assert done.exit_code == 0, done.output
    assert "6012 new, 0 known, 0 kept as stored, 0 left out" in done.output
    by_skill: dict[str, int] = {}
    for question in QuestionStore(store):
        by_skill[question.element_type] = by_skill.get(question.element_type, 0) + 1
    assert by_skill == {"count": 2025, "object": 2025, "attribute": 1214, "position": 662, "verb": 86}
    back = tmp_path / "back.jsonl"
    assert CliRunner().invoke(app, ["questions", "export", str(store), str(back)]).exit_code == 0
    assert [json.loads(line) for line in back.read_text().splitlines()] == [
        json.loads(line) for line in released.read_text().splitlines()
    ]


def test_rows_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    bad = [
        {"prompt": "p", "atom_count": 3, "skills": []},
        {**ROWS[0], "skills": ["count"]},
        {**ROWS[0], "atom_count": "3"},
        {**ROWS[0], "vqa_list": [["How many?", "red"], ["Is it?", "Yes"]]},
        {**ROWS[0], "vqa_list": [["Is it?", "Yes"], ["Is it?", "Yes"]]},
        {**ROWS[0], "vqa_list": [["Is it?"], ["Is it?", "Yes"]]},
    ]
    path = written(tmp_path / "g.jsonl", [*ROWS, *bad])
    questions, problems = read_geneval2(path)
    assert len(questions) == 4 and [problem.split(": ")[0] for problem in problems] == [
        f"{path}, line {number}" for number in range(3, 9)
    ]
    for problem, reason in zip(
        problems, ["'vqa_list'", "equal length", "'3'", "has no choices", "twice", r"['Is it?']"], strict=True
    ):
        assert reason in problem


def test_questions_with_choices_have_no_place_in_the_form(tmp_path: Path, ask) -> None:
    with pytest.raises(InputError, match="'is it red\\?' has choices"):
        write_geneval2(tmp_path / "g.jsonl", [ask()])
    for action in (lambda: read_question_file("a.txt"), lambda: write_question_file(tmp_path / "a.txt", [])):
        with pytest.raises(InputError, match=r"\.json, \.jsonl, \.csv"):
            action()


def test_the_report_is_that_of_the_released_scripts() -> None:
    scores = [[0.9, 0.4, 0.8], [0.5, 0.5], [1.0, 0.0]]
    skills = [["count", "object", "verb"], ["object", "new"], ["object", "count"]]
    report = geneval2_report(scores, skills, [3, 5, 3])
    # evaluation.py and soft_tifa_analysis.py: means of scipy's gmean and of sums over lengths, in percent
    first = geometric_mean(scores[0])
    assert report.arithmetic == pytest.approx(100 * fmean([0.7, 0.5, 0.5]))
    assert report.geometric == pytest.approx(100 * fmean([first, 0.5, 0.0]))
    assert report.by_skill == {
        "object": (pytest.approx(100 * 1.9 / 3), 3), "count": (pytest.approx(45), 2), "verb": (pytest.approx(80), 1),
        "new": (pytest.approx(50), 1),
    }  # fmt: skip
    assert list(report.by_skill) == ["object", "count", "verb", "new"]
    assert report.by_atomicity == {3: (pytest.approx(100 * first / 2), 2), 5: (pytest.approx(50), 1)}
    assert math.isnan(geneval2_report([], [], []).arithmetic)


SKILL = {"object": "object", "counting": "count", "spatial": "position"}


def test_a_file_of_shapes_prompts_goes_in_is_answered_and_its_report_and_itself_come_out(tmp_path: Path) -> None:
    """The whole path by the command line: import, the shapes judge on drawn pictures, the report, export."""
    rows, images, drawn = [], {}, {}
    for number, scene in enumerate(sample_scenes("test", 12, seed=3)):
        prompt = str(describe(scene))
        asked = [q for q in questions_for(prompt) if q.element_type in SKILL and q.answer in ("yes", *NUMBERS)]
        if prompt in images or not asked:
            continue
        render(sample_scenes("test", 1, seed=99)[0] if number % 4 == 0 else scene).save(tmp_path / f"{number}.png")
        images[prompt], drawn[prompt] = f"{number}.png", number % 4 != 0
        rows.append({
            "prompt": prompt,
            "atom_count": 3 + len(asked) % 3,
            "vqa_list": [[q.text, "Yes" if q.answer == "yes" else q.answer] for q in asked],
            "skills": [SKILL[q.element_type] for q in asked],
        })  # fmt: skip
    questions, store = written(tmp_path / "geneval2.jsonl", rows), tmp_path / "questions.sqlite"
    (tmp_path / "images.json").write_text(json.dumps(images))
    output, back = tmp_path / "result.json", tmp_path / "back.jsonl"
    bench = ["--images", str(tmp_path / "images.json"), "--output", str(output), "--judge", "shapes-vqa"]
    printed = ""
    for words in (
        ["questions", "import", str(questions), "--store", str(store)],
        ["tifa-bench", "--questions", str(store), *bench, "--report", "geneval2"],
        ["questions", "export", str(store), str(back)],
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        printed += done.output
    assert back.read_text() == questions.read_text()
    # The same by hand: the judge's probability of each right answer, and the two means.
    judge = load_judge("shapes-vqa")
    asked = [(row, text, gold) for row in rows for text, gold in row["vqa_list"]]
    pictures = [str(tmp_path / images[row["prompt"]]) for row, _, _ in asked]
    masses = judge.mass(pictures, [text for _, text, _ in asked], [surface_forms(gold) for _, _, gold in asked])
    each = iter(masses.tolist())
    scores = [[next(each) for _ in row["vqa_list"]] for row in rows]
    result = json.loads(output.read_text())
    found = result["summary"]["geneval2"]
    assert found["arithmetic"] == pytest.approx(100 * fmean(map(fmean, scores)), abs=1e-4)
    assert found["geometric"] == pytest.approx(100 * fmean(map(geometric_mean, scores)), abs=1e-4)
    for skill in ("object", "count", "position"):
        of_skill = [p for row, of_row in zip(rows, scores) for p, name in zip(of_row, row["skills"]) if name == skill]
        mean = 100 * fmean(of_skill)
        assert found["by_skill"][skill] == {"mean": pytest.approx(mean, abs=1e-4), "questions": len(of_skill)}
        assert f"  {skill:<14} {mean:5.2f}  {len(of_skill)} questions" in printed
    for atoms in sorted({row["atom_count"] for row in rows}):
        means = [geometric_mean(of_row) for row, of_row in zip(rows, scores) if row["atom_count"] == atoms]
        assert f"  {atoms:<14} {100 * fmean(means):5.2f}  {len(means)} pictures" in printed
    assert f"Soft-TIFA AM {found['arithmetic']:5.2f}  GM {found['geometric']:5.2f}" in printed
    means = {row["prompt"]: fmean(of_row) for row, of_row in zip(rows, scores)}
    assert all(mean > 0.8 if drawn[prompt] else mean < 0.7 for prompt, mean in means.items())
    assert result["summary"]["reward"]["soft"] == "mass"
