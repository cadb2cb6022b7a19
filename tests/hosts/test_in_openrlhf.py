"""Inside OpenRLHF's own agent executor (`make test-hosts`)."""

import asyncio
import json

import pytest

from rewards.hosts import openrlhf

pytestmark = pytest.mark.hosts
agent = pytest.importorskip("openrlhf.utils.agent")


def test_loaded_from_its_file_and_called_by_the_executor(world, expected, monkeypatch):
    paths, captions, config = world
    monkeypatch.setenv("REWARDS_CONFIG", config)
    executor = agent.SingleTurnAgentExecutor(openrlhf.__file__)
    prompts = ["<|im_start|>user\nDescribe.<|im_end|>\n"] * 4
    queries = [f"{p}{text}<|im_end|>" for p, text in zip(prompts, [*captions, "unseen"], strict=True)]
    labels = [json.dumps({"image": path}) for path in [*paths, "/none.png"]]
    results = asyncio.run(executor._fetch_rewards_via_func(queries, prompts, labels))
    values = [float(row["rewards"]) for row in results]
    assert values[:3] == pytest.approx(expected.overall.tolist(), abs=1e-5)
    assert min(values[:3]) <= values[3] <= max(values[:3])
    assert [float(row["extra_logs"]["abstained"]) for row in results] == [0, 0, 0, 1]
    fluency = [float(row["extra_logs"]["fluency"]) for row in results[:3]]
    assert fluency == pytest.approx(expected.criteria[:, 3].tolist(), abs=1e-5)
