"""`rewards score`: every part of every row, the same bytes however it is cut short, and nobody's file harmed."""

import csv
import json
import math
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from typer.testing import CliRunner

from rewards.build import RewardSettings, build_reward
from rewards.cli.score import app
from rewards.errors import InputError
from rewards.jobs.job import remove_job
from rewards.judges.loading import load_judge
from rewards.tifa.questions.question import Question
from rewards.tifa.store.store import QuestionStore
from tests import tiny_models
from tests.rerank.functions import hold_at, wait_until_held, write_lines

torch.set_num_threads(1)
COMMAND = [sys.executable, "-c", "from rewards.cli import main; main()"]
LENGTH = ["reward.kind=function", "reward.function=tests.rerank.functions:by_length"]


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
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments):
    error = call(*arguments).exception
    assert isinstance(error, InputError), error
    return str(error)


def records(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def texts(folder, *values, name="rows.jsonl"):
    return write_lines(folder / name, [{"image": "p/0.png", "text": value} for value in values])


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
        write_lines(path, rows)
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "image", "text"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        for row in rows:
            file = folder / str(row.get("image"))
            row["image"] = {"bytes": file.read_bytes(), "path": None} if file.is_file() else None
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_every_part_of_every_row_from_every_kind_of_file(folder, rater, kind):
    out = folder / "out.jsonl"
    result = call("harmonic", write(folder, kind), "--out", out, "--judge", rater, "--batch-size", 3)
    assert result.exit_code == 3, result.output
    found = records(out)
    assert [record["row"] for record in found] == list(range(7))
    assert [record["line"] for record in found] == [at + 1 + (kind == "csv") for at in range(7)]
    reward = build_reward(RewardSettings(judge=str(rater)))
    expected = reward.score([folder / "p" / "0.png"], ["a red circle 0"]).records()[0]
    assert found[0]["rating_mass"] == pytest.approx(expected["rating_mass"], abs=1e-5)
    assert set(found[0]["probabilities"]) == {"correctness", "completeness", "clarity", "fluency", "conciseness"}
    assert [record["failed"] for record in found[4:]] == [True, True, kind != "csv"]  # CSV has no None but ""
    assert "no picture" in found[5]["abstained"] and found[6]["overall"] is None


def test_the_end_says_how_many_were_scored_abstained_and_failed_and_names_lines(folder):
    path = texts(folder, "aa", "what?", "aaaa", None, "why?")
    out = folder / "out.jsonl"
    result = call("reward", path, *LENGTH, "--out", out)
    assert result.exit_code == 3
    assert "2 scored (mean 3.0000), 2 abstained, 1 failed; most often: by_length abstained (2)" in result.output
    assert f"{path}, line 4: has no text in column 'text'" in result.stderr
    assert f"{path}, line 2: by_length abstained" in result.stderr
    assert call("reward", texts(folder, "a", name="good.jsonl"), *LENGTH, "--out", folder / "g.jsonl").exit_code == 0


def test_reasons_name_the_row_and_not_its_place_in_a_batch(folder):
    (folder / "p" / "broken.png").write_bytes((folder / "p" / "0.png").read_bytes()[:40])
    rows = [{"image": f"p/{at % 4}.png", "prompt": "red"} for at in range(5)] + [
        {"image": "p/broken.png", "prompt": "red"}
    ]
    colour = ["reward.kind=function", "reward.function=tests.rerank.functions:by_colour"]
    out = folder / "out.jsonl"
    call("reward", write_lines(folder / "r.jsonl", rows), *colour, "text_column=prompt", "batch_size=4", "--out", out)
    last = records(out)[5]
    assert last["line"] == 6 and "the image ('" in last["abstained"] and "image 1" not in last["abstained"]


def test_a_killed_run_goes_on_to_the_same_bytes(folder, monkeypatch):
    path = texts(folder, *("x" * (n % 7) + "?" * (n % 5 == 4) for n in range(40)))
    whole, out, log, hold = folder / "whole.jsonl", folder / "out.jsonl", folder / "log", folder / "hold"
    settings = [*LENGTH, "shard_size=4", "batch_size=3"]
    monkeypatch.setenv("RERANK_LOG", str(folder / "judged_whole"))
    call("reward", path, *settings, "--out", whole)
    monkeypatch.setenv("RERANK_LOG", str(folder / "judged"))
    command = [*COMMAND, "score", "reward", str(path), *settings, "--out", str(out)]
    for shards in (2, 5, 9):
        hold_at(hold, folder / "out.jsonl.job", shards)
        with log.open("w") as output:
            environment = {**os.environ, "RERANK_HOLD": str(hold)}
            running = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until_held(running, folder / "out.jsonl.job", shards, log)
        finally:
            running.kill()
            running.wait()
        assert not out.exists()
    result = call("reward", path, *settings, "--out", out)
    assert result.exit_code == 3 and out.read_bytes() == whole.read_bytes()
    assert (folder / "judged").read_text() == (folder / "judged_whole").read_text()
    assert not (folder / "out.jsonl.job").exists()


def test_a_finished_file_is_left_alone_and_a_damaged_one_made_anew(folder, monkeypatch):
    path, out = texts(folder, "a", "bb", "ccc"), folder / "out.jsonl"
    call("reward", path, *LENGTH, "--out", out)
    whole, written = out.read_bytes(), out.stat().st_mtime_ns
    monkeypatch.setenv("RERANK_LOG", str(folder / "judged"))
    assert call("reward", path, *LENGTH, "--out", out).exit_code == 0
    assert out.stat().st_mtime_ns == written and not (folder / "judged").exists()
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert call("reward", path, *LENGTH, "--out", out).exit_code == 0
    assert out.read_bytes() == whole


def test_other_settings_are_refused_with_and_without_the_file_beside(folder, rater):
    path, out = texts(folder, "a red circle"), folder / "out.jsonl"
    call("harmonic", path, "--out", out, "--judge", rater, "reward.min_rating_mass=0")
    whole = out.read_bytes()
    other = ["harmonic", path, "--out", out, "--judge", rater, "--gamma", 0.5, "reward.min_rating_mass=0"]
    assert "settings.reward.gamma was 0.75 and is now 0.5" in refused(*other)
    (folder / "out.jsonl.settings.json").unlink()
    assert "was made with other settings" in refused(*other)
    assert out.read_bytes() == whole and sorted(p.name for p in folder.glob("out*")) == ["out.jsonl"]
    texts(folder, "a red circle", "another")
    assert "was made with other settings" in refused("harmonic", path, "--out", out, "--judge", rater)


def test_the_input_and_foreign_files_are_never_touched(folder):
    path = texts(folder, "a", "bb")
    path.write_text(path.read_text() + '{"image": "p/0.png", "text": "no line end"}')
    foreign = {
        "notes.jsonl": '{"text": "mine"}\n{"text": "half',
        "text.jsonl": "dear diary",
        "binary.jsonl": "\ud800",
        "list.jsonl": "[1]\n",
    }
    for name, content in foreign.items():
        (folder / name).write_bytes(content.encode("utf-8", "surrogatepass"))
        before = (folder / name).read_bytes()
        assert "was not written by this command" in refused("reward", path, *LENGTH, "--out", folder / name)
        assert (folder / name).read_bytes() == before
    content = path.read_bytes()
    (folder / "link.jsonl").symlink_to(path)
    for out in (path, folder / "link.jsonl"):
        assert "is the input" in refused("reward", path, *LENGTH, "--out", out)
    assert path.read_bytes() == content and "is a folder" in refused("reward", path, *LENGTH, "--out", folder / "p")
    (folder / "other.jsonl.job").mkdir()
    (folder / "other.jsonl.job" / "photo.png").write_text("mine")
    assert "holds photo.png without manifest" in refused("reward", path, *LENGTH, "--out", folder / "other.jsonl")


def foreign_outputs(own: list[bytes], other: list[bytes]) -> dict[str, bytes]:
    """What may lie where an output is to be written, of which some was written by others."""
    note = b'{"note": "mine"}\n'
    cut = own[2][:-5]
    return {
        "a note at the end": b"".join(own) + note,
        "a note in the middle": own[0] + note + own[1] + own[2],
        "a note instead of a row": own[0] + own[1] + note,
        "a note after half of the rows": own[0] + note,
        "half a note": b"".join(own[:2]) + b"dear dia",
        "a row of another job": own[0] + other[1] + own[2],
        "a row of another job at the end": own[0] + own[1] + other[2],
        "rows of another job behind its own": b"".join(own) + b"".join(other),
        "a row twice": own[0] + own[1] + own[1],
        "rows in another order": own[1] + own[0] + own[2],
        "a row that is missing": own[0] + own[2],
        "a score that is a text": own[0].replace(b"1.0", b'"1.0"') + own[1] + own[2],
        "a row cut off in the middle": own[0] + cut + b"\n" + own[1],
        "bytes": own[0] + b"\xff\xfe\n",
        "too deep": own[0] + b"[" * 100_000 + b"\n",
    }


@pytest.mark.parametrize("kind", foreign_outputs([b"x"] * 3, [b"x"] * 3))
def test_what_others_wrote_into_an_output_is_neither_lost_nor_counted(folder, kind):
    path, out = texts(folder, "a", "bb", "ccc"), folder / "out.jsonl"
    call("reward", path, *LENGTH, "--out", out)
    call("reward", path, *LENGTH, "shard_size=2", "--out", folder / "other.jsonl")
    own, other = (file.read_bytes().splitlines(keepends=True) for file in (out, folder / "other.jsonl"))
    content = foreign_outputs(own, other)[kind]
    out.write_bytes(content)
    assert "was not written by this command and is left alone" in refused("reward", path, *LENGTH, "--out", out)
    assert out.read_bytes() == content and not (folder / "out.jsonl.job").exists()


@pytest.mark.parametrize("cut", [1, 5, 9, 12, 40, -2])
def test_an_output_that_was_cut_off_is_made_anew(folder, cut):
    path, out = texts(folder, "a", "bb", "ccc"), folder / "out.jsonl"
    call("reward", path, *LENGTH, "--out", out)
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    out.write_bytes(lines[0] + lines[1] + lines[2][:cut])
    assert call("reward", path, *LENGTH, "--out", out).exit_code == 0 and out.read_bytes() == whole


@pytest.mark.parametrize("content", ['{"mine": 1}', "dear diary", "[1]", '{"job": "a", "mine": 1}'])
def test_a_settings_file_of_others_is_left_alone(folder, content):
    path, settings = texts(folder, "a"), folder / "out.jsonl.settings.json"
    settings.write_text(content)
    said = refused("reward", path, *LENGTH, "--out", folder / "out.jsonl")
    assert "settings.json was not written by this command" in said and settings.read_text() == content
    assert not (folder / "out.jsonl").exists() and not (folder / "out.jsonl.job").exists()


@pytest.mark.parametrize(
    "inside", ["lock", "index.sqlite", "shards/notes.txt", "input/mine.csv", "shards/000000.jsonl"]
)
def test_a_folder_of_others_beside_the_output_is_left_alone(folder, inside):
    path, job = texts(folder, "a"), folder / "out.jsonl.job"
    (job / inside).parent.mkdir(parents=True)
    (job / inside).write_text("mine")
    assert "without manifest.json of a job" in refused("reward", path, *LENGTH, "--out", folder / "out.jsonl")
    assert (job / inside).read_text() == "mine" and [p.name for p in job.iterdir()] == [inside.split("/")[0]]


def test_files_of_others_in_a_jobs_own_folder_stay(folder):
    out, job = folder / "out.jsonl", folder / "out.jsonl.job"
    fails = ["reward.kind=function", "reward.function=tests.jobs.functions:fails_on_x"]
    assert call("reward", texts(folder, "x"), *fails, "--out", out).exit_code == 1
    (job / "shards" / "notes.txt").write_text("mine")
    (job / "photo.png").write_text("mine")
    remove_job(job)
    assert sorted(str(p.relative_to(job)) for p in job.rglob("*")) == ["photo.png", "shards", "shards/notes.txt"]


def test_a_start_that_was_cut_short_goes_on(folder):
    path, out, job = texts(folder, "a"), folder / "out.jsonl", folder / "out.jsonl.job"
    job.mkdir()
    (job / "lock").touch()
    (job / ".manifest.json.0123.tmp").write_text("{")
    assert call("reward", path, *LENGTH, "--out", out).exit_code == 0 and len(records(out)) == 1 and not job.exists()


def test_an_index_that_cannot_be_made_again_costs_no_finished_shard(folder, monkeypatch):
    path, out = texts(folder, *"abxxxxxxxx"), folder / "out.jsonl"
    fails = ["reward.kind=function", "reward.function=tests.jobs.functions:fails_on_x", "shard_size=2"]
    assert "8 times in a row" in str(call("reward", path, *fails, "--out", out).exception)
    shard = folder / "out.jsonl.job" / "shards" / "000000.jsonl"
    kept = shard.read_bytes()
    monkeypatch.setattr("rewards.jobs.index._SCHEMA", "no schema")
    assert "index cannot be written" in str(call("reward", path, *fails, "--out", out).exception)
    assert shard.read_bytes() == kept


def test_an_output_that_is_a_link_is_written_where_it_leads(folder):
    path, real, link = texts(folder, "a"), folder / "elsewhere" / "real.jsonl", folder / "link.jsonl"
    real.parent.mkdir()
    link.symlink_to(real)
    for _ in range(2):
        assert call("reward", path, *LENGTH, "--out", link).exit_code == 0
    assert link.is_symlink() and records(real)[0]["overall"] == 1.0
    os.mkfifo(folder / "pipe")
    assert "is no regular file" in refused("reward", path, *LENGTH, "--out", folder / "pipe")
    assert (folder / "pipe").is_fifo()


def test_a_second_process_on_the_same_output_is_refused(folder, monkeypatch):
    path = texts(folder, *("x" * n for n in range(12)))
    out, log, hold = folder / "out.jsonl", folder / "log", folder / "hold"
    hold_at(hold, folder / "out.jsonl.job", 1)
    words = ["reward", str(path), *LENGTH, "shard_size=2", "--out", str(out)]
    with log.open("w") as output:
        environment = {**os.environ, "RERANK_HOLD": str(hold)}
        command = [*COMMAND, "score", *words]
        running = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_held(running, folder / "out.jsonl.job", 1, log)
        assert "another process is working on" in refused(*words)
    finally:
        hold.unlink()
        assert running.wait(timeout=120) == 0, log.read_text()
    assert len(records(out)) == 12


def test_data_that_cannot_be_used_costs_its_row(folder):
    lines = [
        '{"image": "p/0.png", "text": "fine", "id": NaN}',
        '{"image": "p/0.png", "text": "half", "id": "\\ud800"}',
        '{"image": "p/0.png", "text": ["a"]}',
        '{"image": "p/0.png", "text": true}',
        '{"image": "p/0.png", "text": NaN}',
        '{"image": 3, "text": "a"}',
        '{"image": "p/\\u0000.png", "text": "a"}',
        '{"image": "' + "n" * 5000 + '.png", "text": "a"}',
        "{broken",
        "[1]",
        "[" * 100_000,
        '{"image": "p/0.png", "text": "last", "id": 9}',
    ]
    path, out = write_lines(folder / "r.jsonl", lines), folder / "out.jsonl"
    path.write_bytes(path.read_bytes() + b'{"image": "p/0.png", "text": "caf\xe9"}\n')
    result = call("reward", path, *LENGTH, "--out", out)
    assert result.exit_code == 3, result.exception
    found = [json.loads(line, parse_constant=pytest.fail) for line in out.read_text().splitlines()]
    assert [record["overall"] for record in found] == [4.0, *[None] * 10, 4.0, None]
    said = [record["abstained"] for record in found]
    for at, part in (
        (1, "surrogates not allowed"), (2, "text is ['a']; text is needed"), (3, "text is True"), (4, "text is nan"),
        (5, "image is 3; a path or an encoded picture"), (6, "lacks its picture"), (7, "lacks its picture"),
        (8, "is not JSON"), (9, "is list; an object"), (10, "is not JSON"), (12, "is not UTF-8"),
    ):  # fmt: skip
        assert part in said[at], (at, said[at])
    assert found[0]["id"] is None and found[11]["id"] == 9
    assert "2 scored (mean 4.0000), 0 abstained, 11 failed" in result.output


def test_csv_of_any_size_and_encoding(folder):
    long = "x" * 200_000
    rows = [f'"p/0.png","{long}"', '"p/0.png","two\nlines, and ""quotes"""', '"p/0.png","a","more"', '"p/0.png"']
    path, out = folder / "r.csv", folder / "out.jsonl"
    content = "image,text\n" + "\n".join(rows) + '\n"p/0.png","last"\n"p/0.png","never closed\n'
    path.write_bytes(b"\xef\xbb\xbf" + content.encode())
    path.write_bytes(
        path.read_bytes().replace(b'"p/0.png","last"', '"p/0.png","café"\n"p/0.png","last"'.encode("latin-1"))
    )
    call("reward", path, *LENGTH, "--out", out)
    found = records(out)
    assert [record["line"] for record in found] == [2, 3, 5, 6, 7, 8, 9]
    assert [record["overall"] for record in found] == [200_000, 23, None, None, None, 4, None]
    assert "is not CSV: unexpected end of data (a quote that is not closed?)" in found[6]["abstained"]
    assert "has 3 cells, the header 2" in found[2]["abstained"] and "no text" in found[3]["abstained"]
    assert "is not UTF-8; save the file as UTF-8" in found[4]["abstained"]
    path.write_bytes("imagé,text\na,b\n".encode("latin-1"))
    assert "line 1 is not UTF-8" in refused("reward", path, *LENGTH, "--out", folder / "o.jsonl")
    path.write_text("image,text,text\na,b,c\n")
    assert "column 'text' twice" in refused("reward", path, *LENGTH, "--out", folder / "o.jsonl")
    path.write_text("")
    assert "is empty" in refused("reward", path, *LENGTH, "--out", folder / "o.jsonl")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ('p/0.png,"never closed', "unexpected end of data"),
        ('"p/0.png,never closed', "unexpected end of data"),
        ('p/0.png,"a "quoted" word"', "',' expected after '\"'"),
        ('p/0.png,"a \\"quoted\\" word"', "',' expected after '\"'"),
        ('p/0.png,"', "unexpected end of data"),
    ],
)
@pytest.mark.parametrize(
    "after", [["p/0.png,three", "p/0.png,seven"], ["p/0.png,three", 'p/0.png,"four,"', 'p/0.png,"']]
)
def test_a_quote_that_is_not_closed_costs_its_own_line_and_is_named(folder, broken, said, after):
    path, out = folder / "r.csv", folder / "out.jsonl"
    path.write_text("\n".join(["image,text", 'p/0.png,"one\ntwo"', broken, *after]) + "\n")
    result = call("reward", path, *LENGTH, "--out", out)
    assert result.exit_code == 3
    found = records(out)
    assert [record["line"] for record in found] == [2, 4, *range(5, 5 + len(after))]
    assert found[0]["overall"] == 7 and found[2]["overall"] == 5 and found[3]["overall"] == 5
    assert found[1]["failed"]
    if len(after) == 2:
        assert said in found[1]["abstained"] and f"{path}, line 4: is not CSV" in result.stderr


def test_bytes_that_only_look_like_characters(folder):
    """UTF-8 has no halves of characters; a file in UTF-16 is another file than it seems."""
    row = b'{"image": "p/0.png", "text": "%s", "id": "%s"}\n'
    smile, line_separator = "\U0001f600".encode(), "one\u2028two\u0085three".encode()
    lines = [(b"a", b"\xed\xa0\x80"), (b"\xed\xa0\x80", b"1"), (smile, b"\\ud83d\\ude00"), (line_separator, b"\\uD83D")]
    path, out = folder / "r.jsonl", folder / "out.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\n" + b"".join(row % line for line in [*lines, (line_separator, b"4")]))
    assert call("reward", path, *LENGTH, "--out", out).exit_code == 3
    found = records(out)
    assert [(record["line"], record["overall"]) for record in found] == [
        (2, None), (3, None), (4, 1.0), (5, None), (6, 13.0),
    ]  # fmt: skip
    assert all("is not UTF-8" in record["abstained"] for record in found[:2])
    assert found[2]["id"] == "\U0001f600" and "surrogates not allowed" in found[3]["abstained"]
    path.write_text('{"image": "p/0.png", "text": "a"}\n', encoding="utf-16")
    assert call("reward", path, *LENGTH, "--out", folder / "o.jsonl").exit_code == 3
    assert {record["overall"] for record in records(folder / "o.jsonl")} == {None}


def test_a_table_with_dates_and_missing_numbers_as_ids(folder):
    import datetime

    table = {
        "image": ["p/0.png"] * 2,
        "text": ["a", "bb"],
        "id": [1.0, math.nan],
        "day": [datetime.date(2026, 1, 1)] * 2,
    }
    pa.parquet.write_table(pa.table(table), folder / "r.parquet")
    assert call("reward", folder / "r.parquet", *LENGTH, "--out", folder / "o.jsonl").exit_code == 0
    assert [record["id"] for record in records(folder / "o.jsonl")] == [1.0, None]


def test_missing_columns_and_empty_files_are_refused_before_a_judge_loads(folder):
    path, out = texts(folder, "a"), folder / "out.jsonl"
    absent = ["--judge", "no-such-judge", "--out", out]
    assert "has no column 'caption'; it has image, text" in refused(
        "harmonic", path, "--text-column", "caption", *absent
    )
    assert "has no column 'picture'" in refused("harmonic", path, "--image-column", "picture", *absent)
    (folder / "empty.jsonl").write_text("\n")
    assert "has no rows" in refused("harmonic", folder / "empty.jsonl", *absent)
    assert "needs a judge" in refused("harmonic", path, "--out", out)
    assert not list(folder.glob("out*"))


def test_explanations_and_the_cache(folder, rater):
    path, out = texts(folder, "a red circle"), folder / "out.jsonl"
    from rewards.harmonic.reward import HarmonicEval

    mass = HarmonicEval(load_judge(rater)).score([folder / "p/0.png"], ["a red circle"]).rating_mass.min()
    call("harmonic", path, "--out", out, "--judge", rater, "--explain", "--cache", folder / "judgments.sqlite")
    assert (folder / "judgments.sqlite").exists()
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
    rows = [{"image": image, "prompt": prompt} for image in ("p/0.png", "p/missing.png")]
    path, out = write_lines(folder / "rows.jsonl", rows), folder / "out.jsonl"
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
    result = call(*arguments)
    assert result.exit_code == 3, result.exception
    good, missing = records(out)
    assert [answer["element_type"] for answer in good["answers"]] == ["object", "color"]
    assert good["overall"] == sum(answer["right"] for answer in good["answers"]) / 2
    assert missing["overall"] is None and "no file" in missing["abstained"] and missing["failed"]
    huge = [rows[0], *({"image": "p/0.png", "prompt": value} for value in (2**70, "\ud800", True, 1.5))]
    write_lines(path, huge)
    assert call(*arguments[:3], folder / "huge.jsonl", *arguments[4:]).exit_code == 3
    found = records(folder / "huge.jsonl")
    assert [record["overall"] is None for record in found] == [False, True, True, True, True]
    assert "a whole number of 64 bits is needed" in found[1]["abstained"]
    unknown = {"image": "p/0.png", "prompt": "unknown prompt"}
    write_lines(path, [unknown, rows[0], unknown])
    assert call(*arguments[:3], folder / "some.jsonl", *arguments[4:]).exit_code == 3
    found = records(folder / "some.jsonl")
    assert [record["overall"] for record in found] == [None, good["overall"], None]
    assert "no questions for 'unknown prompt'" in found[0]["abstained"] and not found[0]["failed"]
    write_lines(path, [unknown, unknown])
    assert "line 1" in refused(*arguments) and "unknown prompt" in refused(*arguments)


def test_a_block_of_yaml_and_words_that_win_over_it(folder, rater):
    path, out = texts(folder, "a red circle"), folder / "out.jsonl"
    (folder / "c.yaml").write_text(f"reward: {{kind: harmonic, judge: '{rater}', gamma: 0.25, min_rating_mass: 0}}\n")
    call("reward", path, "--config", folder / "c.yaml", "--out", out)
    call("harmonic", path, "--config", folder / "c.yaml", "reward.gamma=1", "--out", folder / "one.jsonl")
    settings = [
        json.loads((folder / name).read_text()) for name in ("out.jsonl.settings.json", "one.jsonl.settings.json")
    ]
    assert [made["settings"]["reward"]["gamma"] for made in settings] == [0.25, 1.0]
    reward = build_reward(RewardSettings(judge=str(rater), gamma=0.25, min_rating_mass=0))
    expected = reward.score([folder / "p/0.png"], ["a red circle"]).overall.item()
    assert records(out)[0]["overall"] == pytest.approx(expected, abs=1e-6)


def test_a_judge_that_fails_once_costs_a_row_and_one_that_is_gone_stops_the_job(folder):
    fails = ["reward.kind=function", "reward.function=tests.jobs.functions:fails_on_x"]
    out = folder / "out.jsonl"
    result = call("reward", texts(folder, "a", "x", "b", "c"), *fails, "--out", out)
    assert result.exit_code == 3
    assert [(record["overall"], record["abstained"]) for record in records(out)] == [
        (1.0, None), (None, "RuntimeError: no x"), (1.0, None), (1.0, None),
    ]  # fmt: skip
    gone = call("reward", texts(folder, *"axxxxxxxxa", name="gone.jsonl"), *fails, "--out", folder / "gone_out.jsonl")
    assert "failed 8 times in a row: RuntimeError: no x" in str(gone.exception)
    never = call("reward", texts(folder, "x", "x", name="never.jsonl"), *fails, "--out", folder / "never_out.jsonl")
    assert "failed on everything it was asked" in str(never.exception)
    assert not (folder / "gone_out.jsonl").exists() and not (folder / "never_out.jsonl").exists()
    assert not list((folder / "never_out.jsonl.job" / "shards").iterdir())
