"""Per-prompt and global advantages, with abstentions."""

import json
import math

import numpy as np
import pytest

from rewards.errors import InputError
from rewards.trainers.diffusion.advantages import PromptStatistics, global_advantages, zero_deviation_groups

NAN = math.nan


def f32(*values):
    return np.array(values, dtype=np.float32)


def test_each_prompt_has_its_own_mean_and_deviation():
    advantages = PromptStatistics(4, 2).advantages(list("abab"), f32(0, 10, 2, 30), epsilon=1.0)
    np.testing.assert_allclose(advantages, [-0.5, -10 / 11, 0.5, 10 / 11], rtol=1e-6)


def test_deviation_of_all_is_the_batchs_and_the_mean_stays_the_prompts():
    rewards = f32(0, 10, 2, 30)
    advantages = PromptStatistics(4, 2).advantages(list("abab"), rewards, epsilon=1.0, deviation_of_all=True)
    np.testing.assert_allclose(advantages, np.array([-1, -10, 1, 10]) / (np.std([0, 10, 2, 30]) + 1), rtol=1e-6)


def test_buffer_keeps_the_newest_rewards():
    statistics = PromptStatistics(buffer_size=3, min_count=1)
    statistics.advantages(["a"] * 2, f32(100, 0))
    advantages = statistics.advantages(["a"] * 2, f32(1, 2), epsilon=0.0)
    kept = np.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(advantages, (np.array([1.0, 2.0]) - kept.mean()) / kept.std(), rtol=1e-6)


def test_too_few_rewards_use_the_batch():
    advantages = PromptStatistics(8, min_count=2).advantages(["a", "b", "b"], f32(0, 1, 2), epsilon=0.0)
    np.testing.assert_allclose(advantages, [-1 / f32(0, 1, 2).std(), -1, 1], rtol=1e-6)


def test_abstentions_take_no_part():
    statistics = PromptStatistics(8, 2)
    with_nan = statistics.advantages(["a"] * 4, f32(0, NAN, 2, NAN))
    without = PromptStatistics(8, 2).advantages(["a"] * 2, f32(0, 2))
    assert with_nan.tolist() == [without[0], 0, without[1], 0]
    assert statistics.state_dict() == {"buffers": [["a", [0.0, 2.0]]]}
    assert PromptStatistics(8, 2).advantages(["a"] * 2, f32(NAN, NAN)).tolist() == [0, 0]
    assert global_advantages(f32(NAN, 1, 3)).tolist() == [0, -1, 1]
    assert global_advantages(f32(NAN)).tolist() == [0]


def test_equal_rewards_have_no_advantage():
    third = np.float32(1 / 3)
    assert PromptStatistics(8, 2).advantages(["a"] * 8, np.full(8, third), epsilon=1e-8).tolist() == [0.0] * 8
    assert global_advantages(np.full(7, third)).tolist() == [0.0] * 7


def test_state_survives_json():
    first = PromptStatistics(2, 1)
    first.advantages(["a", "b"], f32(0.1, 5))
    second = PromptStatistics(2, 1)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    batch = ["a", "b"], f32(0.7, 6)
    assert first.advantages(*batch).tolist() == second.advantages(*batch).tolist()


def test_zero_deviation_groups_and_bad_sizes():
    assert zero_deviation_groups(list("aabbccd"), f32(1, 1, 0, 2, 3, NAN, 4)) == 0.5
    assert math.isnan(zero_deviation_groups(["a"], f32(1)))
    with pytest.raises(InputError):
        PromptStatistics(0, 1)
