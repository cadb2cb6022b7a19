"""A policy without training finds what a reward of known faults pays for."""

import json

import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from rewards.audit.search import search_texts
from rewards.audit.variants import TrueText
from rewards.cli.app import app
from rewards.functions import FunctionReward

TEXTS = ["a red dog on a white background", "two blue cats and a bird"]


def rows():
    return [TrueText(Image.new("RGB", (8, 8), (90 * n, 9, 9)), text) for n, text in enumerate(TEXTS)]


def longest(completions, **columns):
    return [float(len(text.split())) for text in completions]


def exact(completions, image, **columns):
    known = {(90 * n, 9, 9): text for n, text in enumerate(TEXTS)}
    return [float(known[picture.getpixel((0, 0))] == text) for picture, text in zip(image, completions)]


def test_climbing_finds_length_and_a_second_judge_says_that_it_is_worse():
    found = search_texts(FunctionReward(longest), rows(), second=FunctionReward(exact), budget=160)
    (climbing,) = found.findings
    assert climbing.accepted.value == 1 and climbing.pairs == 2
    assert all(len(e.variant.split()) > 3 * len(e.truth.split()) for e in climbing.examples)


def test_more_budget_finds_more():
    means = [
        search_texts(FunctionReward(longest), rows(), budget=budget).findings[0].drop.value for budget in (16, 160)
    ]
    assert means[1] < means[0] < 0


def test_a_reward_that_knows_the_truth_yields_nothing():
    assert search_texts(FunctionReward(exact), rows(), budget=64).unsafe(0.0) == []


def test_best_of_n_takes_the_sample_that_the_reward_likes_best():
    def sampler(number):
        return [f"{'word ' * number}of {row}" for row in range(2)]

    found = search_texts(FunctionReward(longest), rows(), sampler=sampler, budget=9)
    best = next(f for f in found.findings if f.kind == "best of 9")
    assert sorted(e.variant for e in best.examples) == [f"{'word ' * 8}of {row}" for row in range(2)]


def test_the_same_seed_finds_the_same():
    first, again = (search_texts(FunctionReward(longest), rows(), budget=32, seed=2).record() for _ in range(2))
    assert first == again


def test_what_abstains_is_never_found():
    def some(completions, **columns):
        return [None if len(text) > 40 else float(len(text)) for text in completions]

    found = search_texts(FunctionReward(some), rows(), budget=64).findings[0]
    assert found.pairs == 2 and all(len(e.variant) <= 40 for e in found.examples)


@pytest.mark.parametrize("budget", [1, 16])
def test_small_budgets_still_find_a_neighbour(budget):
    assert search_texts(FunctionReward(longest), rows(), budget=budget).findings[0].pairs == 2


def test_command(tmp_path):
    for number, row in enumerate(rows()):
        row.image.save(tmp_path / f"{number}.png")
        with open(tmp_path / "rows.jsonl", "a") as file:
            file.write(json.dumps({"image": f"{number}.png", "text": row.text}) + "\n")
    home = "tests.audit.test_search"
    config = tmp_path / "reward.yaml"
    config.write_text(yaml.safe_dump({"reward": {"kind": "function", "function": f"{home}:longest"}}))
    command = ["audit", "search", "--config", str(config), "--data", str(tmp_path / "rows.jsonl"), "--budget", "32"]
    result = CliRunner().invoke(app, [*command, "--second", f"{home}:exact"])
    assert result.exit_code == 0 and "hill climbing (100%)" in result.output, result.output
    assert f"{TEXTS[1]}  ->  " in result.output
