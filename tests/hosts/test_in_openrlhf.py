"""Inside OpenRLHF's own agent executor (`make test-hosts`)."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.hosts.pages import arguments

pytestmark = pytest.mark.hosts


@pytest.fixture
def executor(world, monkeypatch):
    """OpenRLHF's executor with the page's lines."""
    import openrlhf.cli
    from openrlhf.utils import agent

    monkeypatch.chdir(Path(world[2]).parent)
    config, (flag, path) = arguments("openrlhf", "REWARDS_CONFIG")
    command = Path(openrlhf.cli.__path__[0], "train_ppo_ray.py").read_text(encoding="utf-8")
    assert f'"{flag}"' in command
    monkeypatch.setenv("REWARDS_CONFIG", config)
    return agent.SingleTurnAgentExecutor(path.split(","))


def test_loaded_from_its_file_and_called_by_the_executor(world, expected, executor):
    paths, captions, _ = world
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
    assert len({tuple(row["extra_logs"]) for row in results}) == 1  # the same logs of every sample


class Words:
    """A tokenizer of words that keeps its special tokens, as OpenRLHF decodes."""

    def __init__(self):
        self.words = []

    def __call__(self, text, **options):
        return {"input_ids": torch.tensor([self.encode(text)])}

    def encode(self, text):
        self.words.append(text)
        return [len(self.words) - 1]

    def decode(self, ids, skip_special_tokens=False):
        assert not skip_special_tokens
        return "".join(self.words[token] for token in ids)


@pytest.mark.parametrize("ending", ["<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>\n", ""])
def test_a_whole_turn_with_special_tokens(world, expected, executor, ending):
    paths, captions, _ = world
    words = Words()

    class Engine:
        async def generate(self, prompt_token_ids, parameters, multi_modal_data=None):
            token_ids = words.encode(captions[1] + ending)
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=token_ids, finish_reason="stop")])

    parameters = SimpleNamespace(max_tokens=8, logprobs=None)
    prompt, label = "<|im_start|>user\nDescribe.<|im_end|>\n<|im_start|>assistant\n", json.dumps({"image": paths[1]})
    output = asyncio.run(executor.execute(prompt, label, parameters, 64, words, Engine()))
    assert float(output["reward"]) == pytest.approx(float(expected.overall[1]), abs=1e-5)
    assert float(output["scores"]) == float(output["reward"]) and float(output["extra_logs"]["abstained"]) == 0
