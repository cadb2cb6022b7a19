"""Rewards that wait for servers are asked at the same time, by TRL and by a sum; an abstention stays None."""

import asyncio
import inspect
import logging
import threading

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from rewards import Combined, HarmonicEval, load_judge
from rewards.calling import asynchronous
from rewards.functions import FunctionReward
from rewards.judges.base import DEFAULT_RATINGS, Judge, Ratings
from rewards.judges.elsewhere.server import build_app
from tests import tiny_models
from tests.judges.elsewhere.test_serve import serve  # noqa: F401 - a fixture
from tests.trainers.language.text_world import pictures

TOGETHER = 20.0


class Meeting(Judge):
    """A rater that answers only once another one is asked as well: what is asked in turn fails."""

    def __init__(self, name: str, barrier: threading.Barrier, chosen: int) -> None:
        self.name, self.barrier, self.chosen = name, barrier, chosen

    def rate(self, images, prompts, ratings=DEFAULT_RATINGS):
        self.barrier.wait()
        probabilities = torch.zeros(len(prompts), len(ratings))
        probabilities[:, self.chosen] = 1.0
        bad = ["unjudgeable" in prompt for prompt in prompts]
        probabilities[bad] = torch.nan
        return Ratings(probabilities, probabilities.sum(-1), tuple("cannot" if one else None for one in bad))


@pytest.fixture
def two(serve):  # noqa: F811
    """Rewards by two judges of one server, which must be asked at the same time."""
    barrier = threading.Barrier(2, timeout=TOGETHER)
    url = serve(build_app({"a": Meeting("a", barrier, 4), "b": Meeting("b", barrier, 1)})).url
    return [HarmonicEval(load_judge(f"{url}/{name}"), criteria=["correctness"], name=name) for name in "ab"]


def test_trl_awaits_them_together_and_an_abstention_is_none(two, tmp_path):
    policy = tiny_models.save("llava", tmp_path / "policy")
    arguments = GRPOConfig(
        str(tmp_path), use_cpu=True, bf16=False, num_generations=2, per_device_train_batch_size=2, max_steps=1,
        max_completion_length=4, report_to=[], remove_unused_columns=False, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    functions = [asynchronous(reward) for reward in two]
    trainer = GRPOTrainer(policy, functions, args=arguments, train_dataset=pictures(2))
    trainer.train()
    logged = next(line for line in trainer.state.log_history if "rewards/a/mean" in line)
    assert logged["rewards/a/mean"] == pytest.approx(5.0) and logged["rewards/b/mean"] == pytest.approx(2.0)
    assert logged["rewards/a/correctness/mean"] == pytest.approx(5.0)  # what the reward logs itself
    rows = [dict(row) for row in pictures(2)]
    completions = [[{"role": "assistant", "content": text}] for text in ("a picture", "unjudgeable")]
    found = trainer._calculate_rewards(rows, [row["prompt"] for row in rows], completions, [[1], [2]])
    assert found[0].tolist() == pytest.approx([5.0, 2.0]) and found[1].isnan().all()


def test_a_sum_asks_its_servers_together_and_works_meanwhile(two):
    order = []

    def here(images, prompts, metadata=None):
        order.append(threading.current_thread() is threading.main_thread())
        return [1.0] * len(images)

    reward = Combined([*two, FunctionReward(here)], [1.0, 1.0, 10.0])
    assert reward.elsewhere and not Combined([here]).elsewhere
    scores = reward.score([tiny_models.picture()] * 2, ["a picture", "unjudgeable"])
    assert scores.overall[0] == pytest.approx(17.0) and scores.overall[1].isnan() and order == [True]
    assert scores.parts[0, :3].tolist() == pytest.approx([5.0, 2.0, 1.0])


def test_it_is_a_coroutine_function_of_the_rewards_name(two, caplog):
    function = asynchronous(two[0])
    assert inspect.iscoroutinefunction(function) and function.__name__ == "a"

    class Trainer:
        def __init__(self):
            self.reward_funcs = [function, asynchronous(two[1])]

        def log_metric(self, name, value):
            pass

    async def both():
        keywords = {"prompts": ["?"], "completions": ["a picture"], "image": [tiny_models.picture()]}
        trainer = Trainer()
        return await asyncio.gather(*(f(**keywords, log_metric=trainer.log_metric) for f in trainer.reward_funcs))

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(both()) == [[5.0], [2.0]]
    assert "TRL adds a to b by itself" in caplog.text


def test_a_cancelled_call_logs_nothing_and_the_next_one_is_answered():
    started, go_on, logged = threading.Event(), threading.Event(), []

    def slow(completions, **columns):
        started.set()
        go_on.wait(TOGETHER)
        return [float(len(text)) for text in completions]

    function = asynchronous(FunctionReward(slow))

    async def cancelled():
        keywords = {"prompts": ["?"], "image": [None], "log_metric": lambda key, value: logged.append((key, value))}
        task = asyncio.create_task(function(completions=["gone"], **keywords))
        await asyncio.to_thread(started.wait, TOGETHER)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        return await function(completions=["longer"], **keywords)

    assert asyncio.run(cancelled()) == [6.0]
    assert [value for key, value in logged if key.endswith("overall/mean")] == [6.0]
