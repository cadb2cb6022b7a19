"""The paper's order of prompt and text, and its "Why?" after the overall score."""

import re

import pytest
import torch
from PIL import Image

from rewards.build import RewardSettings, build_reward
from rewards.errors import InputError
from rewards.harmonic.criteria import CRITERIA, TASKS, builtin_prompt
from rewards.harmonic.reward import HarmonicEval
from rewards.judges.base import Judge, Ratings
from tests import tiny_models

RED = Image.new("RGB", (8, 8), (200, 10, 10))


class Asked(Judge):
    """Rates everything 4, and keeps what it was asked."""

    name = "asked"

    def __init__(self) -> None:
        self.rated: list[str] = []
        self.explained: list[tuple[str, str]] = []

    def rate(self, images, prompts, ratings=("1", "2", "3", "4", "5")):
        self.rated += prompts
        probabilities = torch.tensor([[0.0, 0.0, 0.1, 0.8, 0.1]] * len(prompts))
        return Ratings(probabilities, probabilities.sum(-1), (None,) * len(prompts))

    def explain(self, images, prompts, ratings):
        self.explained += zip(prompts, ratings, strict=True)
        return [f"because {rating}" for rating in ratings]


@pytest.mark.parametrize("task", TASKS)
def test_the_papers_order_ends_with_the_text(task):
    for criterion in CRITERIA:
        paper, shared = (builtin_prompt(task, criterion, order) for order in ("paper", "shared"))
        assert paper.endswith("{text}") and paper.count("{text}") == 1
        assert paper.count("{input}") == shared.count("{input}") == TASKS[task].needs_input
        assert paper.index(f"Criterion: {criterion}") < paper.index("{text}")
        levels = [re.findall(r"^\d - .*", template, re.MULTILINE) for template in (paper, shared)]
        assert levels[0] == levels[1] and len(levels[0]) == 5
        assert "Answer with one number from 1 to 5" in paper


def test_the_judge_is_asked_in_the_papers_order():
    judge = Asked()
    reward = HarmonicEval(judge, order="paper")
    assert reward.score([RED], ["a red dot"]).overall.item() == pytest.approx(4.0)
    assert len(judge.rated) == 5 and all(prompt.endswith("Caption:\na red dot") for prompt in judge.rated)
    assert reward.prompt_hash != HarmonicEval(judge).prompt_hash  # so that runs and caches tell them apart


def test_a_decoder_rates_in_the_papers_order(tmp_path):
    folder = tiny_models.save("qwen2_5_vl", tmp_path / "m")
    paper, shared = (
        build_reward(RewardSettings(judge=folder, order=order, min_rating_mass=0.0)) for order in ("paper", "shared")
    )
    images, texts = [tiny_models.picture(0)] * 2, ["a red circle", "blue"]
    together = paper.score(images, texts).overall
    assert together[1].item() == pytest.approx(paper.score(images[1:], texts[1:]).overall.item(), abs=1e-5)
    assert not torch.allclose(together, shared.score(images, texts).overall, atol=1e-6)


def test_order_is_of_the_builtin_prompts():
    with pytest.raises(InputError, match="order is 'random'"):
        HarmonicEval(Asked(), order="random")
    with pytest.raises(InputError, match="prompts="):
        HarmonicEval(Asked(), prompts={"wit": "{text}"}, order="paper")
    beside = Asked()
    beside.prompts = {"captioning": {"fluency": "{text}"}}
    with pytest.raises(InputError, match="beside the judge"):
        HarmonicEval(beside, order="paper")


def test_why_follows_each_rating_or_the_overall_score():
    judge = Asked()
    each = HarmonicEval(judge, explain=True).score([RED], ["a red dot"])
    assert each.details[0]["explanations"] == dict.fromkeys(CRITERIA, "because 4")
    assert [rating for _, rating in judge.explained] == ["4"] * 5
    judge.explained.clear()
    overall = HarmonicEval(judge, explain="overall").score([RED, None], ["a red dot", "lost"])
    assert [details.get("explanation") for details in overall.details] == ["because 4.00", None]
    ((prompt, said),) = judge.explained
    assert said == "4.00" and prompt.count("a red dot") == 1
    assert [prompt.count(f"Criterion: {criterion}") for criterion in CRITERIA] == [1] * 5
    with pytest.raises(InputError, match="explain is 'loud'"):
        HarmonicEval(judge, explain="loud")
