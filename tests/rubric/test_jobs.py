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
