"""Gains by hand: samples clustered by prompt, abstentions left out."""

import math

import numpy as np
import pytest

from rewards.runs.paired_gain import paired_gain


def test_one_score_a_prompt():
    gain = paired_gain([1.0, 2.0, 3.0, None], [2.0, 2.0, 5.0, 5.0])
    half = 1.96 * np.std([1, 0, 2], ddof=1) / math.sqrt(3)
    assert (gain.mean, gain.low, gain.high, gain.count) == pytest.approx((1.0, 1 - half, 1 + half, 3))


def test_samples_of_a_prompt_count_as_one():
    gain = paired_gain(np.zeros((3, 2)), np.array([[0.2, 0.4], [np.nan, 0.5], [np.nan, np.nan]]))
    half = 1.96 * np.std([0.3, 0.5], ddof=1) / math.sqrt(2)
    assert (gain.mean, gain.low, gain.high, gain.count) == pytest.approx((0.4, 0.4 - half, 0.4 + half, 2))


def test_too_few_prompts_have_no_gain_or_no_interval():
    for before, after in (([None], [1.0]), (np.full((2, 1), np.nan), np.zeros((2, 1))), ([], [])):
        gain = paired_gain(before, after)
        assert gain.count == 0 and all(map(math.isnan, (gain.mean, gain.low, gain.high)))
    alone = paired_gain([1.0], [2.0])
    assert (alone.mean, alone.count) == (1.0, 1) and math.isnan(alone.low)


def test_other_prompts_are_refused():
    with pytest.raises(ValueError, match="not of the same prompts"):
        paired_gain([1.0], [1.0, 2.0])
