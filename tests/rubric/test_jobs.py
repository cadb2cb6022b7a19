"""Rubrics and VQAScore in jobs: their columns arrive, and what they judge is known."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rewards.build import RewardSettings
from rewards.cli.app import app
from rewards.errors import InputError
from rewards.jobs.rewards import judged_kind, refuse_memory
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.render import render


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = []
    for number, scene in enumerate(sample_scenes("test", 3, seed=1)):
        render(scene).save(tmp_path / f"{number}.png")
        text = str(describe(scene))
        rubric = [
            f"is there a {scene.shapes[0].color} {scene.shapes[0].shape}?",
            {"item": "is it ugly?", "kind": "pitfall"},
        ]
        rows.append({"image": f"{number}.png", "text": text, "prompt": text, "rubric": rubric})
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("kind", "parts"), [("rubric", {"essential", "pitfall"}), ("vqascore", set())])
def test_rows_of_a_file_are_scored(kind: str, parts: set[str], file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    words = [f"reward.kind={kind}", "reward.judge=shapes-vqa", "--out", str(out)]
    done = CliRunner().invoke(app, ["score", "reward", str(file), *words])
    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == 3 and all(0 <= record["overall"] <= 1 for record in records)
    assert all(set(record["parts"]) == parts for record in records)


def test_what_they_judge_and_what_jobs_refuse() -> None:
    assert judged_kind(RewardSettings(kind="vqascore", judge="shapes-vqa")) == "pictures"
    assert judged_kind(RewardSettings(kind="rubric", judge="shapes-vqa")) == "texts"
    with pytest.raises(InputError, match="rows beside"):
        refuse_memory(RewardSettings(kind="rubric", judge="shapes-vqa", weighting="contrast"))


MALFORMED = {2: ("[", "as JSON"), 3: ([{"item": "a", "wieght": 1}], "has 'wieght'"), 4: (None, "got None")}


@pytest.fixture
def partly(file: Path) -> Path:
    """The rows of `file` with texts to rank, and rows with checklists that cannot be used."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [{**row, "candidates": [row["text"], "a thing"]} for row in rows]
    bad = [{**rows[0], "rubric": cell} for cell, _ in MALFORMED.values()]
    path = file.with_name("partly.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in [rows[0], *bad, *rows[1:]]))
    return path


RUBRIC = ["reward.kind=rubric", "reward.judge=shapes-vqa"]


def test_malformed_checklists_are_reported_by_row_and_harm_no_other(partly: Path, tmp_path: Path) -> None:
    out = tmp_path / "scored.jsonl"
    done = CliRunner().invoke(app, ["score", "reward", str(partly), *RUBRIC, "--out", str(out)])
    assert done.exit_code == 3, done.output
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["line"] for record in records if record["overall"] is None] == list(MALFORMED)
    done = CliRunner().invoke(app, ["rerank", str(partly), *RUBRIC, "--out", str(tmp_path / "job")])
    assert done.exit_code == 3, done.output
    problems = [json.loads(line) for line in (tmp_path / "job" / "problems.jsonl").read_text().splitlines()]
    assert [problem["line"] for problem in problems] == list(MALFORMED)
    for problem, (line, (_, reason)) in zip(problems, MALFORMED.items(), strict=True):
        assert reason in problem["reason"] and reason in (records[line - 1]["abstained"] or "")
    ranked = [json.loads(line) for line in (tmp_path / "job" / "ranked.jsonl").read_text().splitlines()]
    assert [row["line"] for row in ranked if row["candidates"][0]["overall"] is not None] == [1, 5, 6]
    assert set(ranked[0]["candidates"][0]["parts"]) == {"essential", "pitfall"}


@pytest.mark.parametrize("command", [["score", "reward"], ["rerank"]])
def test_a_file_without_the_column_is_refused_before_a_judge_is_loaded(
    command: list[str], partly: Path, tmp_path: Path
) -> None:
    words = ["reward.kind=rubric", "reward.judge=no-such-judge", "reward.column=checks", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*command, str(partly), *words])
    assert isinstance(done.exception, InputError) and "no column 'checks'; it has" in str(done.exception)
