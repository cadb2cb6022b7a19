"""Residency: loading outside sharding contexts, offload, quantisation and compilation passed through, tensors."""

import gc
import os

import pytest
import torch
from transformers.integrations import deepspeed as hf_deepspeed

from rewards.judges.decoders import vlm
from rewards.judges.decoders.vlm import VLMJudge
from rewards.judges.loading import load_judge, unload_judges
from rewards.judges.local import outside_sharding, resolve_device
from tests import tiny_models


def test_offload_and_back(tiny_judge):
    judge = tiny_judge("llava")
    image = [tiny_models.picture()]
    before = judge.rate(image, ["rate"]).probabilities
    judge.offload()
    assert judge.model.device.type == "cpu"
    assert torch.equal(judge.rate(image, ["rate"]).probabilities, before)


def test_a_judge_loads_whole_while_zero3_and_fsdp_are_on(monkeypatch):
    zero3 = object()
    monkeypatch.setattr(hf_deepspeed, "_hf_deepspeed_config_weak_ref", lambda: zero3)
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")
    with outside_sharding():
        assert not hf_deepspeed.is_deepspeed_zero3_enabled()
        assert os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "false"
    assert hf_deepspeed._hf_deepspeed_config_weak_ref() is zero3
    assert os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "true"


def test_ranks_do_not_share_the_first_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert resolve_device(None) == torch.device("cuda:3")
    assert resolve_device("cpu") == torch.device("cpu")


def test_quantisation_and_attention_are_passed_through(tmp_path, monkeypatch):
    """bitsandbytes needs a GPU; what `from_pretrained` receives is checked, with the real class behind it."""
    path = tiny_models.save("llava", tmp_path / "llava")
    seen = {}
    original = VLMJudge.model_class.from_pretrained

    class Recording:
        @staticmethod
        def from_pretrained(name, **options):
            seen.update(options)
            options = {key: value for key, value in options.items() if key not in ("quantization_config", "device_map")}
            return original(name, **options)

    monkeypatch.setattr(VLMJudge, "model_class", Recording)
    marker = object()
    judge = VLMJudge(path, quantization_config=marker, attn_implementation="eager", dtype="bfloat16")
    assert seen["quantization_config"] is marker
    assert seen["device_map"] == {"": torch.device("cpu")}
    assert seen["attn_implementation"] == "eager" and judge.model.config._attn_implementation == "eager"
    judge.offload()  # quantised weights stay where they are
    assert judge.rate([tiny_models.picture()], ["rate"]).reasons == (None,)


@pytest.mark.slow
def test_compiled_scores_are_the_same(tiny_judge):
    images, prompts = [tiny_models.picture(seed % 2) for seed in range(4)], ["rate a", "rate b c", "rate d", "e"]
    expected = tiny_judge("llava").rate(images, prompts).probabilities
    found = tiny_judge("llava", compile=True).rate(images, prompts).probabilities
    assert torch.allclose(found, expected, atol=1e-5)


def test_unloaded_judges_are_freed(tmp_path):
    path = tiny_models.save("vilt", tmp_path / "vilt")
    first = load_judge(path)
    assert load_judge(path) is first
    from rewards.judges import loading

    kept = dict(loading._resident)
    try:
        unload_judges()
        assert load_judge(path) is not first
    finally:
        loading._resident.clear()
        loading._resident.update(kept)
    gc.collect()


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl", "idefics3", "gemma3", "blip", "git"])
@pytest.mark.parametrize("layout", ["NCHW float", "NHWC uint8"])
def test_tensors_give_what_pil_gives(tiny_judge, kind, layout):
    """Stated tolerance: 1e-6 on one device. Both paths give the processor the same 8-bit pixels."""
    judge = tiny_judge(kind)
    pictures = [tiny_models.picture(seed, (44, 60)) for seed in range(3)]
    pixels = torch.stack([torch.tensor(list(one.getdata()), dtype=torch.uint8).view(60, 44, 3) for one in pictures])
    batch = pixels if layout == "NHWC uint8" else (pixels.permute(0, 3, 1, 2).float() / 255)
    texts, choices = ["rate a", "rate b", "how many circle"], [["yes", "no"]] * 3
    if hasattr(judge, "rating_tokens"):
        expected = judge.rate(pictures, texts).probabilities
        found = judge.rate(list(batch), texts).probabilities
    else:
        expected = torch.stack(judge.choose(pictures, texts, choices))
        found = torch.stack(judge.choose(list(batch), texts, choices))
    assert torch.allclose(found, expected, atol=1e-6)
    assert judge.answer(list(batch), texts) == judge.answer(pictures, texts)


def test_tensors_are_never_turned_into_pil(tiny_judge, monkeypatch):
    from rewards.judges import pictures

    judge = tiny_judge("llava")
    monkeypatch.setattr(pictures, "to_pil", lambda *args: pytest.fail("a tensor was turned into a PIL image"))
    images = [torch.rand(3, 40, 40), torch.rand(3, 1, 9), torch.rand(40, 40, 3)]
    assert judge.rate(images, ["a", "b", "c"]).reasons == (None, None, None)


def test_tiny_tensors_are_enlarged_as_pil_is(tiny_judge):
    judge, small = tiny_judge("llava"), tiny_models.picture(0, (5, 9))
    pixels = torch.tensor(list(small.getdata()), dtype=torch.uint8).view(9, 5, 3)
    expected = judge.rate([small], ["rate"]).probabilities
    assert torch.allclose(judge.rate([pixels], ["rate"]).probabilities, expected, atol=1e-6)


def test_explanations_follow_the_rating(tiny_judge, monkeypatch):
    monkeypatch.setattr(vlm, "LONGEST_REASON", 8)
    for kind in ("llava", "qwen2_5_vl", "llava_onevision"):
        judge = tiny_judge(kind)
        images, prompts = [tiny_models.picture(0), tiny_models.picture(1), b"broken"], ["rate a", "rate b", "rate c"]
        together = judge.explain(images, prompts, ["4", "2", "1"])
        assert together[2] is None
        assert together[:2] == [judge.explain([images[at]], [prompts[at]], [["4", "2"][at]])[0] for at in range(2)]


def test_towers_may_attend_in_different_ways(tiny_judge):
    judge = tiny_judge("qwen2_5_vl", attn_implementation={"vision_config": "eager", "text_config": "sdpa"})
    towers = judge.model.config.vision_config, judge.model.config.text_config
    assert [tower._attn_implementation for tower in towers] == ["eager", "sdpa"]
    assert judge.engine.text_model.packs
    pictures, prompts = [tiny_models.picture(seed) for seed in range(3)], ["one", "two", "three"]
    found = judge.rate(pictures, prompts).probabilities
    assert torch.allclose(found, tiny_judge("qwen2_5_vl").rate(pictures, prompts).probabilities, atol=1e-5)
