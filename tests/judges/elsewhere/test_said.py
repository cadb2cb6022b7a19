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


HALF = ["◁think▷The picture", "<Think>hm", "[THINK]hm", "<|begin_of_thought|>hm", "<think >hm", "hm</think>two<think>"]


@pytest.mark.parametrize("content", [*HALF, "\u200b", "\ufeff", " \n", ""])
def test_half_a_thought_and_nothing_visible_are_none(content):
    with pytest.raises(GaveUp):
        read_answer(said(content))


WHOLE = [
    "<Think>hm</Think>two",
    "◁think▷hm◁/think▷two",
    "[THINK]hm[/THINK]two",
    "<|begin_of_thought|>hm<|end_of_thought|>two",
]


@pytest.mark.parametrize("content", WHOLE)
def test_whole_thoughts_are_left_out_of_answers_and_of_judged_texts(content):
    assert read_answer(said(content)) == "two"
    assert without_thoughts(content).strip() == "two"
