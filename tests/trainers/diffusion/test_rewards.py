"""Calling rewards on pictures and putting their infos together."""

import math

import numpy as np
import pytest
import torch

from rewards.errors import InputError
from rewards.trainers.diffusion.scoring import Scored, as_rewards, merge_info, score_pictures, usable_pictures


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
        asked.append((len(pictures), prompts, metadata))
        return [1.0, math.inf], {"rewards/reward/x/mean": np.float32(2), "details": ["a"]}

    scored = score_pictures(reward, images, ["a", "b", "c"], [{"i": 0}, {"i": 1}, {"i": 2}])
    assert asked == [(2, ["a", "c"], [{"i": 0}, {"i": 2}])]
    assert scored.values[0] == 1 and np.isnan(scored.values[1:]).all() and scored.broken == 1
    assert scored.info == [({"rewards/reward/x/mean": 2.0}, 1)]


def test_failures_say_whether_the_run_can_go_on():
    def fails(error):
        def reward(images, prompts, metadata):
            raise error

        return score_pictures(reward, torch.full((2, 3, 2, 2), 0.5), ["a", "b"], [{}, {}])

    late, wrong = fails(TimeoutError("late")), fails(InputError("no questions"))
    assert (late.error, late.fatal) == ("reward: TimeoutError: late", False) and np.isnan(late.values).all()
    assert wrong.fatal and "no questions" in wrong.error
    together = Scored.concatenate([late, wrong])
    assert together.fatal and together.error == late.error and len(together.values) == 4


def test_whatever_rewards_return():
    assert as_rewards([1, None, 2.5], 3)[[0, 2]].tolist() == [1, 2.5]
    assert np.isnan(as_rewards(torch.tensor([math.inf]), 1)).all()
    source = np.array([1.0, math.inf], dtype=np.float32)
    as_rewards(source, 2)
    assert source[1] == math.inf  # the caller's array is left alone
    with pytest.raises(InputError):
        as_rewards(np.zeros((2, 1)), 2)


def test_infos_merge_by_count():
    rows = [
        ({"r/color/mean": 1.0, "r/color/count": 3, "r/abstained": 1, "r/mass": 0.5}, 4),
        ({"r/color/mean": math.nan, "r/color/count": 0, "r/abstained": 0, "r/mass": 1.0}, 1),
        ({"r/color/mean": 0.0, "r/color/count": 1, "r/shape/mean": math.nan}, 4),
    ]
    merged = merge_info(rows)
    assert merged["r/color/mean"] == 0.75 and merged["r/color/count"] == 4 and merged["r/abstained"] == 1
    assert merged["r/mass"] == pytest.approx(0.6) and math.isnan(merged["r/shape/mean"])
    assert merge_info([]) == {}
