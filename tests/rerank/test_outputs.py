"""Outputs: top, pairs and sft as datasets reads them, gain curves, and the command with its exit status."""

import json

import datasets
import pytest
import yaml
from typer.testing import CliRunner

from rewards.build import RewardSettings
from rewards.cli.app import app as whole_app
from rewards.errors import InputError
from rewards.jobs.job import run_local
from rewards.judges.loading import load_judge
from rewards.rerank.outputs import OutputSettings, write_outputs
from rewards.rerank.settings import RerankSettings
from rewards.rerank.task import start_rerank
from rewards.tifa.vqascore import VQAScore

from .functions import picture, read_lines, write_lines, write_texts

LENGTH = RewardSettings(kind="function", function="tests.rerank.functions:by_length")


def finish(source, folder, outputs, **settings):
    job = start_rerank(source, folder, RerankSettings(**{"reward": LENGTH, "shard_size": 4, **settings}))
    run_local(job)
    return write_outputs(job, outputs)


def test_top_keeps_the_best(tmp_path):
    finish(write_texts(tmp_path, 3, candidates=4), tmp_path / "job", OutputSettings(top=2))
    assert [[c["rank"] for c in row["candidates"]] for row in read_lines(tmp_path / "job" / "ranked.jsonl")] == [
        [1, 2]
    ] * 3


def test_pairs_of_texts_are_best_against_worst_with_a_margin(tmp_path):
    picture(tmp_path / "a.png", (1, 2, 3))
    rows = [
        {"image": "a.png", "candidates": ["xx", "x", "xxxx", "?"], "question": "what?"},
        {"image": "a.png", "candidates": ["xx", "x"], "prompt": "say it"},
        {"image": "a.png", "candidates": ["x", "x"]},
        {"image": "a.png", "candidates": ["x", "?"]},
        {"image": "a.png", "candidates": ["xxxx", "x"]},
    ]
    source = write_lines(tmp_path / "r.jsonl", rows)
    summary = finish(source, tmp_path / "job", OutputSettings(pairs=True, sft=True, min_margin=2))
    pairs = datasets.Dataset.from_parquet(str(tmp_path / "job" / "pairs.parquet"), cache_dir=str(tmp_path))
    assert summary.pairs == len(pairs) == 2
    assert pairs[0]["prompt"] == [{"role": "user", "content": "what?"}]
    assert (pairs[0]["chosen"][0]["content"], pairs[0]["rejected"][0]["content"]) == ("xxxx", "x")
    assert (
        pairs[0]["images"][0].getpixel((0, 0)) == (1, 2, 3)
        and pairs[1]["prompt"][0]["content"] == "Describe the image."
    )
    best = datasets.Dataset.from_parquet(str(tmp_path / "job" / "sft.parquet"), cache_dir=str(tmp_path))
    assert [row["completion"][0]["content"] for row in best] == ["xxxx", "xx", "x", "x", "xxxx"]
    assert best[1]["prompt"][0]["content"] == "say it"


def test_pairs_and_sft_of_pictures(tmp_path):
    for name, red in (("a", 10), ("b", 250)):
        picture(tmp_path / f"{name}.png", (red, 0, 0))
    source = write_lines(tmp_path / "r.jsonl", [{"prompt": "red", "candidates": ["a.png", "b.png"]}])
    colour = RewardSettings(kind="function", function="tests.rerank.functions:by_colour")
    finish(source, tmp_path / "job", OutputSettings(pairs=True, sft=True), reward=colour)
    pair = datasets.Dataset.from_parquet(str(tmp_path / "job" / "pairs.parquet"), cache_dir=str(tmp_path))[0]
    assert pair["chosen"].getpixel((0, 0))[0] == 250 and pair["rejected"].getpixel((0, 0))[0] == 10
    best = datasets.Dataset.from_parquet(str(tmp_path / "job" / "sft.parquet"), cache_dir=str(tmp_path))[0]
    assert best["text"] == "red" and best["image"].getpixel((0, 0))[0] == 250


def test_no_pair_writes_no_file(tmp_path):
    finish(write_texts(tmp_path, 2), tmp_path / "job", OutputSettings(pairs=True, min_margin=99))
    assert not (tmp_path / "job" / "pairs.parquet").exists()


def test_gain_with_the_audit_beside(tmp_path):
    vowels = RewardSettings(kind="function", function="tests.rerank.functions:by_vowels")
    picture(tmp_path / "a.png")
    rows = [
        {"image": "a.png", "candidates": ["aaaa", "xxxxx", "ee"]},
        {"image": "a.png", "candidates": ["a", "bb", "ooo"]},
    ]
    finish(write_lines(tmp_path / "r.jsonl", rows), tmp_path / "job", OutputSettings(gain=True), audit=vowels)
    content = json.loads((tmp_path / "job" / "gain.json").read_text())
    assert content["k"] == [1, 2, 3] and content["items"] == 2
    assert [point["value"] for point in content["curves"]["overall"]] == pytest.approx(
        [17 / 6, (14 / 3 + 8 / 3) / 2, 4.0]
    )
    assert content["curves"]["audit"][2]["value"] == pytest.approx(1.5)
    assert (tmp_path / "job" / "gain.png").stat().st_size > 5000


def test_outputs_out_of_range_are_refused():
    with pytest.raises(InputError, match="top is 0"):
        OutputSettings(top=0)
    for margin in (-1, float("nan")):
        with pytest.raises(InputError, match=f"min_margin is {margin}"):
            OutputSettings(min_margin=margin)


@pytest.fixture
def app():
    import typer

    from rewards.cli.rerank import rerank

    app = typer.Typer()
    app.command()(rerank)
    return app


def test_command_with_yaml_and_overrides_and_its_exit_status(tmp_path, app):
    source = write_texts(tmp_path, 5)
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({"reward": {"kind": "function", "function": LENGTH.function}}))
    arguments = [str(source), "shard_size=2", "--config", str(config), "--out", str(tmp_path / "job")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ranked"] == 5
    write_lines(tmp_path / "bad.jsonl", [*read_lines(source), "{"])
    arguments = [str(tmp_path / "bad.jsonl"), "--config", str(config), "--out", str(tmp_path / "job2")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 3 and "1 problems are reported in" in result.stderr
    assert f"; the first: {tmp_path / 'bad.jsonl'}, line 6: " in result.stderr
    assert json.loads(result.stdout)["ranked"] == 5


def test_command_refuses_unknown_engines_and_keys(tmp_path, app):
    source = write_texts(tmp_path, 1)
    for words, message in (
        (["--engine", "spark"], "engine is 'spark'; local or ray is needed"),
        (["--actors", "2"], "actors is 2, which needs engine ray"),
        (["shard_sise=2"], "did you mean 'shard_size'"),
    ):
        result = CliRunner().invoke(app, [str(source), "--out", str(tmp_path / "job"), *words])
        assert isinstance(result.exception, InputError) and message in str(result.exception)
        assert not (tmp_path / "job").exists()


def test_best_of_n_command_takes_an_engine(tmp_path):
    import typer

    from rewards.cli.rerank import best_of_n

    app = typer.Typer()
    app.command()(best_of_n)
    result = CliRunner().invoke(
        app, ["--out", str(tmp_path / "run"), "--prompts", "shapes", "--engine", "local", "--actors", "2"]
    )
    assert isinstance(result.exception, InputError) and "actors is 2" in str(result.exception)
    words = ["--prompts", "shapes", "generate.n=2", "generate.limit=2", "generate.max_new_tokens=4"]
    reward = ["rerank.reward.kind=function", f"rerank.reward.function={LENGTH.function}"]
    result = CliRunner().invoke(app, [*words, *reward, "--out", str(tmp_path / "run"), "--engine", "local"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["candidates"] == 4


@pytest.mark.parametrize("wording", ["vqascore", "geneval2"])
def test_best_of_n_pictures_by_vqascore(tmp_path, wording):
    words = ["generate.kind=pictures", "generate.n=3", "generate.limit=2", "generate.num_inference_steps=2"]
    reward = ["rerank.reward.kind=vqascore", "rerank.reward.judge=shapes-vqa", f"rerank.reward.wording={wording}"]
    audit = ["rerank.audit.kind=tifa", "rerank.audit.judge=shapes-oracle", "rerank.audit.sentence_model=null"]
    arguments = ["best-of-n", "--prompts", "shapes", *words, *reward, *audit, "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(whole_app, arguments)
    assert result.exit_code == 0, result.output
    ranked = read_lines(tmp_path / "run" / "ranking" / "ranked.jsonl")
    assert [len(row["candidates"]) for row in ranked] == [3, 3]
    vqascore = VQAScore(load_judge("shapes-vqa"), wording)
    for row in ranked:
        scores = [candidate["overall"] for candidate in row["candidates"]]
        assert scores == sorted(scores, reverse=True) and len(set(scores)) == 3 and 0 < min(scores) <= max(scores) < 1
        pictures = [candidate["candidate"] for candidate in row["candidates"]]
        found = vqascore.score(pictures, [row["prompt"]] * 3).overall.tolist()
        assert found == pytest.approx(scores, abs=1e-6)


def test_the_shapes_world_is_chosen_by_name_only(tmp_path, app):
    import typer

    from rewards.cli.rerank import best_of_n

    source = write_texts(tmp_path, 1)
    result = CliRunner().invoke(app, [str(source), "--out", str(tmp_path / "job")])
    assert isinstance(result.exception, InputError) and "needs a judge" in str(result.exception)
    both = typer.Typer()
    both.command()(best_of_n)
    for words, message in (
        ([], "prompts"),
        (["--prompts", str(source)], "no model is named"),
        (["--prompts", str(source), "--model", "shapes-captioner"], "needs a judge"),
    ):
        result = CliRunner().invoke(both, [*words, "--out", str(tmp_path / "run")])
        assert isinstance(result.exception, InputError) and message in str(result.exception)
    assert not (tmp_path / "job").exists() and not (tmp_path / "run").exists()
    words = ["--prompts", "shapes", "generate.n=2", "generate.limit=1", "generate.max_new_tokens=4"]
    assert CliRunner().invoke(both, [*words, "--out", str(tmp_path / "run")]).exit_code in (0, 3)
