"""Candidates: reproducible by their seeds whatever the batch, drawn from the model's own distribution, resumable."""

import datetime
import json

import datasets
import pytest
import torch
from PIL import Image

from rewards.build import RewardSettings
from rewards.errors import InputError
from rewards.generation.texts import SeededNoise
from rewards.rerank.generate import candidate_seed, generate
from rewards.rerank.generate_settings import GenerateSettings
from rewards.rerank.run import BestOfNSettings, run_best_of_n
from rewards.rerank.sample_texts import text_sampler
from rewards.rerank.settings import RerankSettings
from rewards.runs.locks import locked
from tests import tiny_models
from tests.trainers.diffusion import tiny_diffusion

from .functions import read_lines, write_lines


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"), sharpen=1.0)


@pytest.fixture
def prompts(tmp_path):
    for n in range(5):
        tiny_models.picture(n).save(tmp_path / f"{n}.png")
    rows = [{"id": f"p{n}", "image": f"{n}.png", "prompt": "what is it", "shelf": n} for n in range(5)]
    return write_lines(tmp_path / "prompts.jsonl", rows)


def texts(llava, prompts, **changes):
    return GenerateSettings(**{"model": llava, "prompts": str(prompts), "n": 3, "max_new_tokens": 6, **changes})


def test_gumbel_noise_samples_the_softmax():
    scores = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).repeat(4000, 1)
    chosen = SeededNoise(range(4000), temperature=0.7)(None, scores).argmax(-1)
    expected = (scores[0] / 0.7).softmax(-1)
    found = torch.bincount(chosen, minlength=4) / 4000
    assert (found - expected).abs().max() < 4 * (0.25 / 4000) ** 0.5


def test_candidates_have_their_seeds_and_their_rows_columns(tmp_path, llava, prompts):
    rows = read_lines(generate(texts(llava, prompts), tmp_path / "run"))
    assert [row["id"] for row in rows] == [f"p{n}" for n in range(5)] and rows[3]["shelf"] == 3
    assert all(len(row["candidates"]) == len(set(row["seeds"])) == 3 for row in rows)
    assert rows[1]["seeds"][2] == candidate_seed(0, "p1", 2)
    assert len({text for row in rows for text in row["candidates"]}) > 8


@pytest.mark.parametrize("changes", [{"batch_size": 1}, {"batch_size": 4, "shard_size": 2}])
def test_batches_and_shards_do_not_change_a_candidate(tmp_path, llava, prompts, changes):
    expected = generate(texts(llava, prompts), tmp_path / "one").read_text()
    assert generate(texts(llava, prompts, **changes), tmp_path / "two").read_text() == expected


def test_columns_of_parquet_that_json_lacks_travel_as_text(tmp_path, llava, prompts):
    rows = [{**row, "when": datetime.date(2026, 1, row["shelf"] + 1)} for row in read_lines(prompts)]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "p.parquet")
    made = read_lines(generate(texts(llava, tmp_path / "p.parquet", limit=2, n=1), tmp_path / "run"))
    assert [row["when"][:10] for row in made] == ["2026-01-01", "2026-01-02"]


def test_one_candidate_can_be_made_again_from_its_seed(tmp_path, llava, prompts):
    row = read_lines(generate(texts(llava, prompts), tmp_path / "run"))[2]
    sample = text_sampler(texts(llava, prompts), llava)
    assert sample([row], [row["seeds"][1]]) == [row["candidates"][1]]


def test_another_seed_gives_other_candidates_and_temperature_zero_the_same(tmp_path, llava, prompts):
    a, b = (read_lines(generate(texts(llava, prompts, seed=s), tmp_path / str(s))) for s in (0, 1))
    assert a[0]["candidates"] != b[0]["candidates"]
    greedy = read_lines(generate(texts(llava, prompts, temperature=0), tmp_path / "greedy"))
    assert all(len(set(row["candidates"])) == 1 for row in greedy)


def test_generation_resumes_and_refuses_other_settings(tmp_path, llava, prompts):
    path = generate(texts(llava, prompts, shard_size=2), tmp_path / "run")
    whole = path.read_text()
    (tmp_path / "run" / "shards" / "000001.jsonl").unlink()
    kept = (tmp_path / "run" / "shards" / "000000.jsonl").stat().st_mtime_ns
    path.unlink()
    assert generate(texts(llava, prompts, shard_size=2), tmp_path / "run").read_text() == whole
    assert (tmp_path / "run" / "shards" / "000000.jsonl").stat().st_mtime_ns == kept
    with pytest.raises(InputError, match=r"settings\.temperature was 1\.0 and is now 0\.5"):
        generate(texts(llava, prompts, shard_size=2, temperature=0.5), tmp_path / "run")


def test_pictures_are_reproducible_by_seed_whatever_their_batch(tmp_path):
    model = tmp_path / "sd"
    tiny_diffusion.stable_diffusion().save_pretrained(model)
    prompts = write_lines(tmp_path / "p.jsonl", [{"id": "a/b", "prompt": "red"}, {"prompt": "blue circle"}])
    common = {"model": str(model), "prompts": str(prompts), "kind": "pictures", "n": 2, "num_inference_steps": 2}
    one, two = (
        read_lines(generate(GenerateSettings(**common, batch_size=size), tmp_path / str(size))) for size in (1, 3)
    )
    assert [row["id"] for row in one] == ["a/b", "line-2"]
    for row, other in zip(one, two, strict=True):
        assert row["seeds"] == other["seeds"]
        for path, twin in zip(row["candidates"], other["candidates"], strict=True):
            difference = torch.tensor(list(Image.open(path).tobytes())) - torch.tensor(list(Image.open(twin).tobytes()))
            assert difference.abs().max() <= 1


@pytest.mark.parametrize(
    ("row", "kind", "message"),
    [
        ({"prompt": "x"}, "texts", "prompt 'line-1' has no picture"),
        ({"image": "none.png"}, "texts", "prompt 'line-1' lacks its picture"),
        ({"prompt": " "}, "pictures", "prompt 'line-1' has no text to draw"),
    ],
)
def test_prompts_that_cannot_be_used_are_named(tmp_path, llava, row, kind, message, monkeypatch):
    monkeypatch.setattr("rewards.rerank.generate._sampler", lambda settings: None)
    settings = GenerateSettings(model=llava, prompts=str(write_lines(tmp_path / "p.jsonl", [row])), kind=kind)
    with pytest.raises(InputError, match=message):
        generate(settings, tmp_path / "run")


def test_unknown_models_and_settings_out_of_range_are_refused(tmp_path, prompts):
    with pytest.raises(InputError, match="cannot be loaded"):
        generate(GenerateSettings(model=str(tmp_path), prompts=str(prompts)), tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        generate(GenerateSettings(model=str(tmp_path), prompts=str(tmp_path / "nowhere.jsonl")), tmp_path / "run")
    assert not (tmp_path / "run").exists()  # so that the next try is no change of settings
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "manifest.json").write_text("")
    with pytest.raises(InputError, match="was not written by a job of best-of-n"):
        generate(GenerateSettings(prompts=str(prompts), model="shapes-captioner"), tmp_path / "cut")
    with pytest.raises(InputError, match="limit is -1"):
        GenerateSettings("shapes", limit=-1)
    with pytest.raises(InputError, match="n is 0"):
        GenerateSettings("shapes", n=0)
    with pytest.raises(InputError, match="temperature is -1"):
        GenerateSettings("shapes", temperature=-1)


def test_generate_and_rank_in_one_run_and_again(tmp_path, llava, prompts):
    settings = BestOfNSettings(
        generate=texts(llava, prompts),
        rerank=RerankSettings(reward=RewardSettings(kind="function", function="tests.rerank.functions:by_length")),
        out=str(tmp_path / "run"),
    )
    summary = run_best_of_n(settings)
    assert summary.items == 5 and summary.candidates == 15 and summary.mean_best >= summary.mean_first
    assert run_best_of_n(settings) == summary
    row = json.loads((tmp_path / "run" / "ranking" / "ranked.jsonl").read_text().splitlines()[0])
    assert row["id"] == "p0" and [c["overall"] for c in row["candidates"]] == sorted(
        (c["overall"] for c in row["candidates"]), reverse=True
    )
    config = (tmp_path / "run" / "config.yaml").read_text()
    settings.rerank.shard_size = 7
    with pytest.raises(InputError, match=r"settings\.shard_size was 256 and is now 7"):
        run_best_of_n(settings)
    assert (tmp_path / "run" / "config.yaml").read_text() == config


def test_prompts_of_one_id_are_refused(tmp_path, llava):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    rows = [{"id": "same", "image": "a.png", "prompt": text} for text in ("one", "two")]
    settings = GenerateSettings(str(write_lines(tmp_path / "p.jsonl", rows)), model=llava)
    with pytest.raises(InputError, match="line 2: id 'same' is also on line 1"):
        generate(settings, tmp_path / "run")


def test_a_row_named_as_another_rows_place_is_refused(tmp_path, llava):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for ids, name in ((["line-2", None], "line-2"), ([1, "1"], "1")):
        rows = [{"image": "a.png", "prompt": "p"} | ({} if id is None else {"id": id}) for id in ids]
        settings = GenerateSettings(str(write_lines(tmp_path / "p.jsonl", rows)), model=llava)
        with pytest.raises(InputError, match=f"line 2: id '{name}' is also on line 1"):
            generate(settings, tmp_path / "run")


@pytest.mark.parametrize("inside", ["shards/000000.jsonl", "candidates.jsonl", "images/mine.png"])
def test_a_folder_of_something_else_is_left_alone(tmp_path, llava, prompts, inside):
    foreign = tmp_path / "run" / inside
    foreign.parent.mkdir(parents=True)
    foreign.write_text('{"id": "p0", "candidates": ["not sampled"]}\n')
    with pytest.raises(InputError, match=f"holds {inside.split('/')[0]} without manifest"):
        generate(texts(llava, prompts), tmp_path / "run")
    assert "not sampled" in foreign.read_text()


def test_a_second_process_in_the_same_folder_is_refused(tmp_path, llava, prompts):
    generate(texts(llava, prompts), tmp_path / "run")
    held = locked(tmp_path / "run")
    with pytest.raises(InputError, match="another process is working on"):
        generate(texts(llava, prompts), tmp_path / "run")
    held.release()
    assert generate(texts(llava, prompts), tmp_path / "run").exists()


def test_a_config_of_the_users_own_is_not_replaced(tmp_path, llava, prompts):
    (tmp_path / "config.yaml").write_text("mine: 1\n")
    reward = RewardSettings(kind="function", function="tests.rerank.functions:by_length")
    settings = BestOfNSettings(texts(llava, prompts), RerankSettings(reward=reward), out=str(tmp_path))
    with pytest.raises(InputError, match=r"holds a config.yaml without candidates"):
        run_best_of_n(settings)
    assert (tmp_path / "config.yaml").read_text() == "mine: 1\n" and not (tmp_path / "candidates").exists()
