"""Inside verl's own configuration, loader, reward manager and batch (`make test-hosts`)."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.hosts.pages import arguments
from tests.tiny_models import bpe_tokenizer

pytestmark = pytest.mark.hosts


class Tokenizer:
    """Decodes to whatever text is being judged: verl hands ids over, the reward sees the text."""

    def __init__(self, text):
        self.text = text

    def decode(self, ids, skip_special_tokens=True):
        return self.text


@pytest.fixture
def config(world, monkeypatch):
    """verl's own defaults with the lines of the page."""
    import verl
    from hydra import compose, initialize_config_dir

    monkeypatch.chdir(Path(world[2]).parent)
    _, added = arguments("verl")
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        return compose("ppo_trainer", overrides=added)


@pytest.fixture
def loop():
    """The one event loop of a worker of verl's; its managers keep the one that they find."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


def sample(path, index=3):
    from verl import DataProto

    ids = torch.zeros(1, 2, dtype=torch.long)
    info = {"image": path, "index": index}
    objects = {"data_source": "shapes", "reward_model": {"ground_truth": ""}, "extra_info": info}
    return DataProto.from_single_dict(
        {"prompts": ids, "responses": ids, "attention_mask": torch.ones(1, 4, dtype=torch.long)}
        | {name: np.array([value], dtype=object) for name, value in objects.items()}
    )


def manager(config, text, **router):
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.trainer.ppo.reward import get_custom_reward_fn

    return NaiveRewardManager(config, Tokenizer(text), get_custom_reward_fn(config), **router)


def test_the_lines_of_the_page_are_loaded_and_called(config, world, expected, loop):
    paths, captions, _ = world

    def judged(path, **router):
        return loop.run_until_complete(manager(config, captions[0], **router).run_single(sample(path)))

    good, broken = judged(paths[0]), judged("/none.png")
    assert good["reward_score"] == pytest.approx(float(expected.overall[0]), abs=1e-5)
    parts = {name: good["reward_extra_info"][name] for name in expected.part_names}
    assert list(parts.values()) == pytest.approx(expected.criteria[0].tolist(), abs=1e-5)
    assert broken["reward_score"] == good["reward_score"]  # the mean of its prompt
    assert broken["reward_extra_info"]["abstained"] == 1
    scores = manager(config, "").assemble_rm_scores(sample(paths[0]), [broken["reward_score"]])
    assert torch.isfinite(scores).all()
    routed = judged(paths[0], reward_router_address="127.0.0.1:1", reward_model_tokenizer=Tokenizer(""))
    assert routed["reward_score"] == good["reward_score"]


@pytest.mark.parametrize("first", ["good", "broken"])
def test_every_sample_of_a_batch_has_the_same_keys(config, world, first, loop):
    # As verl's reward loop puts a batch together: the keys of the first sample are looked up in all of them.
    paths, captions, _ = world
    pictures = [paths[0], "/none.png"] if first == "good" else ["/none.png", paths[0]]

    asked = [manager(config, captions[0]).run_single(sample(path, index="keys")) for path in pictures]
    infos = [one["reward_extra_info"] for one in loop.run_until_complete(asyncio.gather(*asked))]
    columns = {key: np.array([info[key] for info in infos]) for key in infos[0]}
    assert set(columns) == {"score", "abstained", "correctness", "completeness", "clarity", "fluency", "conciseness"}
    assert all(np.isfinite(column).all() for column in columns.values())
    assert columns["abstained"].sum() == 1


def test_many_calls_at_a_time_are_those_of_one(config, world, expected, loop):
    # verl asks from the threads of its executor.
    paths, captions, _ = world
    rows = [0, 1, 2] * 6
    asked = [manager(config, captions[row]).run_single(sample(paths[row], index=row)) for row in rows]
    found = [one["reward_score"] for one in loop.run_until_complete(asyncio.gather(*asked))]
    assert found == pytest.approx(expected.overall.tolist() * 6, abs=1e-5)


@pytest.mark.timeout(1200)
def test_verls_own_reward_workers_judge_a_batch_each_in_its_process(config, world, expected, tmp_path, monkeypatch):
    import ray
    from omegaconf import open_dict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_loop import RewardLoopManager, migrate_legacy_reward_impl

    words = bpe_tokenizer(["<pad>", "</s>"], pad_token="<pad>", eos_token="</s>")
    words.save_pretrained(tmp_path / "words")
    paths, captions, _ = world
    texts = [captions[0], captions[0], captions[1], captions[2]]
    pictures = [paths[0], "/none.png", paths[1], paths[2]]  # the second cannot be judged; its prompt's other one can
    responses = words(texts, return_tensors="pt", padding=True, padding_side="right")
    infos = [{"image": picture, "index": index} for picture, index in zip(pictures, (0, 0, 1, 2), strict=True)]
    objects = {
        "data_source": ["shapes"] * 4,
        "reward_model": [{"ground_truth": ""}] * 4,
        "extra_info": infos,
    }
    mask = torch.cat([torch.ones(4, 2, dtype=torch.long), responses["attention_mask"]], dim=1)
    batch = DataProto.from_single_dict(
        {"prompts": torch.zeros(4, 2, dtype=torch.long), "responses": responses["input_ids"], "attention_mask": mask}
        | {name: np.array(values, dtype=object) for name, values in objects.items()}
    )
    config = migrate_legacy_reward_impl(config)
    with open_dict(config):
        config.actor_rollout_ref.model.path = str(tmp_path / "words")
        config.reward.num_workers = 2
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        judged = RewardLoopManager(config).compute_rm_score(batch)
    finally:
        ray.shutdown()
    rewards = judged.batch["rm_scores"].sum(-1).tolist()
    overall = expected.overall.tolist()
    assert rewards == pytest.approx([overall[0], overall[0], overall[1], overall[2]], abs=1e-5)
    last = responses["attention_mask"].sum(-1) - 1  # a reward stands at the last token of its response
    assert judged.batch["rm_scores"].argmax(-1).tolist() == last.tolist()
    columns = judged.non_tensor_batch
    assert columns["abstained"].tolist() == [0, 1, 0, 0] and set(expected.part_names) <= set(columns)
    assert columns["correctness"].tolist()[2:] == pytest.approx(expected.criteria[1:, 0].tolist(), abs=1e-5)
