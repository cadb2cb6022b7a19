"""Jobs: the same bytes however they are cut short, refusals that name the difference, problems that harm nobody."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys

import datasets
import pytest

from rewards.build import RewardSettings
from rewards.errors import InputError, RewardsError
from rewards.jobs.job import Job, run_local
from rewards.rerank import Item, best_of_n
from rewards.rerank.outputs import OutputSettings, write_outputs
from rewards.rerank.settings import RerankSettings
from rewards.rerank.task import RerankTask, start_rerank

from .functions import by_length, committed, hold_at, picture, read_lines, wait_until_held, write_lines, write_texts

LENGTH = RewardSettings(kind="function", function="tests.rerank.functions:by_length")
COLOUR = RewardSettings(kind="function", function="tests.rerank.functions:by_colour")
RATER = RewardSettings(judge="shapes-rater")
VOWELS = RewardSettings(kind="function", function="tests.rerank.functions:by_vowels")


def finish(source, folder, outputs=None, **settings):
    job = start_rerank(source, folder, RerankSettings(**{"reward": LENGTH, "shard_size": 4, **settings}))
    run_local(job)
    return write_outputs(job, outputs or OutputSettings())


def test_ranked_rows_equal_best_of_n_for_any_cut(tmp_path):
    source = write_texts(tmp_path, 21, candidates=5)
    expected = best_of_n(by_length, [Item(tuple(row["candidates"]), image="a") for row in read_lines(source)])
    contents = set()
    for n, settings in enumerate(({"shard_size": 4}, {"shard_size": 100, "batch_size": 3}, {"shard_size": 1})):
        finish(source, tmp_path / str(n), **settings)
        contents.add((tmp_path / str(n) / "ranked.jsonl").read_bytes())
    assert len(contents) == 1
    rows = read_lines(tmp_path / "0" / "ranked.jsonl")
    assert [[c["index"] for c in row["candidates"]] for row in rows] == [
        [c.index for c in r.candidates] for r in expected
    ]
    assert [row["margin"] for row in rows] == [r.margin for r in expected]
    assert rows[0]["id"] == "i0" and rows[0]["line"] == 1 and rows[0]["kind"] == "texts"


def test_a_finished_job_judges_nothing_again_and_a_damaged_one_only_what_is_missing(tmp_path, monkeypatch):
    source = write_texts(tmp_path, 12)
    monkeypatch.setenv("RERANK_LOG", str(tmp_path / "log"))
    finish(source, tmp_path / "job")
    first = (tmp_path / "job" / "ranked.jsonl").read_bytes()
    judged = len((tmp_path / "log").read_text().splitlines())
    finish(source, tmp_path / "job")
    assert len((tmp_path / "log").read_text().splitlines()) == judged
    (tmp_path / "job" / "shards" / "000001.jsonl").unlink()
    (tmp_path / "job" / "shards" / "000001.host.12.1.tmp").write_text("half a li")
    finish(source, tmp_path / "job")
    assert len((tmp_path / "log").read_text().splitlines()) == judged + judged // 3
    assert (tmp_path / "job" / "ranked.jsonl").read_bytes() == first
    assert not list((tmp_path / "job" / "shards").glob("*.tmp"))


def test_killed_driver_resumes_to_the_same_bytes_and_judges_nothing_twice(tmp_path, monkeypatch):
    source = write_texts(tmp_path, 40)
    monkeypatch.setenv("RERANK_LOG", str(tmp_path / "log_whole"))
    summary = finish(source, tmp_path / "whole", OutputSettings(pairs=True))
    job, log, hold = tmp_path / "killed", tmp_path / "output", tmp_path / "hold"
    command = [sys.executable, "-c", "from rewards.cli.rerank import rerank; import typer; typer.run(rerank)"]
    arguments = [str(source), f"reward.function={LENGTH.function}", "reward.kind=function", "shard_size=4", "--pairs"]
    monkeypatch.setenv("RERANK_LOG", str(tmp_path / "log_killed"))
    for shards in (2, 4):
        hold_at(hold, job, shards)
        with log.open("w") as output:
            running = subprocess.Popen(
                [*command, *arguments, "--out", str(job)],
                env={**os.environ, "RERANK_HOLD": str(hold)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until_held(running, job, shards, log)
        finally:
            running.kill()
        assert running.wait() == -signal.SIGKILL and committed(job) == shards
    assert not (job / "ranked.jsonl").exists()
    resumed = finish(source, job, OutputSettings(pairs=True))
    assert resumed == summary
    for name in ("ranked.jsonl", "problems.jsonl", "pairs.parquet", "summary.json"):
        assert (job / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert (tmp_path / "log_killed").read_text() == (tmp_path / "log_whole").read_text()


def test_changed_settings_source_or_reward_are_refused_with_the_difference(tmp_path):
    source = write_texts(tmp_path, 5)
    finish(source, tmp_path / "job")
    for settings, message in (
        ({"reward": VOWELS}, "settings.reward.function was 'tests.rerank.functions:by_length' and is now"),
        ({"shard_size": 9}, "settings.shard_size was 4 and is now 9"),
        ({"audit": VOWELS}, "settings.audit was None"),
    ):
        with pytest.raises(InputError, match=message):
            finish(source, tmp_path / "job", **settings)
    shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}_moved"))
    moved = tmp_path.with_name(f"{tmp_path.name}_moved")
    with pytest.raises(InputError, match=r"settings\.source was .* and is now"):
        finish(moved / source.name, moved / "job")
    index = (tmp_path / "job" / "index.sqlite").read_bytes()
    write_texts(tmp_path, 6)
    with pytest.raises(InputError, match=r"source_fingerprint was"):
        finish(source, tmp_path / "job")
    assert (tmp_path / "job" / "index.sqlite").read_bytes() == index  # another process may be reading it


def test_changed_questions_and_judges_are_refused(tmp_path):
    from rewards.shapes.prompts import question_store

    picture(tmp_path / "a.png"), picture(tmp_path / "b.png", (0, 0, 200))
    source = write_lines(tmp_path / "r.jsonl", [{"prompt": "a red circle", "candidates": ["a.png", "b.png"]}])
    store = question_store(tmp_path / "q.sqlite", ["a red circle"])
    reward = RewardSettings(
        kind="tifa", judge="shapes-oracle", sentence_model=None, questions=str(tmp_path / "q.sqlite")
    )
    finish(source, tmp_path / "job", reward=reward)
    finish(source, tmp_path / "job", reward=reward)
    question_store(store.path, ["a blue square"])
    with pytest.raises(InputError, match=r"rewards\.reward\.questions was"):
        finish(source, tmp_path / "job", reward=reward)
    manifest = json.loads((tmp_path / "job" / "manifest.json").read_text())
    manifest["identity"]["rewards"]["reward"]["judge"]["revision"] = "0"
    (tmp_path / "job" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"reward\.judge\.revision was '0' and is now '1'"):
        Job(tmp_path / "job", RerankTask(RerankSettings(reward=reward))).worker()


def test_problem_rows_are_reported_and_the_others_are_unharmed(tmp_path):
    sound = read_lines(write_texts(tmp_path, 6))
    finish(tmp_path / "items.jsonl", tmp_path / "clean")
    long = {"id": "long", "image": "a.png", "candidates": ["x" * 10_000_000, "short", "?"]}
    rows = [
        sound[0], "{broken", sound[1], {**sound[1], "candidates": ["again"]}, sound[2],
        {"id": "nopicture", "image": "none.png", "candidates": ["a", "b"]}, sound[3], long,
        {"id": "none", "image": "a.png", "candidates": []}, sound[4],
        {"id": "one", "image": "a.png", "candidates": ["alone"]}, sound[5], "[]",
    ]  # fmt: skip
    summary = finish(write_lines(tmp_path / "mixed.jsonl", rows), tmp_path / "job")
    problems = read_lines(tmp_path / "job" / "problems.jsonl")
    found = sorted((p["line"], p["ranked"]) for p in problems)
    assert found == [(2, False), (4, False), (6, False), (8, True), (9, False), (11, True), (13, False)]
    assert all(p["file"] == str(tmp_path / "mixed.jsonl") and p["reason"] for p in problems)
    assert summary.problems == 7 and summary.ranked == 8
    clean = {row["id"]: row["candidates"] for row in read_lines(tmp_path / "clean" / "ranked.jsonl")}
    ranked = {row["id"]: row["candidates"] for row in read_lines(tmp_path / "job" / "ranked.jsonl")}
    assert {name: ranked[name] for name in clean} == clean
    assert [(c["index"], c["overall"]) for c in ranked["long"]] == [(1, 5.0), (0, None), (2, None)]
    assert "10000000 characters" in ranked["long"][1]["abstained"]


def test_a_source_of_problems_only_finishes(tmp_path):
    summary = finish(write_lines(tmp_path / "bad.jsonl", ["{", "[]"]), tmp_path / "job")
    assert (summary.items, summary.problems, summary.mean_best) == (0, 2, None)


def test_a_judge_that_fails_throughout_stops_the_job_uncommitted(tmp_path):
    source = write_texts(tmp_path, 100)
    failing = RewardSettings(kind="function", function="tests.rerank.functions:always_abstains")
    with pytest.raises(RewardsError, match=r"abstained on 300 of 300 candidates.*max_abstained=0\.5"):
        finish(source, tmp_path / "job", reward=failing, shard_size=100)
    assert not list((tmp_path / "job" / "shards").iterdir())
    with pytest.raises(InputError, match="1 shards are not finished"):
        write_outputs(Job(tmp_path / "job", RerankTask(RerankSettings(reward=failing))), OutputSettings())


def test_pictures_grouped_rows_and_an_audit(tmp_path):
    for name, red in (("a", 10), ("b", 250), ("c", 90)):
        picture(tmp_path / f"{name}.png", (red, 0, 0))
    rows = [{"key": "k", "prompt": "red", "candidate": f"{name}.png"} for name in "abc"]
    finish(write_lines(tmp_path / "r.jsonl", rows), tmp_path / "job", reward=COLOUR, group_by="key")
    row = read_lines(tmp_path / "job" / "ranked.jsonl")[0]
    assert [c["index"] for c in row["candidates"]] == [1, 2, 0] and row["margin"] == 160 and row["id"] == "k"
    finish(write_texts(tmp_path, 4), tmp_path / "audited", audit=VOWELS)
    audited = read_lines(tmp_path / "audited" / "ranked.jsonl")[0]["candidates"]
    assert all(c["audit"] == {"overall": 0.0, "parts": {}, "abstained": None} for c in audited)


def test_unreadable_pictures_are_reported_with_their_line_and_an_honest_abstention_is_not(tmp_path):
    picture(tmp_path / "a.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "a.png").read_bytes()[:50])
    rows = [{"key": "k", "prompt": "red", "candidate": name} for name in ("a.png", "broken.png", "none.png")]
    summary = finish(write_lines(tmp_path / "p.jsonl", rows), tmp_path / "p", reward=COLOUR, group_by="key")
    problems = read_lines(tmp_path / "p" / "problems.jsonl")
    assert [(p["line"], p["id"], p["ranked"], p["reason"][:12]) for p in problems] == [
        (2, "k", True, "candidate 1:"),
        (3, "k", True, "candidate 2:"),
    ]
    assert "broken.png" in problems[0]["reason"] and "no file" in problems[1]["reason"]
    assert summary.abstained == 2 and summary.ranked == 1
    rows = [{"image": "a.png", "candidates": texts} for texts in (["what?", "x"], ["what?", "who?"])]
    summary = finish(write_lines(tmp_path / "t.jsonl", rows), tmp_path / "t")
    problems = read_lines(tmp_path / "t" / "problems.jsonl")
    assert summary.abstained == 3 and [problem["line"] for problem in problems] == [2]
    assert problems[0]["reason"] == "no candidate could be judged: by_length abstained"


def test_a_broken_picture_of_texts_and_a_prompt_without_questions_are_reported(tmp_path):
    from rewards.shapes.prompts import question_store
    from rewards.shapes.render import render
    from rewards.shapes.scenes import sample_scene

    render(sample_scene(random.Random(0))).save(tmp_path / "a.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "a.png").read_bytes()[:50])
    rows = [{"id": name, "image": name, "candidates": ["a red circle", "red"]} for name in ("a.png", "broken.png")]
    finish(write_lines(tmp_path / "t.jsonl", rows), tmp_path / "t", reward=RewardSettings(judge="shapes-rater"))
    problems = read_lines(tmp_path / "t" / "problems.jsonl")
    assert [(problem["line"], problem["id"]) for problem in problems] == [(2, "broken.png")]
    assert "no candidate could be judged" in problems[0]["reason"] and "broken.png" in problems[0]["reason"]
    question_store(tmp_path / "q.sqlite", ["a red circle"]).close()
    reward = RewardSettings(
        kind="tifa", judge="shapes-oracle", sentence_model=None, questions=str(tmp_path / "q.sqlite")
    )
    rows = [{"prompt": prompt, "candidates": ["a.png", "broken.png"]} for prompt in ("a red circle", "unheard of")]
    finish(write_lines(tmp_path / "p.jsonl", rows), tmp_path / "p", reward=reward)
    problems = read_lines(tmp_path / "p" / "problems.jsonl")
    assert [problem["line"] for problem in problems] == [1, 2, 2]
    assert "broken.png" in problems[0]["reason"] and "unheard of" in problems[1]["reason"]


@pytest.mark.parametrize("name", ["shard_size", "batch_size", "max_text"])
def test_settings_out_of_range_are_refused(name):
    with pytest.raises(InputError, match=f"{name} is 0"):
        RerankSettings(LENGTH, **{name: 0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_abstained": -1}, "max_abstained is -1"),
        ({"max_abstained": float("nan")}, "max_abstained is nan"),
        ({"columns": {"promt": "caption"}}, "columns has promt; known names are id, image, prompt"),
        (
            {"reward": RewardSettings(judge="shapes-rater"), "audit": RewardSettings(kind="tifa", judge="shapes-vqa")},
            "judge different things",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        RerankSettings(**{"reward": LENGTH, **settings})


def test_a_reward_or_column_that_is_not_there_leaves_nothing_behind(tmp_path):
    source = write_texts(tmp_path, 2)
    datasets.Dataset.from_list(read_lines(source)).to_parquet(tmp_path / "r.parquet")
    for of, settings, message in (
        (source, {"reward": RewardSettings(judge="no-such-judge")}, "no-such-judge"),
        (tmp_path / "r.parquet", {"group_by": "key", "reward": RewardSettings(judge="no-such-judge")}, "column 'key'"),
        (tmp_path / "nowhere.jsonl", {}, "nowhere"),
    ):
        with pytest.raises((InputError, OSError), match=message):
            finish(of, tmp_path / "deep" / "job", **settings)
        assert not (tmp_path / "deep").exists()


def test_an_index_that_cannot_be_written_leaves_an_empty_folder_at_most(tmp_path, monkeypatch):
    source = write_texts(tmp_path, 2)
    monkeypatch.setattr("rewards.jobs.index._SCHEMA", "no schema")
    with pytest.raises(RewardsError, match=r"index\.sqlite: the index cannot be written"):
        finish(source, tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_folders_that_hold_something_else_are_refused(tmp_path):
    source = write_texts(tmp_path, 2)
    (tmp_path / "file").write_text("x")
    (tmp_path / "stranger" / "shards").mkdir(parents=True)
    (tmp_path / "stranger" / "shards" / "000000.jsonl").write_text("{}")
    (tmp_path / "input" / "input").mkdir(parents=True)
    for name, inside in (("index", "index.sqlite"), ("lock", "lock")):
        (tmp_path / name).mkdir()
        (tmp_path / name / inside).write_text("mine")
    for name, content in (("cut", ""), ("other", "{}"), ("list", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(content)
    for name, message in (
        ("file", "is a file; a folder for the job is needed"),
        ("stranger", "holds shards without manifest"),
        ("input", "holds input without manifest"),
        ("index", "holds index.sqlite without manifest"),
        ("lock", "holds lock without manifest"),
        ("cut", "was not written by a job of rerank;"),
        ("other", "was not written by a job of rerank;"),
        ("list", "was not written by a job of rerank;"),
    ):
        with pytest.raises(InputError, match=message):
            finish(source, tmp_path / name)


def test_missing_pictures_are_no_failure_of_the_judge(tmp_path):
    candidates = [f"none{n}.png" for n in range(300)] + [str(picture(tmp_path / "a.png"))]
    source = write_lines(tmp_path / "r.jsonl", [{"prompt": "p", "candidates": candidates}])
    summary = finish(source, tmp_path / "job", reward=COLOUR)
    assert (summary.problems, summary.abstained, summary.ranked) == (300, 300, 1)


def test_a_job_that_gave_up_goes_on_when_more_abstentions_are_allowed(tmp_path):
    source = write_lines(tmp_path / "r.jsonl", [{"image": str(picture(tmp_path / "a.png")), "candidates": ["?"] * 3}])
    many = write_lines(
        tmp_path / "many.jsonl", [{**read_lines(source)[0], "candidates": [f"{n}?" for n in range(300)]}]
    )
    with pytest.raises(RewardsError, match="abstained on 300 of 300"):
        finish(many, tmp_path / "job")
    assert finish(many, tmp_path / "job", max_abstained=1.0).abstained == 300


def test_relative_paths_are_those_of_the_first_start(tmp_path, monkeypatch):
    from rewards.shapes.prompts import question_store

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    picture(tmp_path / "pictures" / "a.png")
    question_store(tmp_path / "q.sqlite", ["a red circle"]).close()
    source = write_lines(tmp_path / "r.jsonl", [{"prompt": "a red circle", "candidates": ["a.png", "b.png"]}])
    reward = RewardSettings("tifa", judge="shapes-oracle", sentence_model=None, questions="q.sqlite")
    job = start_rerank(source.name, tmp_path / "job", RerankSettings(reward=reward, images="pictures"))
    monkeypatch.chdir("/")
    run_local(Job(job.folder, job.task))
    assert "pictures/a.png" in job.path_of(next(job.shards())).read_text()


def test_a_job_goes_on_with_another_device(tmp_path):
    source = write_texts(tmp_path, 5)
    settings = {"reward": RewardSettings(kind="function", function=LENGTH.function, device="cuda:7"), "shard_size": 4}
    start_rerank(source, tmp_path / "job", RerankSettings(**settings))
    settings["reward"] = RewardSettings(kind="function", function=LENGTH.function, device="cpu")
    assert start_rerank(source, tmp_path / "job", RerankSettings(**settings)).task.chosen.reward.device == "cpu"


def test_rewards_that_cannot_be_built_are_named(tmp_path):
    source = write_texts(tmp_path, 1)
    for reward, message in (
        (RewardSettings(kind="function", function="nothing"), "package.module:name is needed"),
        (RewardSettings(kind="function", function="tests.none:x"), "cannot be imported"),
        (RewardSettings(kind="tifa", judge="shapes-oracle"), "needs questions"),
        (
            RewardSettings("tifa", judge="shapes-oracle", sentence_model=None, questions="none.sqlite"),
            "none.sqlite",
        ),
    ):
        with pytest.raises(InputError, match=message):
            finish(source, tmp_path / "job", reward=reward)


def test_keys_that_are_not_there_are_named_with_those_that_are(tmp_path):
    picture(tmp_path / "a.png")
    wrong = write_lines(tmp_path / "wrong.jsonl", [{"picture": "a.png", "captions": ["a", "b"]}])
    with pytest.raises(
        InputError, match=r"no column 'candidates' or 'candidate' or 'folder'; it has picture, captions"
    ):
        finish(wrong, tmp_path / "job")
    rows = [{"image": "a.png", "candidates": ["a", "bb"]}, {"image": "a.png", "captions": ["a", "b"]}]
    finish(write_lines(tmp_path / "some.jsonl", [*rows, {"image": "a.png", "candidates": "abc"}]), tmp_path / "some")
    reasons = [problem["reason"] for problem in read_lines(tmp_path / "some" / "problems.jsonl")]
    assert "The row has image, captions" in reasons[0] and "candidates are 'abc'; a list" in reasons[1]
    for empty in ("", "\n\n"):
        (tmp_path / "empty.jsonl").write_text(empty)
        with pytest.raises(InputError, match="has no rows"):
            finish(tmp_path / "empty.jsonl", tmp_path / "empty")
    assert not (tmp_path / "job").exists() and not (tmp_path / "empty").exists()


def test_candidates_that_could_not_be_judged_have_no_rank_and_are_not_counted(tmp_path):
    picture(tmp_path / "a.png")
    rows = [{"image": "a.png", "candidates": texts} for texts in (["what?", "x"], ["what?", "who?"])]
    summary = finish(write_lines(tmp_path / "r.jsonl", rows), tmp_path / "job")
    ranked = read_lines(tmp_path / "job" / "ranked.jsonl")
    assert [[entry["rank"] for entry in row["candidates"]] for row in ranked] == [[1, None], [None, None]]
    assert (summary.items, summary.ranked, summary.candidates, summary.abstained) == (2, 1, 4, 3)
    assert summary.most_frequent_reason == "by_length abstained (3)"


def test_a_folder_with_other_files_and_a_second_process_are_refused(tmp_path):
    source = write_texts(tmp_path, 2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.png").write_text("x")
    with pytest.raises(InputError, match=r"holds photo\.png without manifest\.json"):
        finish(source, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["photo.png"]
    job = start_rerank(source, tmp_path / "job", RerankSettings(LENGTH))
    with pytest.raises(InputError, match="another process is working on"):
        start_rerank(source, tmp_path / "job", RerankSettings(LENGTH))
    job.close()
    finish(source, tmp_path / "job", shard_size=256)


def test_csv_rows_of_one_key_make_an_item(tmp_path):
    picture(tmp_path / "a.png")
    (tmp_path / "r.csv").write_text("key,image,candidate\nk,a.png,xx\nk,a.png,xxx\nm,a.png,x\nm,a.png,xxxx\n")
    finish(tmp_path / "r.csv", tmp_path / "job", group_by="key")
    rows = read_lines(tmp_path / "job" / "ranked.jsonl")
    assert [(row["id"], [entry["index"] for entry in row["candidates"]]) for row in rows] == [
        ("k", [1, 0]),
        ("m", [1, 0]),
    ]


def test_a_combined_reward_ranks_and_one_with_running_scales_is_refused(tmp_path):
    source = write_texts(tmp_path, 3)
    parts = [RewardSettings(kind="function", function=LENGTH.function, weight=2.0), VOWELS]
    combined = RewardSettings(kind="combined", rewards=parts)
    finish(source, tmp_path / "job", reward=combined)
    best = read_lines(tmp_path / "job" / "ranked.jsonl")[0]["candidates"][0]
    assert best["overall"] == 2 * best["parts"]["by_length"] and best["parts"]["by_vowels"] == 0
    with pytest.raises(InputError, match="scores by what it saw before"):
        RerankSettings(RewardSettings(kind="combined", rewards=parts, standardize="running"))


def test_ids_that_differ_by_type_are_two_items_and_keep_their_type(tmp_path):
    image = str(picture(tmp_path / "a.png"))
    ids = [1, "1", "", 2**70, "null", 1]
    rows = [{"id": id, "image": image, "candidates": ["a", "bb" + "x" * n]} for n, id in enumerate(ids)]
    summary = finish(write_lines(tmp_path / "r.jsonl", rows), tmp_path / "job")
    assert [row["id"] for row in read_lines(tmp_path / "job" / "ranked.jsonl")] == [1, "1", 2**70, "null"]
    assert [row["line"] for row in read_lines(tmp_path / "job" / "problems.jsonl")] == [3, 6]
    assert summary.failed == 2


def test_rows_of_keys_that_differ_by_type_make_two_items(tmp_path):
    image = str(picture(tmp_path / "a.png"))
    keys = [7, "7", 7, "7"]
    rows = [{"of": key, "image": image, "candidate": "x" * (n + 1)} for n, key in enumerate(keys)]
    finish(write_lines(tmp_path / "r.jsonl", rows), tmp_path / "job", group_by="of")
    ranked = read_lines(tmp_path / "job" / "ranked.jsonl")
    assert [(row["id"], [c["candidate"] for c in row["candidates"]]) for row in ranked] == [
        (7, ["xxx", "x"]), ("7", ["xxxx", "xx"]),
    ]  # fmt: skip
