import csv
import json

import pytest
import torch
from typer.testing import CliRunner

from rewards.cli.score import app
from rewards.errors import InputError
from rewards.judges.loading import load_judge
from rewards.score_files import read_rows
from rewards.tifa.questions.question import Question
from rewards.tifa.store.store import QuestionStore
from tests import tiny_models

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def rater(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("models") / "llava")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "p").mkdir()
    for seed in range(4):
        tiny_models.picture(seed).save(tmp_path / "p" / f"{seed}.png")
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def records(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def rows_of(folder):
    rows = [{"id": at, "image": f"p/{at}.png", "text": f"a red circle {at}"} for at in range(4)]
    return [
        *rows,
        {"id": 4, "image": "p/missing.png", "text": "a"},
        {"id": 5, "text": "a"},
        {"id": 6, "image": "p/0.png", "text": None},
    ]


def write(folder, kind):
    path, rows = folder / f"rows.{kind}", rows_of(folder)
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "image", "text"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        import pyarrow as pa
        import pyarrow.parquet

        for row in rows:
            file = folder / str(row.get("image"))
            row["image"] = {"bytes": file.read_bytes(), "path": None} if file.is_file() else None
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_every_part_of_every_row_from_every_kind_of_file(folder, rater, kind, monkeypatch):
    from rewards.harmonic import reward

    out = folder / "out.jsonl"
    path = write(folder, kind)
    assert call("harmonic", path, "--out", out, "--judge", rater, "--batch-size", 3).exit_code == 0
    found = records(out)
    assert [record["row"] for record in found] == list(range(7))
    expected = reward.HarmonicEval(load_judge(rater)).score([folder / "p" / "0.png"], ["a red circle 0"]).records()[0]
    assert found[0]["rating_mass"] == pytest.approx(expected["rating_mass"], abs=1e-5)
    assert set(found[0]["probabilities"]) == {"correctness", "completeness", "clarity", "fluency", "conciseness"}
    assert found[4]["overall"] is None and found[4]["abstained"]
    assert "no picture" in found[5]["abstained"]
    assert found[6]["overall"] is None or kind == "csv"  # CSV has no None: the empty text is the reward's to refuse


def test_a_killed_run_goes_on_and_other_settings_are_refused(folder, rater):
    path, out = write(folder, "jsonl"), folder / "out.jsonl"
    call("harmonic", path, "--out", out, "--judge", rater)
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    result = call("harmonic", path, "--out", out, "--judge", rater)
    assert "5 of 7 rows scored now" in result.output
    again = records(out)
    assert [record["row"] for record in again] == list(range(7))
    for old, new in zip(map(json.loads, lines), again):
        assert new["rating_mass"] == pytest.approx(old["rating_mass"], abs=1e-6, nan_ok=True)
    with pytest.raises(InputError, match="begun with another gamma"):
        call("harmonic", path, "--out", out, "--judge", rater, "--gamma", 0.5)


def test_explanations_and_the_cache(folder, rater):
    path, out = folder / "one.jsonl", folder / "out.jsonl"
    path.write_text(json.dumps({"image": "p/0.png", "text": "a red circle"}) + "\n")
    from rewards.harmonic.reward import HarmonicEval

    mass = HarmonicEval(load_judge(rater)).score([folder / "p/0.png"], ["a red circle"]).rating_mass.min()
    result = call("harmonic", path, "--out", out, "--judge", rater, "--explain", "--cache", folder / "judgments.sqlite")
    assert result.exit_code == 0 and (folder / "judgments.sqlite").exists()
    explanations = records(out)[0]["explanations"]
    assert len(explanations) == 5
    # A tiny random judge has too little mass on the ratings; a row without a rating has nothing to explain.
    assert all((reason is None) == bool(mass < 0.1) for reason in explanations.values())


def test_tifa_with_every_answer(folder, tmp_path_factory):
    judge = tiny_models.save("vilt", tmp_path_factory.mktemp("models") / "vilt")
    store = QuestionStore(folder / "q.sqlite")
    prompt = "a red circle"
    questions = [
        Question(text, choices, answer, "circle", kind, prompt, "c1")
        for text, choices, answer, kind in [
            ("is there a circle?", ("yes", "no"), "yes", "object"),
            ("what color is the circle?", ("red", "blue"), "red", "color"),
        ]
    ]
    store.add(questions)
    store.close()
    tiny_models.picture(0, (48, 48)).save(folder / "p" / "0.png")
    path, out = folder / "rows.jsonl", folder / "out.jsonl"
    path.write_text(
        "".join(json.dumps({"image": image, "prompt": prompt}) + "\n" for image in ("p/0.png", "p/missing.png"))
    )
    arguments = [
        "tifa",
        path,
        "--out",
        out,
        "--judge",
        judge,
        "--questions",
        folder / "q.sqlite",
        "--answer",
        "choices",
    ]
    assert call(*arguments).exit_code == 0
    good, missing = records(out)
    assert [answer["element_type"] for answer in good["answers"]] == ["object", "color"]
    assert good["overall"] == sum(answer["right"] for answer in good["answers"]) / 2
    assert missing["overall"] is None and "does not exist" in missing["abstained"]
    path.write_text(json.dumps({"image": "p/0.png", "prompt": "unknown prompt"}) + "\n")
    with pytest.raises(InputError, match="unknown prompt"):
        call(*arguments)


def test_unreadable_files_are_named(tmp_path):
    for name, content, message in [
        ("a.txt", "x", r"\.txt file; expected"),
        ("a.jsonl", '{"a": 1}\n{"a', "line 2 is not JSON"),
        ("b.jsonl", "[1]\n", "line 1 is not an object"),
        ("a.parquet", "x", "not a Parquet file"),
    ]:
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=message):
            list(read_rows(tmp_path / name))
