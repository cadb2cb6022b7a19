"""A judge from a folder is known by what the folder holds: other weights are another judge."""

import json
import os
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from rewards.judges.cache import CachedJudge
from rewards.judges.loading import load_judge
from rewards.judges.weights import content_of_folder, stamps
from tests import tiny_models


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def train(folder) -> None:
    """Other weights of the same shapes: the header and the size of the file stay as they are."""
    weights = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    changed = {
        key: value + torch.randn(value.shape, generator=generator) if value.is_floating_point() else value
        for key, value in weights.items()
    }
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})


def test_other_weights_in_the_folder_are_another_judge(tmp_path):
    folder = tmp_path / "llava"
    tiny_models.save("llava", folder)
    images, prompts = [tiny_models.picture(0)], ["rate a"]
    before = load_judge(folder)
    remembered = CachedJudge(before, tmp_path / "judgments.sqlite").rate(images, prompts).probabilities
    train(folder)
    after = load_judge(folder)
    assert after is not before and after.identity() != before.identity()
    cached = CachedJudge(after, tmp_path / "judgments.sqlite")
    found = cached.rate(images, prompts).probabilities
    assert cached.misses == 1
    assert torch.equal(found, after.rate(images, prompts).probabilities) and not torch.allclose(found, remembered)


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "preprocessor_config.json", "chat_template.jinja", "1_Pooling/config.json",
     "2_Dense/pytorch_model.bin", "0_Transformer/model.safetensors", "open_clip.pt", "model.pth", "vocab.bpe",
     "additional_chat_templates/tool.jinja", "unet/shards/a.safetensors", "text_encoder/config.json", "MODEL.BIN",
     "tekken.tiktoken", "spiece.model", "merges.txt", "modeling.py"],
)  # fmt: skip
def test_everything_that_is_loaded_counts(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("{}")
    before = content_of_folder(folder)
    (folder / name).write_text("[]")
    assert content_of_folder(folder) != before


@pytest.mark.parametrize("name", [".git/config.json", "checkpoint-10/optimizer.pt", "a/b/c/config.json", "README.md"])
def test_what_no_model_reads_does_not(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    before = content_of_folder(folder)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("[]")
    assert content_of_folder(folder) == before


def test_a_name_that_is_no_folder_has_no_stamps(tmp_path):
    assert stamps("org/none-such") == stamps(tmp_path / "none") == {}


def test_a_file_is_read_once_while_it_stays(tmp_path, monkeypatch):
    from rewards.judges import weights

    file = tmp_path / "checkpoint" / "model.safetensors"
    file.parent.mkdir()
    file.write_bytes(b"weights")
    monkeypatch.setattr(weights.time, "time_ns", lambda: file.stat().st_ctime_ns + 3_000_000_000)
    reads = []
    digest = weights._digest
    monkeypatch.setattr(weights, "_digest", lambda path: reads.append(path) or digest(path))
    first = content_of_folder(file.parent)
    assert content_of_folder(file.parent) == first and len(reads) == 1
    file.write_bytes(b"WEIGHTS")
    assert content_of_folder(file.parent) != first and len(reads) == 2


def test_a_file_changed_within_one_tick_is_read_again(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    at = time.time_ns()
    os.utime(file, ns=(at, at))
    first = content_of_folder(tmp_path)
    file.write_bytes(b"WEIGHTS")
    os.utime(file, ns=(at, at))
    assert content_of_folder(tmp_path) != first


@pytest.mark.parametrize("kind", ["llava", "vilt"])
def test_the_identity_stays_while_the_judge_works(tiny_judge, kind):
    judge = tiny_judge(kind)
    before = json.dumps(judge.identity())
    judge.answer([tiny_models.picture(0), torch.rand(3, 40, 40)], ["how many", "what"])
    assert json.dumps(judge.identity()) == before


def test_abilities_are_known_before_anything_is_asked(tiny_judge, tmp_path):
    answers = {"answer", "choose", "mass", "choose_with_grad", "mass_with_grad"}
    assert tiny_judge("llava").abilities == {*answers, "rate", "rate_after", "explain", "rate_with_grad"}
    assert tiny_judge("vilt").abilities == answers
    assert CachedJudge(tiny_judge("vilt"), tmp_path / "j.sqlite").abilities == answers
