"""A reward beside others in a plain TRL trainer: TRL counts a failed judgment as 0, which is said loudly, once."""

import logging

import pytest
from PIL import Image

from rewards import Combined
from rewards.functions import FunctionReward
from rewards.trl_inputs import completion_picture, completion_text


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


@pytest.mark.parametrize("kind", ["list", "tuple", "series", "array"])
def test_any_column_of_completions_is_scored_by_place(kind):
    import numpy as np
    import pandas

    make = {"list": list, "tuple": tuple, "array": lambda v: np.array(v, dtype=object),
            "series": lambda v: pandas.Series(v, index=range(len(v), 0, -1), dtype=object)}[kind]  # fmt: skip

    def words(completions, weight, **columns):
        return [len(text.split()) * w for text, w in zip(completions, weight, strict=True)]

    found = FunctionReward(words)(prompts=make(["", ""]), completions=make(["a b", "c"]), weight=make([1, 3]))
    assert found == [2.0, 3.0]


def test_a_path_is_one_picture_and_bytes_are_no_drawing():
    def seen(completions, image, **columns):
        return [float(image == ["x.png"] and text == "a") for text, image in zip(completions, [image])]

    assert FunctionReward(seen)(prompts=[""], completions=["a"], image="x.png") == [1.0]

    assert completion_picture(b"\x89PNG") is None and completion_text(b"\x89PNG") is None


def test_pandas_columns_of_a_reward_are_taken_by_place():
    import pandas

    def words(images, prompts, metadata):
        return [len(text) * row["weight"] for text, row in zip(prompts, metadata, strict=True)]

    pictures = [Image.new("RGB", (4, 4)), b"broken", Image.new("RGB", (4, 4))]
    texts, weight = (pandas.Series(v, index=[2, 1, 0]) for v in (["a", "bb", "ccc"], [1, 2, 3]))
    found = FunctionReward(words).score(pictures, texts, weight=weight).overall
    assert found[[0, 2]].tolist() == [1.0, 9.0] and found[1].isnan()
