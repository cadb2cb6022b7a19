"""Combined: sums, scales, abstentions, and rewards of different kinds together."""

import json
import math

import numpy as np
import pytest
import torch

from rewards.combined import Combined
from rewards.errors import InputError

NAN = math.nan


def constant(name, values, info=None):
    def reward(images, prompts, metadata=None):
        return (values, info) if info is not None else values

    reward.__name__ = name
    return reward


def call(reward, count=3):
    return reward(torch.zeros(count, 3, 4, 4), ["p"] * count)


def test_sum_and_curves_of_each_part():
    info = {"rewards/a/color/mean": 0.5, "rewards/a/color/count": 2}
    reward = Combined([constant("a", [1, 2, 3], info), constant("b", torch.tensor([10.0, 20, 30]))], [1, 0.1])
    values, curves = call(reward)
    assert values.dtype == np.float32 and values.tolist() == pytest.approx([2, 4, 6])
    assert curves["rewards/a/color/mean"] == 0.5
    assert curves["rewards/a/overall/mean"] == 2 and curves["rewards/b/overall/mean"] == 20
    assert curves["rewards/b/overall/count"] == 3 and curves["rewards/b/abstained"] == 0


def test_abstention_policies():
    parts = [constant("a", [1, None, 3]), constant("b", [10, 20, NAN])]
    values, curves = call(Combined(parts, [1, 3]))
    assert values[0] == 31 and np.isnan(values[1:]).all()
    assert curves["rewards/a/abstained"] == 1 and curves["rewards/a/overall/mean"] == 2
    values, _ = call(Combined(parts, [1, 3], on_abstain="renormalize"))
    assert values.tolist() == [31, 20 * 3 * 4 / 3, 3 * 1 * 4]
    nothing, _ = call(Combined([constant("a", [None] * 3)], [1], on_abstain="renormalize"))
    assert np.isnan(nothing).all()


def test_running_standardisation_brings_scales_together():
    rng = np.random.default_rng(0)
    small, large = rng.normal(5, 0.1, (4, 50)), rng.normal(-300, 40, (4, 50))
    large[0, :5] = NAN
    reward = Combined([constant("a", []), constant("b", [])], [1, 1], standardize="running")
    for a, b in zip(small, large):
        combined = reward.combine(torch.from_numpy(np.stack([a, b], axis=1)))
    seen = large[np.isfinite(large)]
    expected = (small[3] - small.mean()) / small.std() + (large[3] - seen.mean()) / seen.std()
    np.testing.assert_allclose(combined, expected, rtol=1e-9)
    again = Combined([constant("a", []), constant("b", [])], [1, 1], standardize="running")
    again.load_state_dict(json.loads(json.dumps(reward.state_dict())))
    ones = torch.ones(2, 2, dtype=torch.float64)
    np.testing.assert_allclose(again.combine(ones), reward.combine(ones))


def test_constant_part_adds_nothing():
    reward = Combined([constant("a", [7.0] * 3)], [1], standardize="running")
    assert call(reward)[0].tolist() == [0, 0, 0]


def test_mistakes_are_refused():
    a = constant("a", [1])
    for arguments in (([a], [1, 2]), ([], []), ([a, a], [1, 1])):
        with pytest.raises(InputError):
            Combined(*arguments)
    with pytest.raises(InputError, match="standardize"):
        Combined([a], [1], standardize="batch")
    with pytest.raises(InputError, match="shape"):
        call(Combined([a], [1]))
