"""A judge is asked each question once, in every trainer; a call that fails costs the samples that it was about."""

from collections import Counter

import pytest

from rewards.judges.decoders.vlm import VLMJudge
from rewards.runs.config import load_config
from rewards.runs.evaluations import EvaluationLog
from rewards.runs.metrics import read_metrics
from rewards.trainers.language.run import run_language
from rewards.trainers.language.settings import LanguageRunConfig
from tests import tiny_models
from tests.trainers.language.text_world import audit, run_settings

HELD_OUT, CRITERIA, TRAINING = 4, 2, 4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"))


@pytest.fixture
def calls(monkeypatch):
    """What the judge is asked, a list of (picture, prompt) a call; calls whose number is in `broken` fail."""
    made, rate = [], VLMJudge.rate

    def counted(self, images, prompts, *args):
        made.append([(image.tobytes(), prompt) for image, prompt in zip(images, prompts, strict=True)])
        if len(made) - 1 in made_broken:
            raise RuntimeError("the judge is away")
        return rate(self, images, prompts, *args)

    made_broken = set()
    monkeypatch.setattr(VLMJudge, "rate", counted)
    return made, made_broken


def train(algorithm, checkpoint, folder):
    settings = run_settings(checkpoint, checkpoint, folder, max_steps=1) | {"algorithm": algorithm}
    settings["evaluation"] |= {"batch_size": 2, "audits": [audit("evenness")]}
    return run_language(load_config(LanguageRunConfig, overrides=settings))


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "ppo"])
def test_an_evaluation_asks_each_question_once(algorithm, checkpoint, tmp_path, calls):
    made, _ = calls
    train(algorithm, checkpoint, tmp_path / "run")
    sizes = [2 * CRITERIA] * 2 + [TRAINING * CRITERIA] + [2 * CRITERIA] * 2  # before, a step, after
    assert [len(call) for call in made] == sizes
    for evaluation in (made[:2], made[3:]):
        asked = Counter(question for call in evaluation for question in call)
        assert len(asked) == HELD_OUT * CRITERIA and set(asked.values()) == {1}
    rows = [row for row in read_metrics(tmp_path / "run") if "eval/rewards/HarmonicEval/overall/count" in row]
    assert [row["eval/rewards/HarmonicEval/overall/count"] for row in rows] == [HELD_OUT, HELD_OUT]


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_judge_that_fails_once_in_an_evaluation_costs_only_its_samples(algorithm, checkpoint, tmp_path, calls):
    made, broken = calls
    broken.add(1)
    train(algorithm, checkpoint, tmp_path / "run")
    before, after = EvaluationLog(tmp_path / "run").read()
    reasons = [sample.judgment.abstained for sample in before.samples]
    assert reasons[:2] == [None, None] and all("the judge is away" in reason for reason in reasons[2:])
    assert [sample.judgment.overall is None for sample in after.samples] == [False] * HELD_OUT
    assert all(sample.audits["evenness"].overall is not None for sample in before.samples)
    assert len(made) == 5  # nothing is asked again
