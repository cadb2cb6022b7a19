"""Hosts that are plain signatures, called as they call: the same scores as in process, never 0 for an abstention."""

import functools
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from rewards.hosts import easyr1, openrlhf, verl, verl_omni
from rewards.hosts.__main__ import HOSTS
from rewards.hosts.flow_grpo import picture_reward
from rewards.judges.base import Judge
from rewards.shapes.prompts import question_store
from tests.hosts.pages import EXAMPLES, arguments, page, snippet


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
    assert broken == {**first, "abstained": 1.0}  # its parts as well: verl looks the same keys up in all samples


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
    assert results[3] == {**results[0], "abstained": 1.0}


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


def test_flow_grpo_takes_the_lines_of_the_page(world, tifa_config, monkeypatch):
    paths, captions, _ = world
    Path(tifa_config).rename(Path(tifa_config).with_name("reward.yaml"))
    monkeypatch.chdir(Path(tifa_config).parent)
    table = {}
    exec(snippet("flow_grpo"), {"score_functions": table})
    pixels = torch.from_numpy(np.stack([np.array(Image.open(path)) for path in paths])).permute(0, 3, 1, 2) / 255
    assert "device" not in table["tifa"].__code__.co_varnames  # how multi_score decides what to hand over
    scores, rewards = table["tifa"]()(pixels, captions, [{}] * 3)
    assert [0.7 * score for score in scores] == pytest.approx([0.7 * score for score in scores.tolist()])
    assert rewards["rewards/TIFA/overall/mean"] == pytest.approx(float(scores.mean()), abs=1e-6)


def test_easyr1_takes_the_lines_of_the_page(world, expected, monkeypatch):
    # As its reward manager does: a file by its path, the settings as keywords, the rows as the only argument.
    paths, captions, config = world
    monkeypatch.chdir(Path(config).parent)
    named, kept = (one.partition("=")[2] for one in arguments("easyr1")[1])
    path, _, name = named.rpartition(":")
    spec = importlib.util.spec_from_file_location("custom_reward_fn", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.REWARD_TYPE == "batch"
    function = functools.partial(getattr(module, name), **yaml.safe_load(kept))
    row = {"response": captions[1], "response_length": 9, "ground_truth": json.dumps({"image": paths[1]})}
    assert function([row])[0]["overall"] == pytest.approx(float(expected.overall[1]), abs=1e-5)


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_a_page_states_its_rule_for_abstentions_and_has_an_example(host):
    assert re.search(
        "abstention (therefore )?gets the mean of its prompt|cannot be judged is", " ".join(page(host).split())
    )
    assert len(snippet(host).splitlines()) <= 3
    named = [f"rewards.hosts.{host}", f"rewards.hosts {host}"]
    assert any(name in file.read_text(encoding="utf-8") for file in EXAMPLES.rglob("*.*") for name in named)


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
