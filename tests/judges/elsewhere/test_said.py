"""Answers that are none, in the words of many servers: each gives up with a reason, and none is read as an answer."""

import pytest

from rewards.harmonic.thoughts import without_thoughts
from rewards.judges.elsewhere.http import GaveUp
from rewards.judges.elsewhere.said import read_answer


def said(content, **choice):
    return {"choices": [{"message": {"content": content}, **choice}]}


@pytest.mark.parametrize(
    "reason", ["error", "abort", "SAFETY", "CONTENT_FILTER", "MAX_TOKENS", "length", "function_call", "tool_calls"]
)
def test_an_answer_that_was_broken_off_is_none(reason):
    with pytest.raises(GaveUp):
        read_answer(said("tw", finish_reason=reason))


@pytest.mark.parametrize("reason", [None, "", "stop", "STOP", "eos", "end_turn"])
def test_an_answer_that_came_to_its_end(reason):
    assert read_answer(said("two", finish_reason=reason)) == "two"


def test_an_error_beside_the_words_is_no_answer():
    with pytest.raises(GaveUp, match="502"):
        read_answer(said("tw", finish_reason="stop", error={"code": 502}))


HALF = [
    "<|channel|>analysis<|message|>The picture shows", "analysisThe picture shows", "<|START_THINKING|>hm",
    "<|start|>assistant<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>hm",
]  # fmt: skip
NOTHING = ["</s>", "<|im_end|>", "<|endoftext|></s>", "<eos>", "<｜end▁of▁sentence｜>", "<answer></answer>", "[EOS]"]
HALF += ["◁think▷The picture", "<Think>hm", "[THINK]hm", "<|begin_of_thought|>hm", "<think >hm", "hm</think>two<think>"]


@pytest.mark.parametrize("content", [*HALF, *NOTHING, "\u200b", "\ufeff", " \n", ""])
def test_half_a_thought_and_nothing_visible_are_none(content):
    with pytest.raises(GaveUp):
        read_answer(said(content))


WHOLE = [
    "<Think>hm</Think>two",
    "◁think▷hm◁/think▷two",
    "[THINK]hm[/THINK]two",
    "<|begin_of_thought|>hm<|end_of_thought|>two",
    "<|START_THINKING|>hm<|END_THINKING|>two",
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>two",
    "analysisThe picture shows two.assistantfinaltwo",
]


@pytest.mark.parametrize("content", WHOLE)
def test_whole_thoughts_are_left_out_of_answers_and_of_judged_texts(content):
    assert read_answer(said(content)) == "two"
    assert without_thoughts(content).strip() == "two"


@pytest.mark.parametrize(
    "content",
    ["two</s>", "two<|im_end|>\n", "<s> two </s></s>", "<|im_start|>assistant\ntwo<|im_end|>", "two<end_of_utterance>",
     "<think>hm</think><answer>two</answer>", "<|begin_of_box|>two<|end_of_box|>", "two<｜end▁of▁sentence｜>",
     "<|start|>assistant<|channel|>final<|message|>two<|return|>"],
)  # fmt: skip
def test_control_tokens_around_an_answer_are_none_of_it(content):
    assert read_answer(said(content)) == "two"


@pytest.mark.parametrize("content", ["two</s>three", "two<|im_end|><|im_start|>user\nhow many?"])
def test_control_tokens_within_an_answer_are_no_answer(content):
    with pytest.raises(GaveUp, match="control tokens"):
        read_answer(said(content))


@pytest.mark.parametrize(
    "content",
    ["I'm sorry, but I can't assist with that.", "I’m sorry, I can’t help with identifying people.", "I cannot comply",
     "Sorry, I am unable to help with that.", "As an AI language model, I can't provide that.",
     "I'm very sorry, but I cannot answer that question.", "Unfortunately, I can't identify people."],
)  # fmt: skip
def test_a_refusal_in_words_is_no_answer(content):
    with pytest.raises(GaveUp, match="refused"):
        read_answer(said(content))


@pytest.mark.parametrize(
    "content",
    ["a sorry sign", "I can't see a dog", "I cannot see any", "sorry", "a < b", "I can see two", "[2]"],
)
def test_what_only_sounds_like_one_is_read(content):
    assert read_answer(said(content)) == content
