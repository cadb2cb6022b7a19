"""The rule for abstentions, and the one reward of a process."""

import math

import pytest
import torch

from rewards.errors import InputError, RewardsError
from rewards.hosts.shared import Neutral, parts_of, read_label, resident_reward
from rewards.reward import Scores

NAN = math.nan


def scores(*values):
    return Scores(torch.tensor(values), ["down" if math.isnan(value) else None for value in values])


def test_an_abstention_gets_the_mean_of_its_group():
    neutral = Neutral("r")
    assert neutral.fill(scores(4.0, NAN, 2.0, 1.0), ["a", "a", "a", "b"]) == [4.0, 3.0, 2.0, 1.0]


def test_then_that_of_its_group_before_then_of_the_call_then_of_the_process():
    neutral = Neutral("r")
    neutral.fill(scores(5.0, 3.0), ["a", "b"])
    assert neutral.fill(scores(NAN, 1.0), ["a", "b"]) == [5.0, 1.0]
    assert neutral.fill(scores(NAN, 1.0), ["c", "b"]) == [1.0, 1.0]
    assert neutral.fill(scores(NAN), ["d"]) == [(5 + 3 + 1 + 1) / 4]


def test_an_abstention_teaches_nothing():
    neutral = Neutral("r")
    neutral.fill(scores(4.0, NAN), ["a", "a"])
    neutral.fill(scores(NAN, NAN), ["a", "a"])
    assert neutral.fill(scores(NAN, 2.0), ["a", "a"]) == [2.0, 2.0]
    assert neutral.fill(scores(NAN), ["a"]) == [3.0]


def test_where_nothing_was_ever_judged_the_host_is_told():
    with pytest.raises(RewardsError, match="none was before it: down"):
        Neutral("r").fill(scores(NAN), ["a"])


def test_the_groups_that_are_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(Neutral, "GROUPS", 2)
    neutral = Neutral("r")
    for value, group in ((1.0, "a"), (2.0, "b"), (3.0, "c")):
        neutral.fill(scores(value), [group])
    assert neutral.fill(scores(NAN), ["c"]) == [3.0]
    assert neutral.fill(scores(NAN), ["a"]) == [2.0]  # forgotten: the mean of the process


def test_one_reward_a_process_from_a_file_its_block_or_the_environment(world, tmp_path, monkeypatch):
    _, _, config = world
    reward = resident_reward(config)
    assert resident_reward(config) is reward and resident_reward(config, gamma=0.5) is not reward
    whole = tmp_path / "run.yaml"
    whole.write_text("output_dir: runs/x\nreward: {judge: shapes-rater, gamma: 0.5}\n")
    assert resident_reward(str(whole)).gamma == 0.5
    monkeypatch.setenv("REWARDS_CONFIG", config)
    assert resident_reward() is not None
    monkeypatch.delenv("REWARDS_CONFIG")
    with pytest.raises(InputError, match="REWARDS_CONFIG"):
        resident_reward()
    with pytest.raises(InputError, match="unknown key 'juge'"):
        resident_reward(juge="shapes-rater")


@pytest.mark.parametrize("label", ["dog.jpg", "[1]", "", None, 3, "[" * 100_000])
def test_a_label_that_is_no_object_is_named(label):
    with pytest.raises(InputError, match="JSON object"):
        read_label(label)


def test_parts_without_a_judgment_are_left_out():
    row = Scores(torch.tensor([0.5]), [None], ("a", "b"), torch.tensor([[0.5, NAN]]), torch.tensor([[2.0, 0.0]]))
    assert parts_of(row) == {"a": 0.5, "abstained": 0.0}
