"""A logged evaluation asks each question once, and its samples show the answers of that pass."""

import pytest
import torch

from rewards import Question, QuestionStore
from rewards.judges.base import Judge
from rewards.runs.samples import read_samples
from rewards.tifa.reward import TIFA
from rewards.trainers.diffusion.ddpo import DDPOTrainer
from tests.trainers.diffusion.test_trainer import PROMPTS, settings
from tests.trainers.diffusion.tiny_diffusion import ZERO_SNR, stable_diffusion


class CountingJudge(Judge):
    """Chooses by the picture's brightness; fails when told to."""

    def __init__(self, fails_at=None):
        self.asked = 0
        self.calls = 0
        self.fails_at = fails_at

    def choose(self, images, questions, choices):
        self.calls += 1
        if self.calls == self.fails_at:
            raise ConnectionError("the judge went away")
        self.asked += len(questions)
        return [torch.tensor([0.6, 0.4]).log() for _ in questions]

    def identity(self):
        return {"judge": "counting"}


@pytest.fixture
def store(tmp_path):
    store = QuestionStore(tmp_path / "questions.sqlite")
    for prompt in PROMPTS:
        for word in ("red", "circle", "square"):
            store.add([Question(f"is there {word}?", ("yes", "no"), "yes", word, "object", prompt)])
    return store


def trainer(tmp_path, judge, store):
    args = settings(tmp_path, num_epochs=0, num_logged_samples=4, eval_batch_size=4)
    reward = TIFA(judge, store, answer="choices")
    return DDPOTrainer(stable_diffusion(image_size=32, **ZERO_SNR), reward, PROMPTS, args, eval_prompts=PROMPTS)


def test_logged_evaluation_asks_each_question_once(tmp_path, store):
    judge = CountingJudge()
    trainer(tmp_path, judge, store).train()
    assert judge.asked == 4 * 3
    samples = read_samples(tmp_path / "run")
    assert [len(sample["details"]) for sample in samples] == [3] * 4
    assert {row["choice"] for sample in samples for row in sample["details"]} == {"yes"}


def test_judge_that_fails_in_an_evaluation_costs_its_samples_only(tmp_path, store):
    trainer(tmp_path, CountingJudge(fails_at=1), store).train()
    samples = read_samples(tmp_path / "run")
    assert [sample["score"] for sample in samples] == [None] * 4 and len(samples) == 4
