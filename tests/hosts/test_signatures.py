"""Hosts that are plain signatures, called as they call: the same scores as in process, never 0 for an abstention."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rewards.hosts import easyr1, openrlhf, verl, verl_omni
from rewards.hosts.flow_grpo import picture_reward
from rewards.hosts.torchmetrics import RewardMetric
from rewards.judges.base import Judge
from rewards.shapes.prompts import question_store


def test_verl_scores_one_sample_with_its_parts(world, expected):
    paths, captions, config = world
    for row, (path, caption) in enumerate(zip(paths, captions, strict=True)):
        result = verl.compute_score("shapes", caption, "", {"image": path, "index": row}, config=config)
        assert result["score"] == pytest.approx(float(expected.overall[row]), abs=1e-5)
        assert result["correctness"] == pytest.approx(float(expected.criteria[row, 0]), abs=1e-5)
        assert result["abstained"] == 0


def test_verl_gives_an_abstention_the_mean_of_its_prompt(world, expected):
    paths, captions, config = world
    first = verl.compute_score("s", captions[0], "", {"image": paths[0], "index": 77}, config=config)
    broken = verl.compute_score("s", captions[0], "", {"image": "/none.png", "index": 77}, config=config)
    assert broken == {"score": first["score"], "abstained": 1.0}


@pytest.mark.parametrize("form", ["path", "bytes", "tensor", "stored"])
def test_pictures_by_path_bytes_or_tensor(form, world, expected):
    paths, captions, config = world
    raw = Path(paths[0]).read_bytes()
    pixels = torch.from_numpy(np.array(Image.open(paths[0]))).permute(2, 0, 1)
    picture = {"path": paths[0], "bytes": raw, "tensor": pixels, "stored": {"bytes": raw, "path": None}}[form]
    result = verl.compute_score("s", captions[0], "", {"image": picture}, config=config)
    assert result["score"] == pytest.approx(float(expected.overall[0]), abs=1e-4)


def test_easyr1_scores_a_batch(world, expected):
    paths, captions, config = world
    rows = [{"response": c, "ground_truth": json.dumps({"image": p})} for p, c in zip(paths, captions, strict=True)]
    results = easyr1.compute_score([*rows, {**rows[0], "response": None}], config=config)
    assert [row["overall"] for row in results[:3]] == pytest.approx(expected.overall.tolist(), abs=1e-5)
    assert results[3] == {"overall": results[0]["overall"], "abstained": 1.0}


def test_openrlhf_cuts_off_the_prompt_and_the_special_tokens(world, expected, monkeypatch):
    paths, captions, config = world
    monkeypatch.setenv("REWARDS_CONFIG", config)
    prompt = "<|im_start|>user\n<image>Describe.<|im_end|>\n<|im_start|>assistant\n"
    seen = prompt.replace("<image>", "<image>" * 576)  # a processor writes one token a patch
    queries = [seen + caption + "<|im_end|>\n<|endoftext|>" for caption in captions]
    labels = [json.dumps({"image": path}) for path in paths]
    result = openrlhf.reward_func(queries, [prompt] * 3, labels)
    assert result["rewards"].tolist() == pytest.approx(expected.overall.tolist(), abs=1e-5)
    assert result["extra_logs"]["fluency"].tolist() == pytest.approx(expected.criteria[:, 3].tolist(), abs=1e-5)
    broken = openrlhf.reward_func([prompt + "x"], [prompt], [json.dumps({"image": "none.png"})])
    assert broken["extra_logs"]["abstained"].tolist() == [1.0] and broken["rewards"].isfinite().all()


@pytest.mark.parametrize(
    ("query", "prompt", "text"),
    [
        ("abc", "ab", "c"),
        ("Question: a? </s> Answer:fine</s>", "Question: a? </s> Answer:", "fine"),
        ("something else entirely", "Describe the picture.", None),
        ("Describe: a </s> b", "Describe:", " a </s> b"),
    ],
)
def test_the_completion_is_what_follows_the_prompt(query, prompt, text):
    assert openrlhf.completion(query, prompt) == text


def test_a_failure_is_logged_and_not_swallowed(world, monkeypatch, caplog):
    monkeypatch.setenv("REWARDS_CONFIG", world[2])
    with pytest.raises(ValueError, match="JSON object"):
        openrlhf.reward_func(["pc"], ["p"], ["dog.jpg"])
    assert "the reward failed" in caplog.text


@pytest.fixture
def tifa_config(world, tmp_path):
    store = question_store(tmp_path / "questions.sqlite", world[1])
    config = tmp_path / "tifa.yaml"
    config.write_text(f"kind: tifa\njudge: shapes-vqa\nsoft: true\nquestions: {store.path}\n")
    return str(config)


def test_flow_grpo_gets_numbers_only(world, tifa_config):
    paths, captions, _ = world
    pixels = np.stack([np.array(Image.open(path)) for path in [*paths, paths[0]]])
    pixels[3] = 0  # black: what a half-precision decoder makes of an overflow
    values, info = picture_reward(tifa_config)(pixels, [*captions, captions[0]], [{}] * 4)
    assert values.dtype == np.float32 and values[3] == values[0] and (values[:3] > 0.5).all()
    assert info["rewards/TIFA/abstained"] == 1


def test_verl_omni_takes_the_picture_by_its_keyword(world, tifa_config):
    paths, captions, _ = world
    picture = torch.from_numpy(np.array(Image.open(paths[1]))).permute(2, 0, 1)
    result = verl_omni.compute_score(
        data_source="s", solution_image=picture, ground_truth=captions[1], extra_info={}, config=tifa_config
    )
    assert result["score"] > 0.5 and result["abstained"] == 0 and 0 < result["color"] <= 1


def test_torchmetrics_pools_batches_as_one(world, expected):
    paths, captions, config = world
    metric = RewardMetric(config)
    metric.update(paths[:2], captions[:2])
    metric.update([paths[2], None], [captions[2], "unseen"])
    values = metric.compute()
    assert float(values["overall"]) == pytest.approx(float(expected.overall.double().mean()), abs=1e-6)
    assert float(values["clarity"]) == pytest.approx(float(expected.criteria[:, 2].double().mean()), abs=1e-6)
    assert float(values["abstained"]) == 1
    metric.reset()
    assert metric.compute()["overall"].isnan()


def test_the_path_of_a_host_is_printed():
    command = [sys.executable, "-m", "rewards.hosts"]
    printed = subprocess.run([*command, "openrlhf"], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == openrlhf.__file__
    unknown = subprocess.run([*command, "trl"], capture_output=True, text=True)
    assert unknown.returncode == 1 and "openrlhf" in unknown.stderr


def test_a_judge_that_dies_costs_its_samples_only(world, monkeypatch):
    paths, captions, config = world
    verl.compute_score("s", captions[0], "", {"image": paths[0], "index": 5}, config=config)
    from rewards.hosts.shared import resident_reward

    def dead(*arguments, **keywords):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(resident_reward(config).judge, "rate", dead)
    result = verl.compute_score("s", captions[0], "", {"image": paths[0], "index": 5}, config=config)
    assert result["abstained"] == 1 and result["score"] > 1
    assert isinstance(resident_reward(config).judge, Judge)
