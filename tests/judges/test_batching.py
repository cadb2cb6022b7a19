"""One judge for many threads: what arrives together is judged together, and each caller gets what is its own."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rewards.errors import RewardsError
from rewards.judges import batching as module
from rewards.judges.base import DEFAULT_RATINGS, GRADIENTS, Judge, Ratings, UnsupportedAbility
from rewards.judges.batching import BatchingJudge, Call, QueueFull
from tests import tiny_models


class Counting(Judge):
    """Rates by the length of the prompt; fails on "bad", abstains on "none"; counts its calls."""

    name = "counting"

    def __init__(self, seconds: float = 0.02) -> None:
        self.seconds, self.sizes = seconds, []

    def rate(self, images, prompts, ratings=DEFAULT_RATINGS):
        self.sizes.append(len(prompts))
        time.sleep(self.seconds)
        if "bad" in prompts:
            raise RuntimeError("bad prompt")
        rows = torch.tensor([[len(prompt) / 100] * len(ratings) for prompt in prompts])
        reasons = tuple(f"row {at}: none" if prompt == "none" else None for at, prompt in enumerate(prompts))
        rows[[prompt == "none" for prompt in prompts]] = torch.nan
        return Ratings(rows, rows.sum(-1), reasons, torch.arange(len(prompts)) / 1000)


def test_calls_that_arrive_together_are_judged_together():
    judge = Counting()
    batching = BatchingJudge(judge)
    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda at: batching.rate(["image"] * 2, ["x" * at, "y"]), range(1, 65)))
    for at, one in enumerate(found, start=1):
        assert one.probabilities[:, 0].tolist() == pytest.approx([at / 100, 0.01])
    assert sum(judge.sizes) == 128 and len(judge.sizes) <= 8 and max(judge.sizes) >= 32
    assert batching.counts.rows == 128 and batching.counts.calls["answered"] == 64 and batching.counts.waiting == 0
    batching.close()


def test_a_batch_waits_for_those_who_were_answered_together():
    """Two groups of callers that missed each other at first meet again, each 30 ms after its answer."""
    judge = Counting(1.2)
    batching = BatchingJudge(judge)

    def ask(late: float) -> None:
        time.sleep(late)
        for _ in range(4):
            batching.rate(["image"], ["x"])
            time.sleep(0.03)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, [0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5]))
    assert sum(judge.sizes) == 32 and judge.sizes[0] == 4 and max(judge.sizes) == 8
    assert len(judge.sizes) <= 6, judge.sizes
    batching.close()


def test_a_lone_caller_is_not_kept_waiting():
    judge = Counting(1.0)
    batching = BatchingJudge(judge)
    start = time.monotonic()
    for _ in range(4):
        batching.rate(["image"], ["x"])
    assert time.monotonic() - start < 4 * 1.0 + 0.35  # an eighth of each is 0.5
    batching.close()


def test_a_call_that_fails_fails_alone_and_reasons_keep_their_rows():
    batching = BatchingJudge(Counting())
    prompts = ["good", "bad", "none", "fine"]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(batching.rate, ["image"] * 2, [prompt, prompt]) for prompt in prompts]
    with pytest.raises(RuntimeError, match="bad prompt"):
        futures[1].result()
    assert futures[0].result().reasons == (None, None)
    assert futures[2].result().reasons == ("row 0: none", "row 1: none")
    assert batching.counts.calls["failed"] == 1
    batching.close()


def test_scales_and_abilities_are_not_mixed(tiny_judge):
    local = tiny_judge("llava")
    batching = BatchingJudge(local)
    picture = tiny_models.picture(0)
    asked = [
        lambda judge: judge.rate([picture], ["rate"]).probabilities,
        lambda judge: judge.rate([picture], ["rate"], ("1", "2", "3")).probabilities,
        lambda judge: judge.choose([picture], ["what color"], [["red", "blue"]])[0],
        lambda judge: judge.answer([picture], ["what color"]),
        lambda judge: judge.explain([picture], ["rate"], ["4"]),
        lambda judge: judge.mass([picture], ["what color"], [["red", "Red"]]),
    ]
    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(lambda ask: ask(batching), asked * 4))
    for at, one in enumerate(found):
        expected = asked[at % 6](local)
        same = torch.allclose(one, expected, atol=1e-5) if isinstance(one, torch.Tensor) else one == expected
        assert same, at
    assert batching.identity() == local.identity()
    assert batching.abilities == local.abilities - {"rate_after"} - GRADIENTS
    batching.close()


def test_replicas_share_the_queue():
    replicas = [Counting(0.1), Counting(0.1)]
    batching = BatchingJudge(replicas, most_rows=2)
    start = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda at: batching.rate(["image"], ["x"]), range(16)))
    assert time.monotonic() - start < 16 / 2 * 0.1 * 0.9
    assert all(len(replica.sizes) >= 3 for replica in replicas)
    batching.close()


def test_replicas_must_be_the_same_judge():
    other = Counting()
    other.name = "another"
    with pytest.raises(RewardsError, match="identities differ"):
        BatchingJudge([Counting(), other])


def test_a_full_queue_refuses_and_threads_wait_for_room():
    batching = BatchingJudge(Counting(0.2), most_rows=1, most_waiting=2)
    calls = [Call("rate", ["image"], ["x"], ("1",)) for _ in range(6)]
    refused = 0
    for call in calls:
        try:
            batching.submit(call)
        except QueueFull as full:
            refused += 1
            assert full.retry_after >= 1
    assert refused >= 2 and batching.counts.calls["refused"] == refused
    assert batching.rate(["image"], ["xx"]).probabilities[0, 0].item() == pytest.approx(0.02)  # waits, and is judged
    batching.close()


def test_a_cancelled_call_is_not_judged():
    judge = Counting(0.2)
    batching = BatchingJudge(judge, most_rows=1)
    first, second = (batching.submit(Call("rate", ["image"], ["x"], ("1",))) for _ in range(2))
    assert second.cancel()
    assert first.result().probabilities.shape == (1, 1)
    time.sleep(0.1)
    assert judge.sizes == [1] and batching.counts.calls["cancelled"] == 1
    batching.close()


def test_closing_ends_the_threads_and_refuses():
    batching = BatchingJudge(Counting())
    batching.close()
    assert not any(thread.name.startswith("judge-") and thread.is_alive() for thread in batching._threads)
    with pytest.raises(RewardsError, match="was closed"):
        batching.rate(["image"], ["x"])
    assert threading.active_count() >= 1


def test_what_the_judge_cannot_do_is_said():
    batching = BatchingJudge(Counting())
    with pytest.raises(UnsupportedAbility, match="cannot answer"):
        batching.answer(["image"], ["what?"])
    batching.close()


class Timed(Counting):
    """Takes its time for each row, and tells what each batch was about."""

    def __init__(self, a_row: float) -> None:
        super().__init__()
        self.a_row, self.pictures = a_row, []

    def rate(self, images, prompts, ratings=DEFAULT_RATINGS):
        self.pictures.append(sorted(set(images)))
        self.seconds = self.a_row * len(prompts)
        return super().rate(images, prompts, ratings)

    def explain(self, images, prompts, ratings):
        self.pictures.append(sorted(set(images)))
        time.sleep(self.a_row * len(prompts))
        return [str(image) for image in images]


def submitted(batching, ability, pictures, rows):
    return [batching.submit(Call(ability, [picture] * rows, ["x"] * rows, ("1",) * rows)) for picture in pictures]


def wait_until_at_work(judge):
    while not judge.pictures:
        time.sleep(0.001)


def test_a_batch_of_seconds_is_cut_between_pictures():
    judge = Timed(0.03)  # 67 rows in two seconds
    batching = BatchingJudge(judge)
    first = submitted(batching, "rate", ["z"], 8)
    wait_until_at_work(judge)
    together = submitted(batching, "rate", ["a", "b", "c", "a", "b", "a"], 16)
    for call in first + together:
        assert call.result(60).probabilities[0, 0].item() == pytest.approx(0.01)
    assert judge.pictures == [["z"], ["a"], ["b", "c"]] and judge.sizes == [8, 48, 48]
    batching.close()


def test_what_is_quick_or_written_is_not_cut():
    quick, writing = Timed(0.002), Timed(0.1)
    for judge, ability in ((quick, "rate"), (writing, "explain")):
        batching = BatchingJudge(judge)
        first = submitted(batching, ability, ["z"], 100 if judge is quick else 2)
        wait_until_at_work(judge)
        for call in first + submitted(batching, ability, ["a", "b", "a", "c"], 20 if judge is quick else 2):
            call.result(60)
        assert judge.pictures == [["z"], ["a", "b", "c"]]
        batching.close()


def test_a_batch_waits_for_a_call_that_is_expected(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_WAIT", 2.0)
    judge = Counting()
    batching = BatchingJudge(judge)
    with batching.expected():
        (first,) = submitted(batching, "rate", ["a"], 1)
        time.sleep(0.3)  # much longer than a batch waits for who is not expected
        (second,) = submitted(batching, "rate", ["a"], 1)
    assert first.result(60) and second.result(60) and judge.sizes == [2]
    with batching.expected():  # who never comes keeps nobody for ever
        (third,) = submitted(batching, "rate", ["a"], 1)
        assert third.result(60) and judge.sizes == [2, 1]
    batching.close()
