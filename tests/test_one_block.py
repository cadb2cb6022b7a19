"""One reward block, copied unchanged, in every config and on every command line: the same reward, the same numbers."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from rewards.build import RewardSettings, build_reward
from rewards.cli.app import app
from rewards.errors import InputError
from rewards.jobs.score import ScoreSettings
from rewards.jobs.tifa_bench import TifaBenchSettings
from rewards.judges.elsewhere.server import build_app
from rewards.judges.loading import load_judge
from rewards.rerank.settings import RerankSettings
from rewards.runs.config import load_config
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.trainers.diffusion.settings import DiffusionRunConfig
from rewards.trainers.language.settings import LanguageRunConfig
from tests.judges.elsewhere.test_serve import Served

OTHERS = {  # what each config needs beside the block
    ScoreSettings: {},
    RerankSettings: {},
    TifaBenchSettings: {},
    DiffusionRunConfig: {},
    LanguageRunConfig: {"policy": {"path": "shapes-captioner"}, "data": {"source": "s:f", "train": {}, "held_out": {}}},
}


CHECKLISTS = [
    ["is there a circle?", {"item": "is there a star?", "kind": "pitfall", "weight": 2}],
    json.dumps([{"item": "what color is it?", "choices": ["red", "green", "blue"]}]),
]


def words_of_the_text(completions, **columns):
    return [float(len(text.split())) for text in completions]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    scenes = sample_scenes("test", 6, seed=3)
    texts = [str(describe(scene)) for scene in scenes]
    for number, scene in enumerate(scenes):
        render(scene).save(folder / f"{number}.png")
    rows = [
        {
            "id": n, "image": f"{n}.png", "text": text, "prompt": text, "candidates": [text, texts[n - 1]],
            "rubric": CHECKLISTS[n % 2],
        }
        for n, text in enumerate(texts)
    ]  # fmt: skip
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pictures = [
        {"id": n, "prompt": text, "candidates": [f"{n}.png", f"{n - 1 if n else 5}.png"]}
        for n, text in enumerate(texts)
    ]
    (folder / "pictures.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pictures))
    question_store(folder / "questions.sqlite", texts)
    served = Served(build_app({name: load_judge(name) for name in ("shapes-rater", "shapes-vqa")}))
    yield folder, texts, served.url
    served.stop()


def block(kind, folder, url):
    return {
        "harmonic": {"judge": "shapes-rater", "criteria": ["fluency", "correctness"], "gamma": 0.5, "normalize": False},
        "server": {"judge": f"{url}/shapes-rater", "min_rating_mass": 0.2},
        "function": {"kind": "function", "function": "tests.test_one_block:words_of_the_text"},
        "tifa": {"kind": "tifa", "judge": "shapes-vqa", "soft": True, "questions": str(folder / "questions.sqlite")},
        "vqascore": {"kind": "vqascore", "judge": "shapes-vqa"},
        "vqascore_geneval2": {"kind": "vqascore", "judge": f"{url}/shapes-vqa", "wording": "geneval2"},
        "rubric": {"kind": "rubric", "judge": "shapes-vqa", "soft": True, "weighting": "harmonic"},
        "tifa_mass": {
            "kind": "tifa", "judge": f"{url}/shapes-vqa", "soft": "mass", "aggregate": "geometric",
            "questions": str(folder / "questions.sqlite"),
        },
        "tifa_server": {
            "kind": "tifa", "judge": f"{url}/shapes-vqa", "answer": "choices",
            "questions": str(folder / "questions.sqlite"),
        },
    }[kind]  # fmt: skip


KINDS = [
    "harmonic", "server", "function", "tifa", "tifa_server", "tifa_mass", "vqascore", "vqascore_geneval2", "rubric",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_config_reads_the_block_as_the_same_reward(kind, world, tmp_path):
    folder, texts, url = world
    given = block(kind, folder, url)
    expected = load_config(RewardSettings, overrides=given)
    identities = []
    for number, (config, others) in enumerate(OTHERS.items()):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump({"reward": given, **others}))
        if config is TifaBenchSettings and given.get("kind") != "tifa":
            with pytest.raises(
                InputError, match="asks TIFA's questions"
            ):  # a benchmark of questions has no other reward
                load_config(config, path)
            continue
        settings = load_config(config, path).reward
        assert settings == expected, config.__name__
        identities.append(build_reward(settings).identity(texts))
    assert all(identity == identities[0] for identity in identities)


@pytest.mark.parametrize("kind", KINDS)
def test_commands_print_what_python_computes(kind, world, tmp_path):
    folder, texts, url = world
    given = block(kind, folder, url)
    config = tmp_path / "block.yaml"
    config.write_text(yaml.safe_dump({"reward": given}))
    pictures = [str(folder / f"{number}.png") for number in range(len(texts))]
    reward = build_reward(load_config(RewardSettings, config, block="reward"))
    expected = reward.score(pictures, texts, rubric=[CHECKLISTS[n % 2] for n in range(len(texts))])
    scored = tmp_path / "scores.jsonl"
    run("score", "reward", folder / "rows.jsonl", "--config", config, "--out", scored)
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    found = {row["id"]: row["overall"] for row in rows if "id" in row}
    assert [found[n] for n in range(len(texts))] == pytest.approx(expected.overall.tolist(), abs=1e-6)

    job = tmp_path / "job"
    source = "pictures.jsonl" if kind.startswith(("tifa", "vqascore")) else "rows.jsonl"
    run("rerank", folder / source, "--config", config, "--out", job)
    ranked = [json.loads(line) for line in (job / "ranked.jsonl").read_text().splitlines()]
    first = {row["id"]: next(c["overall"] for c in row["candidates"] if c["index"] == 0) for row in ranked}
    assert [first[n] if n in first else first[str(n)] for n in range(len(texts))] == pytest.approx(
        expected.overall.tolist(), abs=1e-6
    )


def test_the_benchmark_asks_as_the_reward_does(world, tmp_path):
    folder, texts, url = world
    given = {**block("tifa", folder, url), "soft": False, "answer": "choices"}
    config = tmp_path / "block.yaml"
    config.write_text(yaml.safe_dump({"reward": given}))
    expected = build_reward(load_config(RewardSettings, config, block="reward"))
    pictures = {text: str(folder / f"{number}.png") for number, text in enumerate(texts)}
    ids = {question.id: question.prompt for question in expected.questions}
    (tmp_path / "images.json").write_text(json.dumps({str(id): pictures[prompt] for id, prompt in ids.items()}))
    run("tifa-bench", "--config", config, "--images", tmp_path / "images.json", "--output", tmp_path / "result.json")
    result = json.loads((tmp_path / "result.json").read_text())
    scores = expected.score(list(pictures.values()), list(pictures))
    assert result["tifa_average"] == pytest.approx(float(scores.overall.double().mean()), abs=1e-6)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
