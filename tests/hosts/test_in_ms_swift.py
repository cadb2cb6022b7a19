"""Inside ms-swift: loaded as its plugin loader does, called by its own reward code (`make test-hosts`)."""

import importlib.util
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from tests.hosts.pages import arguments

pytestmark = pytest.mark.hosts


@pytest.fixture
def functions(world, monkeypatch):
    """The reward functions of the page's lines, as ms-swift makes them."""
    from swift.arguments import RLHFArguments
    from swift.rlhf_trainers.utils import resolve_reward_funcs
    from swift.utils import import_external_file

    monkeypatch.chdir(Path(world[2]).parent)
    config, (plugin_flag, plugin, names_flag, *names) = arguments("ms_swift", "REWARDS_CONFIG")
    known = {field.name for field in fields(RLHFArguments)}
    assert {plugin_flag.removeprefix("--"), names_flag.removeprefix("--")} <= known
    monkeypatch.setenv("REWARDS_CONFIG", config)
    import_external_file(plugin)
    return resolve_reward_funcs(names)[0]


def test_the_plugin_hides_no_package(functions):
    # ms-swift puts the plugin's folder first on the path.
    for name in ("verl", "torchmetrics", "openrlhf", "inspect_ai", "lmms_eval"):
        assert "rewards" not in importlib.util.find_spec(name).origin


def samples(world):
    from swift.rl_core.data import GRPOSample

    paths, captions, _ = world
    pictures = [*([path] for path in paths), [{"bytes": None, "path": "/none.png"}]]
    return [
        GRPOSample.from_row(
            {
                "messages": [{"role": "user", "content": "<image>Describe."}, {"role": "assistant", "content": text}],
                "images": images,
                "prompt_id": prompt,
            }
        )
        for text, images, prompt in zip([*captions, "unseen"], pictures, ["a", "b", "c", "a"], strict=True)
    ]


def test_registered_by_the_plugin_and_called_on_samples(world, expected, functions):
    from swift.rl_core.grpo_algorithm import compute_rewards_per_func

    table = compute_rewards_per_func(samples(world), functions, [None], torch.device("cpu"))
    values = expected.overall.tolist()
    assert table[:, 0].tolist() == pytest.approx([*values, values[0]], abs=1e-5)  # the mean of its prompt


def test_a_sum_of_several_rewards_never_sees_a_zero(world, expected, functions):
    from swift.rewards import ORM
    from swift.rl_core.advantage import compute_advantages
    from swift.rl_core.grpo_algorithm import compute_rewards_per_func

    class Length(ORM):
        def __call__(self, completions, **columns):
            return [1.0] * len(completions)

    both = [functions[0], Length()]
    rows = [samples(world)[row] for row in (0, 3)]  # one prompt: judged, and not
    table = compute_rewards_per_func(rows, both, [None] * 2, torch.device("cpu"))
    advantages, _ = compute_advantages(table, torch.ones(2), num_generations=2)
    assert advantages.tolist() == pytest.approx([0.0, 0.0], abs=1e-4)


def test_the_parts_are_logged(world, expected, monkeypatch):
    paths, captions, config = world
    monkeypatch.setenv("REWARDS_CONFIG", config)
    from rewards.hosts.ms_swift import RewardsORM

    orm = RewardsORM()
    logged = {}
    values = orm(
        [captions[0], captions[0]], images=[[paths[0]], []], prompt_id=["a", "a"], log_metric=logged.__setitem__
    )
    assert values == pytest.approx([float(expected.overall[0])] * 2, abs=1e-5)
    assert logged["rewards/HarmonicEval/abstained"] == 1 and "rewards/HarmonicEval/fluency/mean" in logged
