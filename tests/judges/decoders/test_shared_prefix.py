"""Issue "Done when" 1: shared-prefix results equal independent full prompts, for every architecture."""

import random
import sys
import threading

import pytest
import torch

from rewards.judges.decoders.vlm import ANSWER_PROMPT, LONGEST_ANSWER
from rewards.judges.pictures import pictures_of_rows
from tests import tiny_models

KINDS = {
    "llava": "llava", "llava_llama_tokenizer": "llava", "mistral_llava": "llava", "llava_next": "llava_next",
    "idefics3": "idefics3", "smolvlm": "smolvlm", "qwen2_vl": "qwen2_vl", "qwen2_5_vl": "qwen2_5_vl",
    "qwen3_vl": "qwen3_vl",
    "internvl": "internvl", "gemma3": "gemma3",
}  # fmt: skip
RATINGS = ("1", "2", "3", "4", "5")
WORDS = [
    "a",
    "red",
    "circle",
    "and",
    "blue",
    "square",
    "on",
    "white",
    "background",
    "rate",
    "the",
    "caption",
    "is",
    "text",
    "correct",
    "complete",
    "1",
    "2",
    "3",
    "4",
    "5",
]
CRITERIA = [
    "rate the text, is it correct",
    "rate the text, is it complete and clear from 1 to 5",
    "fluent ?",
    "rate concise",
    "",
]


def text_of(tokens: int, seed: int) -> str:
    chooser = random.Random(seed)
    return " ".join(chooser.choice(WORDS) for _ in range(tokens))


def rows() -> tuple[list, list[str]]:
    """Pictures of several sizes, texts of 0 to 300 tokens, five criteria before or after the text, and duplicates."""
    sizes = [(48, 40), (90, 60), (30, 100), (1, 1)]
    pictures = [tiny_models.picture(seed, size) for seed, size in enumerate(sizes)]
    images, prompts = [], []
    for at, tokens in enumerate([0, 1, 7, 30, 300, 8]):
        text = text_of(tokens, at)
        for criterion in CRITERIA[: 5 if tokens < 100 else 2]:
            images.append(pictures[at % 4])
            prompts.append(f"{criterion} {text}" if at % 2 else f"{text} {criterion}")
    images += [images[3], images[3].copy(), pictures[0]]
    prompts += [prompts[3], prompts[3], "a"]
    order = random.Random(0).sample(range(len(images)), len(images))
    return [images[at] for at in order], [prompts[at] for at in order]


def full_prompt_log_probs(judge, image, prompt: str, then: list[int]) -> torch.Tensor:
    """Transformers' own path: the chat template, the whole prompt, no cache. `(len(then) + 1, V)`."""
    image = image.resize((max(28, image.width), max(28, image.height)), 0)
    turn = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": prompt}]}]
    inputs = judge.processor.apply_chat_template(
        turn, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    if then:
        for key, fill in [
            ("input_ids", then),
            ("attention_mask", [1] * len(then)),
            ("mm_token_type_ids", [0] * len(then)),
            ("token_type_ids", [0] * len(then)),
        ]:
            if key in inputs:
                inputs[key] = torch.cat([inputs[key], torch.tensor([fill])], dim=1)
    if hasattr(judge.model.model, "rope_deltas"):
        judge.model.model.rope_deltas = None
    with torch.no_grad():
        return judge.model(**inputs, use_cache=False).logits[0, -len(then) - 1 :].log_softmax(-1)


def expected_ratings(judge, image, prompt: str) -> torch.Tensor:
    """P(bridge) P(rating | bridge) from full prompts, the spellings of a rating summed."""
    bridge, variants = judge.rating_tokens(RATINGS)
    log_probs = full_prompt_log_probs(judge, image, prompt, bridge)
    said = sum(log_probs[at, token] for at, token in enumerate(bridge))
    return torch.stack([(log_probs[-1][ids].logsumexp(-1) + said).exp() for ids in variants])


@pytest.mark.parametrize("kind", KINDS)
def test_ratings_equal_independent_full_prompts(tiny_judge, kind):
    judge = tiny_judge(kind)
    images, prompts = rows()
    expected = torch.stack([expected_ratings(judge, image, prompt) for image, prompt in zip(images, prompts)])
    assert expected.std(0).min() > 1e-7  # the reference itself tells the rows apart
    for budget in (16_384, 900, 1):
        judge.engine.token_budget = budget
        found = judge.rate(images, prompts)
        assert found.reasons == (None,) * len(prompts)
        assert torch.allclose(found.probabilities, expected, atol=1e-5, rtol=1e-4), budget
        assert torch.allclose(found.probabilities, expected, atol=1e-12, rtol=2e-3), budget  # small ones too
    judge.engine.token_budget = 16_384
    assert judge.engine.text_model is not None and judge.model.config.model_type == KINDS[kind]
    sliding = kind in ("gemma3", "mistral_llava")  # windows count cache slots: these go as batches, the others packed
    assert judge.engine.text_model.packs is not sliding
    part = list(range(0, len(prompts), 3))[::-1]
    again = judge.rate([images[at] for at in part], [prompts[at] for at in part]).probabilities
    assert torch.allclose(again, expected[part], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl"])
def test_both_attention_implementations_agree(tiny_judge, kind):
    images, prompts = rows()
    eager = tiny_judge(kind, attn_implementation="eager")
    assert eager.model.config.get_text_config()._attn_implementation == "eager"
    expected = tiny_judge(kind).rate(images, prompts).probabilities
    assert torch.allclose(eager.rate(images, prompts).probabilities, expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_choices_equal_independent_full_prompts(tiny_judge, kind):
    judge = tiny_judge(kind)
    images = [tiny_models.picture(0), tiny_models.picture(1, (90, 60)), tiny_models.picture(0)]
    questions = ["how many circle", "what color is the square", "what color is the square"]
    choices = [["1", "2", "a circle"], ["red", "a blue square", ""], ["white", "red"]]
    found = judge.choose(images, questions, choices)
    for image, question, offered, row in zip(images, questions, choices, found):
        for choice, score in zip(offered, row):
            from rewards.judges.decoders.rating_tokens import continuation

            said = continuation(judge.tokenizer, judge.prompting.tail, choice)
            log_probs = full_prompt_log_probs(judge, image, ANSWER_PROMPT.format(question=question), said)
            expected = sum(log_probs[at, token] for at, token in enumerate(said))
            expected = expected + log_probs[-1, judge._stop_tokens].logsumexp(-1)
            assert score.item() == pytest.approx(expected.item(), abs=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_equal_the_models_own_generate(tiny_judge, kind):
    judge = tiny_judge(kind)
    images = [tiny_models.picture(seed % 2, (48, 40)) for seed in range(6)]
    questions = ["how many circle", "what color", "is the text correct or complete or clear", "yes", "no", "how many"]
    found = judge.answer(images, questions)
    for image, question, answer in zip(images, questions, found):
        encoder, seen = judge.engine.encoder, next(pictures_of_rows([image], keep_tensors=True))
        inputs = encoder.to_device(encoder.full_inputs(seen, ANSWER_PROMPT.format(question=question)))
        ids = judge.engine.plain.greedy(inputs, (), judge._stop_tokens, 16)
        assert answer == judge.tokenizer.decode(ids, skip_special_tokens=True).strip()


def test_an_untested_architecture_takes_the_plain_path_and_says_so_once(tiny_judge, caplog):
    judge = tiny_judge("llava_onevision", token_budget=16_383)  # an instance of its own
    images, prompts = rows()
    found = judge.rate(images[:6], prompts[:6])
    judge.answer(images[:2], prompts[:2])
    assert sum("plain path" in record.message for record in caplog.records) == 1
    for row, (image, prompt) in enumerate(zip(images[:6], prompts[:6])):
        assert torch.allclose(found.probabilities[row], expected_ratings(judge, image, prompt), atol=1e-5)


def counted(judge, call) -> tuple[list[int], list[int]]:
    """The batch sizes of the vision and the language forwards of a call."""
    vision, language = [], []
    inner = judge.model.model
    tower = next(getattr(inner, name) for name in ("vision_tower", "vision_model", "visual") if hasattr(inner, name))
    text = next(getattr(inner, name) for name in ("language_model", "text_model") if hasattr(inner, name))
    handles = [
        tower.register_forward_hook(lambda module, args, output: vision.append(1)),
        text.register_forward_pre_hook(
            lambda module, args, kwargs: language.append(len(kwargs["inputs_embeds"])), with_kwargs=True
        ),
    ]
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    return vision, language


@pytest.mark.parametrize("kind", ["llava", "llava_next", "idefics3", "smolvlm", "qwen2_5_vl", "qwen3_vl", "internvl"])
def test_pictures_go_through_together(tiny_judge, kind):
    """64 pictures, one text each: at most 64 / 8 vision and 64 / 8 language forwards."""
    judge = tiny_judge(kind)
    images = [tiny_models.picture(seed, (48, 40) if seed % 2 else (90, 60)) for seed in range(64)]
    criteria = [f"rate {word}" for word in WORDS[:5]]
    asked = [image for image in images for _ in criteria], criteria * 64
    vision, language = counted(judge, lambda: judge.rate(*asked))
    assert len(vision) <= 8 and len(language) <= 8 and sum(language) == 64
    vision, language = counted(judge, lambda: judge.choose(images, ["what color"] * 64, [["red", "a square"]] * 64))
    assert len(vision) <= 8 and len(language) <= 8
    vision, language = counted(judge, lambda: judge.answer(images, ["what color"] * 64))
    assert len(vision) <= 8 and len(language) <= 8 * (2 + LONGEST_ANSWER)


def test_a_picture_is_looked_at_once(tiny_judge):
    judge = tiny_judge("llava")
    seen = []
    handle = judge.model.model.vision_tower.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    images = [tiny_models.picture(seed % 2) for seed in range(10)]
    judge.rate(images, [f"rate {seed} of the text" for seed in range(10)])
    handle.remove()
    assert sum(seen) == 2


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl", "idefics3"])
@pytest.mark.parametrize("ability", ["rate", "choose"])
def test_the_host_reads_the_device_once_a_call(tiny_judge, kind, ability, monkeypatch):
    """Reads of tensors by our own code in the thread that drives the device; transformers' own are not ours."""
    judge = tiny_judge(kind)
    images = [tiny_models.picture(seed) for seed in range(16)]
    reads = []

    def counting(name):
        original = getattr(torch.Tensor, name)

        def read(tensor, *args, **kwargs):
            caller = sys._getframe(1).f_code
            if "rewards/judges" in caller.co_filename and threading.current_thread() is threading.main_thread():
                reads.append((name, caller.co_name))
            return original(tensor, *args, **kwargs)

        return read

    for name in ("cpu", "numpy", "item", "tolist", "__int__", "__float__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, counting(name))
    if ability == "rate":
        judge.rate([image for image in images for _ in range(5)], WORDS[:5] * 16)
    else:
        judge.choose(images, ["what color"] * 16, [["red", "a blue square"]] * 16)
    assert [name for name, caller in reads if caller == "_read"] == ["cpu"]
    # Positions are worked out on the host's own tensors; what was read is there in whole after the one copy.
    assert {caller for _, caller in reads} <= {"_read", "_checked", "positions", "choose"}


def test_running_out_of_memory_halves_the_budget_for_good(tiny_judge):
    judge = tiny_judge("llava", token_budget=4096)
    images, prompts = [tiny_models.picture()] * 12, [text_of(5 + at, at) for at in range(12)]
    expected = judge.rate(images, prompts).probabilities
    language_model, sizes = judge.model.model.language_model, []

    def small_device(module, args, kwargs):
        sizes.append(kwargs["inputs_embeds"].shape[:2].numel())
        if sizes[-1] > 60:
            raise torch.OutOfMemoryError("CUDA out of memory")

    handle = language_model.register_forward_pre_hook(small_device, with_kwargs=True)
    try:
        assert torch.allclose(judge.rate(images, prompts).probabilities, expected, atol=1e-5)
        assert judge.engine.token_budget < 4096
        sizes.clear()
        judge.rate(images, prompts)
        assert max(sizes) <= 60
    finally:
        handle.remove()


def test_a_row_that_never_fits_abstains_with_the_reason(tiny_judge):
    judge = tiny_judge("llava", token_budget=512)

    def no_memory(module, args):
        raise torch.OutOfMemoryError("CUDA out of memory")

    handle = judge.model.model.vision_tower.register_forward_pre_hook(no_memory)
    try:
        found = judge.rate([tiny_models.picture()], ["rate"])
    finally:
        handle.remove()
    assert found.probabilities.isnan().all()
    assert "memory" in found.reasons[0]


def test_a_prompt_longer_than_the_context_abstains(tiny_judge):
    found = tiny_judge("llava").rate([tiny_models.picture()] * 2, ["rate " * 5000, "rate"])
    assert "context has 2048" in found.reasons[0]
    assert found.probabilities[0].isnan().all() and torch.isfinite(found.probabilities[1]).all()
