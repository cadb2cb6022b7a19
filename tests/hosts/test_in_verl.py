"""Inside verl's own loader and reward manager (`make test-hosts`)."""

import asyncio

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.hosts
OmegaConf = pytest.importorskip("omegaconf").OmegaConf
verl_reward = pytest.importorskip("verl.trainer.ppo.reward")


class Tokenizer:
    """Decodes to whatever text is being judged: verl hands ids over, the reward sees the text."""

    def __init__(self, text):
        self.text = text

    def decode(self, ids, skip_special_tokens=True):
        return self.text


def sample(path):
    from verl import DataProto

    ids = torch.zeros(1, 2, dtype=torch.long)
    objects = {"data_source": "shapes", "reward_model": {"ground_truth": ""}, "extra_info": {"image": path, "index": 3}}
    return DataProto.from_single_dict(
        {"prompts": ids, "responses": ids, "attention_mask": torch.ones(1, 4, dtype=torch.long)}
        | {name: np.array([value], dtype=object) for name, value in objects.items()}
    )


def test_loaded_and_called_by_verl(world, expected):
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

    paths, captions, config = world
    settings = {"path": "pkg://rewards.hosts.verl", "name": "compute_score", "reward_kwargs": {"config": config}}
    config = OmegaConf.create({"reward": {"custom_reward_function": settings}})
    function = verl_reward.get_custom_reward_fn(config)

    async def judged(path):
        return await NaiveRewardManager(config, Tokenizer(captions[0]), function).run_single(sample(path))

    good, broken = asyncio.run(judged(paths[0])), asyncio.run(judged("/none.png"))
    assert good["reward_score"] == pytest.approx(float(expected.overall[0]), abs=1e-5)
    parts = {name: good["reward_extra_info"][name] for name in expected.part_names}
    assert list(parts.values()) == pytest.approx(expected.criteria[0].tolist(), abs=1e-5)
    assert broken["reward_score"] == good["reward_score"]  # the mean of its prompt
    assert broken["reward_extra_info"]["abstained"] == 1
    scores = NaiveRewardManager.assemble_rm_scores(sample(paths[0]), [broken["reward_score"]])
    assert torch.isfinite(scores).all()
