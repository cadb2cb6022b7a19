import pytest
import torch

from tests import tiny_models

VLMS = ["llava", "llava_llama_tokenizer", "idefics3", "smolvlm", "qwen2_5_vl", "qwen3_vl"]
PROMPTS = [
    "rate the caption from 1 to 5: a red circle",
    "",
    "is the text correct? a blue square <image> </s>",
    "rate 5 " * 40,
]


def rows():
    pictures = [
        tiny_models.picture(seed, size) for seed, size in [(0, (48, 40)), (1, (90, 60)), (0, (48, 40)), (2, (32, 32))]
    ]
    return pictures, PROMPTS


@pytest.mark.parametrize("kind", VLMS)
def test_ratings_do_not_depend_on_the_batch_or_the_order(tiny_judge, kind):
    judge = tiny_judge(kind)
    images, prompts = rows()
    together = judge.rate(images, prompts)
    assert together.probabilities.shape == (4, 5)
    assert together.probabilities.dtype == torch.float32
    assert torch.allclose(together.mass, together.probabilities.sum(-1))
    assert (together.mass > 0).all() and (together.mass < 1).all()
    backwards = judge.rate(images[::-1], prompts[::-1]).probabilities.flip(0)
    alone = torch.cat([judge.rate([image], [prompt]).probabilities for image, prompt in zip(images, prompts)])
    assert torch.allclose(together.probabilities, backwards, atol=1e-5)
    assert torch.allclose(together.probabilities, alone, atol=1e-5)


@pytest.mark.parametrize("kind", VLMS)
def test_ratings_equal_the_processors_own_full_prompt(tiny_judge, kind):
    """The reference: transformers' documented path, one row at a time, nothing of ours in between."""
    judge = tiny_judge(kind)
    prompt = "rate the caption a red circle"
    image = tiny_models.picture(5, (60, 44))
    turn = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": prompt}]}]
    inputs = judge.processor.apply_chat_template(
        turn, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    bridge, variants = judge.rating_tokens(("1", "2", "3", "4", "5"))
    if bridge:
        for key, filler in [("input_ids", bridge[0]), ("attention_mask", 1)]:
            inputs[key] = torch.cat([inputs[key], torch.tensor([[filler]])], dim=1)
    with torch.no_grad():
        after_prompt, last = judge.model(**inputs).logits[0, -2:].softmax(-1)
    said = after_prompt[bridge[0]] if bridge else 1.0
    expected = torch.tensor([last[ids].sum() * said for ids in variants])
    assert torch.allclose(judge.rate([image], [prompt]).probabilities[0], expected, atol=1e-6)


@pytest.mark.parametrize("kind", VLMS)
def test_choices_are_log_probabilities_of_the_whole_answer(tiny_judge, kind):
    judge = tiny_judge(kind)
    images, _ = rows()
    questions, choices = ["how many circle", "what color"], [["1", "2"], ["red", "a blue square"]]
    together = judge.choose(images[:2], questions, choices)
    assert all((row < 0).all() for row in together)
    for image, question, offered, row in zip(images, questions, choices, together):
        alone = torch.cat([judge.choose([image], [question], [[choice]])[0] for choice in offered])
        assert torch.allclose(row, alone, atol=1e-4)
    assert len(judge.answer(images[:2], questions)) == 2


def test_several_images_a_row(tiny_judge):
    judge = tiny_judge("qwen2_5_vl")
    first, second = tiny_models.picture(0), tiny_models.picture(1)
    pair, single = judge.rate([[first, second], [first]], ["rate", "rate"]).probabilities
    assert not torch.allclose(pair, single)
    assert torch.allclose(single, judge.rate([first], ["rate"]).probabilities[0], atol=1e-6)


def test_an_unreadable_picture_is_nan_with_its_reason(tiny_judge):
    judge = tiny_judge("llava")
    good = tiny_models.picture()
    found = judge.rate([good, b"broken", good], ["a", "b", "c"])
    assert found.probabilities[1].isnan().all() and found.mass[1].isnan()
    assert "image 1" in found.reasons[1]
    assert torch.allclose(found.probabilities[[0, 2]], judge.rate([good, good], ["a", "c"]).probabilities, atol=1e-5)


def test_a_batched_tensor_is_its_images(tiny_judge):
    """Rows are recognised by the identity of their image, which must outlive the slicing of a batch."""
    for kind in ("llava", "blip"):
        judge = tiny_judge(kind)
        batch = torch.rand(6, 3, 40, 40, generator=torch.Generator().manual_seed(0))
        questions, choices = [f"how many circle {at}" for at in range(6)], [["yes", "no"]] * 6
        expected = [judge.choose([batch[at]], [questions[at]], [choices[at]])[0] for at in range(6)]
        assert torch.allclose(torch.stack(judge.choose(batch, questions, choices)), torch.stack(expected), atol=1e-4)
        assert not torch.allclose(expected[0], expected[1], atol=1e-3)


def test_threads_share_a_judge(tiny_judge):
    from concurrent.futures import ThreadPoolExecutor

    judge = tiny_judge("qwen2_5_vl")  # its rotary offsets live in the model
    images, prompts = [tiny_models.picture(seed, (40 + 30 * seed, 60)) for seed in range(4)], ["rate a"] * 4
    expected = judge.rate(images, prompts).probabilities
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda at: judge.rate([images[at % 4]], ["rate a"]).probabilities[0], range(16)))
    assert all(torch.allclose(row, expected[at % 4], atol=1e-6) for at, row in enumerate(found))
