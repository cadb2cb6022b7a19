"""Pairs of responses: the file format, preferences in both orders by hand, groups, consistency, missing pictures."""

import json

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from typer.testing import CliRunner

from rewards.build import RewardSettings, build_reward
from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.humans.pairs.preferences import Decisions, by_prompt, by_reward
from rewards.humans.pairs.records import ResponsePair, describe_pairs, group_of, read_pairs
from rewards.humans.pairs.running import decide, missing_pictures
from rewards.humans.pairs.study import PairStudy, compare_pairs
from rewards.judges.base import Judge, Ratings
from rewards.runs.config import load_config
from tests.shared_data import shared_file


def pair(better=0, group="general", image="p.png", responses=("good answer", "bad")):
    return ResponsePair("id", group, image, "what?", responses, better)


def entry(**changes):
    row = {"id": "RLHF-V-1", "query": "what?", "response": ["a", "b"], "image": "p.png", "human_ranking": [0, 1]}
    return {**row, **changes}


def write(path, content):
    path.write_text(json.dumps(content))
    return path


class Likes(Judge):
    """Names the response that holds a word; without it the one shown first, with the given weight of position."""

    name = "likes"

    def __init__(self, word="good", position=0.0):
        self.word, self.position, self.asked = word, position, []

    def rate(self, images, prompts, ratings=("1", "2")):
        self.asked += list(prompts)
        rows = []
        for prompt in prompts:
            first, second = (
                part.split("Response")[0] for part in prompt.split("Response 1: ")[1].split("Response 2: ")
            )
            lead = 0.4 * ((self.word in first) - (self.word in second)) + self.position
            rows.append([0.0, 0.01] if "silent" in prompt else [(0.9 + lead) / 2, (0.9 - lead) / 2])
        table = torch.tensor(rows)
        return Ratings(table, table.sum(1), (None,) * len(rows))


def test_a_file_as_it_is_released(tmp_path):
    rows = [entry(), entry(id="mathverse_7-1", human_ranking=[1, 0]), entry(id="wildvision-battle-2")]
    pairs = read_pairs(write(tmp_path / "data.json", rows), tmp_path)
    assert [(p.group, p.better) for p in pairs] == [("hallucination", 0), ("reasoning", 1), ("general", 0)]
    assert pairs[0].image == str(tmp_path / "p.png") and pairs[0].responses == ("a", "b")
    lines = tmp_path / "data.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_pairs(lines, tmp_path) == pairs
    assert describe_pairs(pairs) == (
        "3 pairs (1 hallucination, 1 reasoning, 1 general); the first response is the better one in 2"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "is dict; a list of pairs is needed"),
        ([], "holds no pairs"),
        ([entry(), "x"], "entry 1: is str"),
        ([entry(response=["a"])], "entry 0: response is no list of two texts"),
        ([entry(human_ranking=[0, 0])], r"entry 0: human_ranking is \[0, 0\]"),
        ([entry(image=None)], "entry 0: image is None"),
    ],
)
def test_a_pair_that_cannot_be_used_is_named(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read_pairs(write(tmp_path / "data.json", content))


def test_the_prompt_is_asked_in_each_order_and_the_margin_is_about_the_same_response():
    judge = Likes()
    found = by_prompt(judge, [pair()])
    assert found.forward.tolist() == pytest.approx([0.4]) and found.backward.tolist() == pytest.approx([0.4])
    first, second = judge.asked
    assert first.index("good answer") < first.index("bad") and second.index("bad") < second.index("good answer")
    biased = by_prompt(Likes(position=0.5), [pair()])
    assert biased.forward.tolist() == pytest.approx([0.9]) and biased.backward.tolist() == pytest.approx([-0.1])


def test_text_in_a_response_is_no_placeholder_and_a_silent_judge_abstains():
    judge = Likes()
    by_prompt(judge, [pair(responses=("{second} {query}", "x"))])
    assert "Response 1: {second} {query}" in judge.asked[0]
    assert np.isnan(by_prompt(judge, [pair(responses=("silent", "x"))]).forward).all()
    with pytest.raises(InputError, match="no place for second"):
        by_prompt(judge, [pair()], template="{query} {first}")


def test_any_reward_prefers_the_response_that_it_scores_higher():
    seen = {}

    def words(completions, question=None, **columns):
        seen["questions"] = question
        return [float(len(text.split())) for text in completions]

    found = by_reward(FunctionReward(words), [pair(), pair(responses=("one", "two words")), pair(responses=("a", "b"))])
    assert found.forward.tolist() == found.backward.tolist() == [1.0, -1.0, 0.0]
    assert seen["questions"] == ["what?"] * 6


def test_accuracy_consistency_and_ties_by_hand():
    pairs = [pair(), pair(), pair(better=1), pair(group="reasoning"), pair(group="reasoning"), pair()]
    forward = np.array([1.0, 1.0, 1.0, 0.0, 1.0, np.nan])
    backward = np.array([1.0, -1.0, -1.0, 0.0, 1.0, 1.0])
    found = compare_pairs(pairs, Decisions(forward, backward), resamples=20)
    # general: right in both; right in one; wrong in one and right in the other -> (1 + 1/2 + 1/2) / 3
    assert found.accuracy["general"].value == pytest.approx(2 / 3)
    # reasoning: a tie in both orders, and right in both
    assert found.accuracy["reasoning"].value == pytest.approx(0.75)
    assert found.accuracy["all"].value == pytest.approx(3.5 / 5)
    assert found.accuracy["macro"].value == pytest.approx((2 / 3 + 0.75) / 2)
    assert found.both_orders["all"].value == pytest.approx(2 / 5)
    assert found.consistency.value == pytest.approx(3 / 5)
    # Shown first: forward of pairs 0, 1, 2 and 4, backward of pairs 1 and 2, half of each tie: 7 of 10 decisions.
    assert found.first_shown.value == pytest.approx((4 + 2 + 1) / 10)
    assert (found.ties, found.abstained, found.pairs) == (2, 1, 5)


def test_a_judge_that_only_sees_position_is_right_half_of_the_time():
    pairs = [pair(responses=("x", "y"), better=n % 2) for n in range(10)]
    found = compare_pairs(pairs, by_prompt(Likes(position=0.5), pairs), resamples=20)
    assert found.accuracy["all"].value == 0.5 and found.both_orders["all"].value == 0.0
    assert found.consistency.value == 0.0 and found.first_shown.value == 1.0


def test_pairs_without_their_picture_abstain_and_are_counted(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "here.png")
    pairs = [pair(image=str(tmp_path / "here.png")), pair(image=str(tmp_path / "gone.png"))]
    missing = missing_pictures(pairs)
    decisions = decide(lambda chosen: by_prompt(Likes(), chosen), pairs, missing)
    assert missing == [1] and np.isnan(decisions.forward).tolist() == [False, True]
    study = PairStudy(pairs, resamples=5)
    study.add("likes", decisions)
    assert study.results["likes"].abstained == 1 and "likes" in study.text()
    with pytest.raises(InputError, match="none of the 1 pictures is there"):
        missing_pictures(pairs[1:])


def test_the_command_compares_a_reward_and_a_judge(tmp_path):
    Image.new("RGB", (32, 32), "red").save(tmp_path / "p.png")
    file = write(tmp_path / "data.json", [entry(), entry(id="mmmu_1", image="gone.png")])
    reward = tmp_path / "words.yaml"
    reward.write_text("reward: {kind: function, function: tests.humans.pairs.test_pairs:count_words}\n")
    arguments = ["pairs", str(file), "--images", str(tmp_path), "--reward", str(reward), "--judge", "shapes-rater"]
    result = CliRunner().invoke(app, [*arguments, "--method", "harmonic", "--resamples", "5", "--json"])
    found = json.loads(result.stdout)
    assert set(found["results"]) == {"words", "HarmonicEval"} and found["results"]["words"]["abstained"] == 1
    assert found["notes"][0].startswith("1 of 2 pictures are missing")
    assert found["results"]["words"]["accuracy"]["hallucination"]["value"] == 0.5
    with pytest.raises(InputError, match="--method best"):
        CliRunner().invoke(app, [*arguments, "--method", "best"], catch_exceptions=False)


@pytest.mark.parametrize(
    "block",
    [
        "{kind: vqascore, judge: shapes-vqa}",
        "{kind: vqascore, judge: shapes-vqa, wording: geneval2}",
        '{kind: rubric, judge: shapes-vqa, soft: true, items: ["is there a red circle?"]}',
    ],
)
def test_vqascore_and_a_rubric_as_preferences(tmp_path, block):
    Image.new("RGB", (32, 32), "red").save(tmp_path / "p.png")
    file = write(tmp_path / "data.json", [entry(response=["a red circle", "two blue squares"])])
    (tmp_path / "own.yaml").write_text(f"reward: {block}\n")
    arguments = [
        "pairs",
        str(file),
        "--images",
        str(tmp_path),
        "--reward",
        str(tmp_path / "own.yaml"),
        "--resamples",
        "5",
    ]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["results"]["own"]
    (pair,) = read_pairs(file, tmp_path)
    reward = build_reward(load_config(RewardSettings, overrides=yaml.safe_load(block)))
    first, second = reward.score([pair.image] * 2, list(pair.responses), inputs=[pair.query] * 2).overall.tolist()
    assert first != second and found["abstained"] == 0
    assert found["accuracy"]["hallucination"]["value"] == float((first > second) == (pair.better == 0))


def count_words(completions, **columns):
    return [float(len(text.split())) for text in completions]


def test_the_released_file():
    pairs = read_pairs(shared_file("vl_rewardbench/data.json"))
    counts = {name: sum(p.group == name for p in pairs) for name in ("general", "hallucination", "reasoning")}
    assert counts == {"general": 183, "hallucination": 749, "reasoning": 318}
    assert sum(p.better == 0 for p in pairs) == 1245 and group_of(pairs[0].id) == "hallucination"
    # A metric that needs no picture: the longer response. Both orders agree, and no group is an exact coin.
    lengths = np.array([len(p.responses[0].split()) - len(p.responses[1].split()) for p in pairs], dtype=float)
    found = compare_pairs(pairs, Decisions(lengths, lengths), resamples=20)
    assert found.consistency.value == 1.0 and found.pairs == 1250
