"""The rule for abstentions, and the one reward of a process."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rewards.errors import InputError, RewardsError
from rewards.hosts.shared import Neutral, read_label, resident_reward
from rewards.reward import Reward
from rewards.scores import Scores

NAN = math.nan


class Given(Reward):
    """Scores a text by the number that it is."""

    __name__ = "given"

    def score(self, images, texts, /, **columns):
        values = torch.tensor([float(text) for text in texts])
        return Scores(values, ["down" if math.isnan(value) else None for value in values.tolist()])

    def identity(self, texts=None):
        return {}


def fill(neutral, values, groups):
    return neutral.score([None] * len(values), [str(value) for value in values], groups).overall


def test_an_abstention_gets_the_mean_of_its_group():
    neutral = Neutral(Given())
    assert fill(neutral, [4.0, NAN, 2.0, 1.0], ["a", "a", "a", "b"]) == [4.0, 3.0, 2.0, 1.0]


def test_then_that_of_its_group_before_then_of_the_call_then_of_the_process():
    neutral = Neutral(Given())
    fill(neutral, [5.0, 3.0], ["a", "b"])
    assert fill(neutral, [NAN, 1.0], ["a", "b"]) == [5.0, 1.0]
    assert fill(neutral, [NAN, 1.0], ["c", "b"]) == [1.0, 1.0]
    assert fill(neutral, [NAN], ["d"]) == [(5 + 3 + 1 + 1) / 4]


def test_an_abstention_teaches_nothing():
    neutral = Neutral(Given())
    fill(neutral, [4.0, NAN], ["a", "a"])
    fill(neutral, [NAN, NAN], ["a", "a"])
    assert fill(neutral, [NAN, 2.0], ["a", "a"]) == [2.0, 2.0]
    assert fill(neutral, [NAN], ["a"]) == [3.0]


def test_where_nothing_was_ever_judged_the_host_is_told(monkeypatch):
    monkeypatch.setattr(Neutral, "GRACE", 0.01)
    with pytest.raises(RewardsError, match="none was before it: down"):
        fill(Neutral(Given()), [NAN], ["a"])


def test_a_first_abstention_waits_for_what_other_threads_judge():
    started, go_on = threading.Event(), threading.Event()

    class Slow(Given):
        def score(self, images, texts, /, **columns):
            if texts != ["nan"]:
                started.set()
                go_on.wait(10)
            return super().score(images, texts, **columns)

    neutral = Neutral(Slow())
    with ThreadPoolExecutor(2) as pool:
        judged = pool.submit(fill, neutral, [4.0], ["b"])
        started.wait(10)
        abstained = pool.submit(fill, neutral, [NAN], ["a"])
        go_on.set()
        assert judged.result(10) == [4.0] and abstained.result(10) == [4.0]


def test_a_first_abstention_waits_for_calls_that_only_come():
    neutral = Neutral(Given())
    with ThreadPoolExecutor(2) as pool:
        abstained = pool.submit(fill, neutral, [NAN], ["a"])
        with neutral._state:  # until it waits
            neutral._state.wait_for(lambda: neutral._working, timeout=0.1)
        assert pool.submit(fill, neutral, [4.0], ["b"]).result(10) == [4.0]
        assert abstained.result(10) == [4.0]


def test_the_groups_that_are_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(Neutral, "GROUPS", 2)
    neutral = Neutral(Given())
    for value, group in ((1.0, "a"), (2.0, "b"), (3.0, "c")):
        fill(neutral, [value], [group])
    assert fill(neutral, [NAN], ["c"]) == [3.0]
    assert fill(neutral, [NAN], ["a"]) == [2.0]  # forgotten: the mean of the process


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


class Parts(Given):
    """Scores with parts `a` and `b`; a text with a `-` lacks part `b`, "dies" fails."""

    def score(self, images, texts, /, **columns):
        if "dies" in texts:
            raise RuntimeError("lost")
        overall = torch.tensor([float(text.rstrip("-")) for text in texts])
        parts = torch.tensor([[float(text.rstrip("-")), NAN if "-" in text else 1.0] for text in texts]).view(-1, 2)
        return Scores(overall, [None] * len(texts), ("a", "b"), parts, (~parts.isnan()).float())


def test_every_sample_has_the_same_parts_and_a_missing_one_is_neutral():
    neutral = Neutral(Parts())
    first = neutral.score([None], ["2-"], ["p"])
    assert first.metrics()["a"] == 2.0 and math.isnan(first.metrics()["b"])  # no sample had it yet
    filled = neutral.score([None] * 3, ["4", "3-", "5"], ["p", "p", "q"])
    assert [filled.metrics(row) for row in range(3)] == [
        {"a": 4.0, "b": 1.0, "abstained": 0.0},
        {"a": 3.0, "b": 1.0, "abstained": 0.0},
        {"a": 5.0, "b": 1.0, "abstained": 0.0},
    ]
    failed = neutral.score([None], ["dies"], ["q"])
    assert failed.overall == [5.0] and failed.metrics() == {"a": 5.0, "b": 1.0, "abstained": 1.0}


def test_a_failure_before_any_judgment_knows_its_parts_too():
    neutral = Neutral(Parts())
    filled = neutral.score([None] * 2, ["4", "3-"], ["p", "q"])
    assert list(neutral.score([None], ["dies"], ["r"]).parts) == list(filled.parts) == ["a", "b"]
    assert neutral.score([None], ["dies"], ["r"]).overall == [3.5]
