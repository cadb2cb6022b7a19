"""Several reward functions in TRL: a failed judge must not count as a score of 0."""

import asyncio
import pickle

import pytest
import torch

from rewards.errors import InputError
from rewards.trainers.language.trl_rewards import abstain_together
from tests.trainers.language.text_world import every_third_fails


class Counting:
    """A reward function that counts its calls."""

    __name__ = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, prompts, completions, **columns):
        self.calls += 1
        return [float(len(text)) for text in completions]


async def slow(completions, **columns):
    await asyncio.sleep(0.01)
    return [2.0] * len(completions)


def not_applicable(completions, **columns):
    return [None, 5.0, 5.0, None]


BATCH = ["a", "bb", "ccc", "dddd"]


def call(functions, completions=BATCH, **columns):
    return [function(prompts=[""] * len(completions), completions=completions, **columns) for function in functions]


def test_a_row_that_one_cannot_judge_is_none_in_all():
    counting = Counting()
    together = abstain_together([every_third_fails, counting])
    assert [function.__name__ for function in together] == ["every_third_fails", "counting"]
    assert call(together) == [[1.0, 1.0, None, 1.0], [1.0, 2.0, None, 4.0]]
    assert counting.calls == 1


def test_trl_alone_would_count_the_failed_judge_as_zero():
    alone = torch.tensor(
        [[float("nan") if v is None else v for v in row] for row in call([every_third_fails, Counting()])]
    ).T
    assert alone.nansum(1).tolist() == [2.0, 3.0, 3.0, 5.0]  # the third lacks its judge's point: a wrong 3
    together = torch.tensor(
        [
            [float("nan") if v is None else v for v in row]
            for row in call(abstain_together([every_third_fails, Counting()]))
        ]
    ).T
    assert together.isnan().all(1).tolist() == [False, False, True, False]


def test_what_does_not_apply_does_not_abstain():
    together = abstain_together([every_third_fails], optional=[not_applicable])
    assert call(together) == [[1.0, 1.0, None, 1.0], [None, 5.0, None, None]]


def test_a_new_batch_or_a_new_round_is_scored_again():
    counting = Counting()
    together = abstain_together([counting, every_third_fails])
    call(together)
    call(together, completions=["xx"])
    assert counting.calls == 2
    same = ["y"]
    call(together, completions=same)
    call(together, completions=same)
    assert counting.calls == 4


def test_async_functions_nan_and_columns():
    def from_column(completions, number, **columns):
        return [float("nan"), *number[1:]]

    assert call(abstain_together([slow, from_column]), number=[1, 2, 3, 4]) == [[None, 2, 2, 2], [None, 2, 3, 4]]


def test_refuses_models_and_wrong_lengths():
    with pytest.raises(InputError, match="Linear"):
        abstain_together([torch.nn.Linear(1, 1)])

    def one(completions, **columns):
        return [1.0]

    with pytest.raises(InputError, match="'one' returned 1 rewards for 4"):
        call(abstain_together([one]))


def test_pickles():
    together = pickle.loads(pickle.dumps(abstain_together([every_third_fails, Counting()])))
    assert call(together)[1] == [1.0, 2.0, None, 4.0]
    assert together[0]._shared is together[1]._shared
