"""MMHE records: every deviation named with its line, nothing dropped; conversion from one row a rating."""

import json

import pytest
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.humans.mmhe.records import CRITERIA, paper_deviations, read_mmhe, records_from_ratings, validate_mmhe
from tests.humans.mmhe.mmhe_files import record, write


def test_sound_file_is_read(tmp_path):
    rows = [record("a", "vqa"), record("b", "referring", best=2), record("c", "document"), record("d")]
    instances = read_mmhe(write(tmp_path / "m.jsonl", rows))
    assert [i.id for i in instances] == ["a", "b", "c", "d"]
    assert instances[1].box == (1.0, 2.0, 3.0, 4.0) and instances[1].best == 2
    assert instances[0].candidates[1].ratings["fluency"] == (3, 3, 3)


@pytest.mark.parametrize(("choices", "best"), [([1, 1, 0], 1), ([0, 1, 2], None), ([2, 2, 2], 2)])
def test_best_is_the_majority_or_nothing(tmp_path, choices, best):
    assert read_mmhe(write(tmp_path / "m.jsonl", [record(choices=choices)]))[0].best == best


def broken():
    rated = record()
    rated["candidates"][1]["ratings"]["clarity"] = [1, 2, 6]
    lacking = record()
    del lacking["candidates"][2]["ratings"]["fluency"]
    few = record()
    few["candidates"].pop()
    blank = record()
    blank["candidates"][0]["text"] = "  "
    yield rated, "candidates[1].ratings.clarity: is [1, 2, 6]"
    yield lacking, "candidates[2].ratings: lacks criterion 'fluency'"
    yield few, "candidates: are 2; 3 are needed"
    yield blank, "candidates[0].text: is '  '"
    yield record(task="ocr"), "task: is 'ocr'"
    yield record(task="vqa", input=None), "input: is None; task vqa needs its question"
    yield record(task="referring", box=None), "box: is missing"
    yield record(task="referring", box=[5, 2, 3, 4]), "box: is [5, 2, 3, 4]"
    yield record(choices=[0, 1]), "choices: is [0, 1]"
    yield record(choices=[0, 1, 3]), "choices: holds 3"
    yield record(best_of="x"), "best_of: is not a documented field"
    yield record(image=""), "image: is ''"
    yield "{", "line: is not JSON"
    yield "[1]", "line: is list"


@pytest.mark.parametrize(("row", "message"), list(broken()))
def test_a_broken_line_is_named_and_the_others_are_kept(tmp_path, row, message):
    path = write(tmp_path / "m.jsonl", [record("good"), row, record("fine")])
    instances, deviations = validate_mmhe(path)
    assert [i.id for i in instances] == ["good", "fine"]
    assert [d.line for d in deviations] == [2] and message in str(deviations[0])
    with pytest.raises(InputError, match="line 2"):
        read_mmhe(path)


def test_every_deviation_is_reported_not_only_the_first(tmp_path):
    rows = [record(task="ocr", image=""), record(), record("b", choices=[7, 7, 7]), record()]
    _, deviations = validate_mmhe(write(tmp_path / "m.jsonl", rows))
    assert [(d.line, d.field) for d in deviations] == [
        (1, "task"), (1, "image"), (3, "choices"), (3, "choices"), (3, "choices"), (4, "id"),
    ]  # fmt: skip


def test_deviations_from_the_papers_counts_are_notes(tmp_path):
    notes = paper_deviations(read_mmhe(write(tmp_path / "m.jsonl", [record()])))
    assert notes[-1] == "45 ratings, the paper has 18000" and "captioning: 1 instances, the paper has 100" in notes


def ratings(id_="a", annotators="xyz", best=1):
    return [
        {"id": id_, "task": "captioning", "image": "a.png", "candidate": k, "text": f"t{k}", "annotator": n}
        | {"best": k == best, **dict.fromkeys(CRITERIA, 5 - k)}
        for n in annotators
        for k in range(3)
    ]


def test_converter_makes_records_that_the_reader_takes(tmp_path):
    records = records_from_ratings(ratings("a") + ratings("b", best=2))
    instances = read_mmhe(write(tmp_path / "m.jsonl", records))
    assert [(i.id, i.best) for i in instances] == [("a", 1), ("b", 2)]
    assert instances[0].candidates[2].ratings["clarity"] == (3, 3, 3)


def test_converter_refuses_incomplete_ratings():
    rows = ratings()
    with pytest.raises(InputError, match=r"annotator 'z' did not rate candidates \[2\]"):
        records_from_ratings(rows[:-1])
    with pytest.raises(InputError, match="rates candidate 0 of 'a' twice"):
        records_from_ratings([*rows, rows[0]])
    with pytest.raises(InputError, match="chose 2 candidates as best"):
        records_from_ratings([{**row, "best": row["candidate"] > 0} for row in rows])
    with pytest.raises(InputError, match="rating row 0 lacks fluency"):
        records_from_ratings([{key: value for key, value in rows[0].items() if key != "fluency"}])


def test_command_prints_every_deviation_and_fails(tmp_path):
    path = write(tmp_path / "m.jsonl", [record(task="ocr"), record("b", choices=[1])])
    result = CliRunner().invoke(app, ["mmhe", str(path)])
    assert isinstance(result.exception, InputError)
    assert "line 1, task" in result.stderr and "line 2, choices" in result.stderr


def test_command_prints_the_papers_tables(tmp_path):
    rows = [record(f"{task}-{n}", task) for task in ("vqa", "captioning") for n in range(4)]
    path = write(tmp_path / "m.jsonl", rows)
    scores = tmp_path / "s.jsonl"
    scores.write_text(
        "".join(
            json.dumps(
                {"id": row["id"], "candidate": k, "overall": 3 - k, "criteria": dict.fromkeys(CRITERIA, 3 - k)}
            )
            + "\n"
            for row in rows
            for k in range(3)
        )
    )  # fmt: skip
    result = CliRunner().invoke(app, ["mmhe", str(path), "--scores", f"ours={scores}", "--resamples", "20"])
    assert result.exit_code == 0, result.output
    assert "VQA" in result.stdout and "IC Crt" in result.stdout and "100.0" in result.stdout
    as_json = CliRunner().invoke(app, ["mmhe", str(path), "--scores", f"ours={scores}", "--resamples", "20", "--json"])
    content = json.loads(as_json.stdout)
    assert content["accuracy"]["ours"]["average"]["estimate"]["value"] == 1.0
    assert content["criteria"]["ours"]["vqa"]["clarity"]["statistics"]["kendall_tau_b"]["value"] == 1.0


def test_command_runs_a_judge_with_its_ablations_and_the_reference_metrics(tmp_path):
    from tests import tiny_models

    judge = tiny_models.save("llava", tmp_path / "llava")
    tiny_models.picture(0).save(tmp_path / "a.png")
    rows = [record(f"{task}-{n}", task, references=["text 0"]) for task in ("vqa", "captioning") for n in range(1)]
    path = write(tmp_path / "m.jsonl", rows)
    result = CliRunner().invoke(app, ["mmhe", str(path), "--judge", judge, "--resamples", "10", "--json"])
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    methods = set(content["accuracy"])
    assert {"HarmonicEval", "w/o harmonic weighting", "w/o criterion-wise scoring", "HarmonicEval gamma=0.5"} <= methods
    if "BLEU" in methods:
        assert content["accuracy"]["BLEU"]["average"]["estimate"]["value"] == 1.0
    else:
        assert any("reference-based metrics left out" in note for note in content["notes"])
