"""Scores: what a batch says about itself, and how batches are put together."""

import json
import math

import pytest
import torch

from rewards import TIFA, HarmonicEval, Rubric, VQAScore
from rewards.calling import score_guarded
from rewards.errors import InputError
from rewards.reward import Reward
from rewards.scores import Scores
from rewards.shapes.prompts import question_store

NAN = math.nan


def scores() -> Scores:
    return Scores(
        overall=torch.tensor([0.5, NAN, 1.0]),
        reasons=[None, "no picture", None],
        part_names=("color", "counting"),
        parts=torch.tensor([[0.0, 1.0], [NAN, NAN], [1.0, NAN]]),
        counts=torch.tensor([[3.0, 1.0], [0.0, 0.0], [1.0, 0.0]]),
        means={"rating_mass": torch.tensor([0.9, NAN, 0.7])},
        sums={"unmatched": torch.tensor([2.0, 0.0, 1.0])},
        details=[{"answers": ["red"]}, {}, {"answers": []}],
    )


def test_parts_are_pooled_over_judgments_and_abstentions_take_no_part():
    metrics = scores().metrics("TIFA")
    assert metrics == pytest.approx(
        {
            "rewards/TIFA/overall/mean": 0.75,
            "rewards/TIFA/overall/count": 2,
            "rewards/TIFA/abstained": 1,
            "rewards/TIFA/color/mean": 0.25,  # three judgments of 0 and one of 1
            "rewards/TIFA/color/count": 4,
            "rewards/TIFA/counting/mean": 1.0,
            "rewards/TIFA/counting/count": 1,
            "rewards/TIFA/rating_mass": 0.8,
            "rewards/TIFA/unmatched": 3,
        }
    )


def test_parts_of_a_sample_that_abstained_are_not_counted():
    half = Scores(
        torch.tensor([NAN, 1.0]), ["failed", None], ("color",), torch.tensor([[0.0], [1.0]]), torch.ones(2, 1)
    )
    assert half.metrics("r")["rewards/r/color/mean"] == 1.0


def test_keys_stay_where_nothing_was_judged():
    metrics = Scores.nothing(["down", "down"]).metrics("r")
    assert metrics["rewards/r/overall/count"] == 0 and metrics["rewards/r/abstained"] == 2
    assert math.isnan(metrics["rewards/r/overall/mean"])


def test_records_are_json_without_nan():
    first, second, third = scores().records()
    assert first == {"overall": 0.5, "parts": {"color": 0.0, "counting": 1.0}, "abstained": None, "answers": ["red"]}
    assert second == {"overall": None, "parts": {}, "abstained": "no picture"}
    assert third["parts"] == {"color": 1.0}
    json.dumps([first, second, third], allow_nan=False)


def test_batches_put_together_are_as_one():
    whole = scores()
    again = Scores.concatenate([whole.take([0]), whole.take([1, 2])])
    assert again.metrics("r") == pytest.approx(whole.metrics("r"), nan_ok=True)
    assert again.records() == whole.records()


def test_a_failed_batch_has_no_parts_and_spoils_none():
    both = Scores.concatenate([Scores.nothing(["down"]), scores()])
    assert both.part_names == ("color", "counting")
    assert both.records()[0] == {"overall": None, "parts": {}, "abstained": "down"}
    assert both.metrics("r")["rewards/r/color/mean"] == pytest.approx(0.25)


def test_placed_among_samples_that_were_never_judged():
    placed = scores().take([2, 0]).placed([3, 1], ["a", None, "b", None])
    assert placed.overall.tolist() == pytest.approx([NAN, 0.5, NAN, 1.0], nan_ok=True)
    assert placed.reasons == ["a", None, "b", None]


def test_lists_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="do not fit"):
        Scores(torch.zeros(2), [None])


class Failing(Reward):
    __name__ = "failing"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def score(self, images, texts, /, **columns):
        raise self.error

    def identity(self, texts=None):
        return {}


def test_a_reward_that_raises_costs_its_samples_only():
    failed = score_guarded(Failing(RuntimeError("out of memory")), [None, None], ["a", "b"])
    assert failed.abstained.all() and failed.reasons == ["failing: RuntimeError: out of memory"] * 2


def test_refused_input_is_not_swallowed():
    with pytest.raises(InputError, match="no questions"):
        score_guarded(Failing(InputError("no questions")), [None], ["a"])


@pytest.mark.parametrize(
    "made",
    [
        lambda judge, store: HarmonicEval(judge),
        lambda judge, store: TIFA(judge, store),
        lambda judge, store: VQAScore(judge),
        lambda judge, store: Rubric(judge),
    ],
)
def test_the_name_of_a_judge_is_no_judge(made, tmp_path):
    store = question_store(tmp_path / "questions.sqlite", ["a red circle"])
    with pytest.raises(InputError, match=r"judge is 'shapes-vqa', not a Judge: load_judge\('shapes-vqa'\)"):
        made("shapes-vqa", store)
    with pytest.raises(InputError, match=r"judge is None, not a Judge$"):
        made(None, store)
