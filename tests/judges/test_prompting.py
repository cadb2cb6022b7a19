"""Templates that open a thought, and tokenizers that do not tell their control tokens."""

import pytest
import torch
from transformers import AutoProcessor

from rewards.errors import InputError
from rewards.judges.loading import load_judge
from rewards.judges.prompting import PlainText, Prompting, added_tokens
from tests import tiny_models

OPENS = "{% if add_generation_prompt %}ASSISTANT:{% endif %}"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("thinking") / "llava")


def processor_with(saved, generation_prompt: str):
    processor = AutoProcessor.from_pretrained(saved)
    assert OPENS in processor.chat_template
    processor.chat_template = processor.chat_template.replace(
        OPENS, "{% if add_generation_prompt %}ASSISTANT:" + generation_prompt + "{% endif %}"
    )
    return processor


def test_a_template_that_can_be_quiet_is_asked_to(saved):
    switch = "{% if enable_thinking is defined and not enable_thinking %}{% else %}<think>\n{% endif %}"
    assert Prompting(processor_with(saved, switch)).tail == Prompting(processor_with(saved, "")).tail


def test_an_opened_thought_is_closed_where_the_template_knows_how(saved):
    closes = "{% if false %}</think>{% endif %}<think>\n"
    assert Prompting(processor_with(saved, closes)).tail.endswith("<think>\n\n</think>\n\n")
    other = "{% if false %}[/THINK]{% endif %}[THINK]"
    assert Prompting(processor_with(saved, other)).tail.endswith("[THINK]\n\n[/THINK]\n\n")
    words = "{% if false %}<|end_of_thought|>{% endif %}<|begin_of_thought|>"
    assert Prompting(processor_with(saved, words)).tail.endswith("<|begin_of_thought|>\n\n<|end_of_thought|>\n\n")


def test_a_thought_without_an_end_is_refused(saved):
    with pytest.raises(InputError, match="opens a thought"):
        Prompting(processor_with(saved, "<think>"))


def test_a_finished_thought_is_left_alone(saved):
    assert Prompting(processor_with(saved, "<think></think>")).tail.endswith("ASSISTANT:<think></think>")


def test_a_judge_rates_after_the_thought_not_in_it(saved, tmp_path):
    processor = processor_with(saved, "{% if false %}</think>{% endif %}<think>\n")
    tiny_models.save("llava", tmp_path / "thinking")
    processor.save_pretrained(tmp_path / "thinking")
    thinking, picture = load_judge(tmp_path / "thinking"), tiny_models.picture()
    found = thinking.rate([picture], ["rate"]).probabilities[0]
    closed = thinking.prompting.render("rate")
    inputs = thinking.processor(images=[picture], text=[closed], return_tensors="pt")
    with torch.no_grad():
        expected = thinking.model(**inputs).logits[0, -1].softmax(-1)
    ids = thinking.rating_tokens(("1", "2", "3", "4", "5")).variants
    assert torch.allclose(found, torch.stack([expected[row].sum() for row in ids]), atol=1e-6)


def test_a_tokenizer_that_hides_its_control_tokens_is_refused_by_name():
    class MistralCommonBackend:
        """As transformers' class of that name, which has no `get_added_vocab`."""

        all_special_tokens = ("<s>", "[INST]")

    with pytest.raises(InputError, match=r"MistralCommonBackend.*mistral-common is not installed"):
        added_tokens(MistralCommonBackend())
    with pytest.raises(InputError, match="MistralCommonBackend"):
        PlainText(type("Processor", (), {"tokenizer": MistralCommonBackend()})())
