"""Scoring drawn pictures: what reaches the judge, and what failures cost."""

import math

import pytest
import torch

from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.trainers.diffusion.scoring import BROKEN, Judged, score_pictures, usable_pictures


def test_broken_pictures_are_found():
    images = torch.full((5, 3, 2, 2), 0.5)
    images[0, 0, 0, 0] = math.nan
    images[1] = 0.0
    images[2, 1, 1, 1] = math.inf
    images[3] = 0.5 / 255
    assert usable_pictures(images).tolist() == [False, False, False, False, True]


def test_only_usable_pictures_reach_the_judge():
    images = torch.full((3, 3, 2, 2), 0.5)
    images[1] = 0.0
    asked = []

    def reward(pictures, prompts, metadata):
        asked.append((pictures.shape, prompts, metadata))
        return [1.0, math.inf]

    judged = score_pictures(FunctionReward(reward), images, ["a", "b", "c"], [{"i": 0}, {"i": 1}, {"i": 2}])
    assert asked == [((2, 3, 2, 2), ["a", "c"], [{"i": 0}, {"i": 2}])]
    assert judged.scores.overall[0] == 1 and judged.scores.abstained.tolist() == [False, True, True]
    assert judged.broken == 1 and judged.scores.reasons[1] == BROKEN and judged.refused is None


@pytest.mark.parametrize(("error", "refused"), [(TimeoutError("late"), False), (InputError("no questions"), True)])
def test_failures_say_whether_the_run_can_go_on(error, refused):
    def reward(images, prompts, metadata):
        raise error

    judged = score_pictures(FunctionReward(reward), torch.full((2, 3, 2, 2), 0.5), ["a", "b"], [{}, {}])
    assert judged.scores.abstained.all() and str(error) in judged.usual_reason
    assert (judged.refused is not None) == refused
    both = Judged.concatenate([judged, judged])
    assert len(both.scores) == 4 and both.refused == judged.refused
