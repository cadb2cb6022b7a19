"""A reward beside others in a plain TRL trainer: TRL counts a failed judgment as 0, which is said loudly, once."""

import logging

import pytest

from rewards import Combined
from rewards.functions import FunctionReward


def judge(completions, **columns):
    return [None if text == "unjudged" else 5.0 for text in completions]


def length(completions, **columns):
    return [1.0] * len(completions)


class Trainer:
    """What a reward sees of TRL's trainer: the method that it hands on as `log_metric`."""

    def __init__(self, *functions):
        self.reward_funcs = list(functions)

    def log_metric(self, name, value):
        pass

    def batch(self):
        texts = ["a", "unjudged"]
        return [f(prompts=["", ""], completions=texts, log_metric=self.log_metric) for f in self.reward_funcs]


def warnings_of(caplog, trainer):
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="rewards.calling"):
        trainer.batch()
        trainer.batch()
    return [record.getMessage() for record in caplog.records if "TRL adds" in record.getMessage()]


def test_a_sum_by_trl_is_warned_of_once_with_the_cure(caplog):
    (said,) = warnings_of(caplog, Trainer(FunctionReward(judge), length))
    assert "TRL adds judge to length by itself" in said and "Combined([...]).per_reward()" in said
    assert len(warnings_of(caplog, Trainer(length, *Combined([judge, length]).per_reward()))) == 1


@pytest.mark.parametrize("functions", [[FunctionReward(judge)], [Combined([judge, length])]])
def test_one_reward_alone_is_not_warned_of(caplog, functions):
    assert warnings_of(caplog, Trainer(*functions)) == []


def test_parts_of_one_pass_abstain_together_and_are_not_warned_of(caplog):
    trainer = Trainer(*Combined([judge, length]).per_reward())
    assert warnings_of(caplog, trainer) == []
    assert trainer.batch() == [[5.0, None], [1.0, None]]
