"""Prompts: complete, with a five-level scale each, and substituted as data."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.errors import InputError
from rewards.harmonic.criteria import CRITERIA, TASKS, builtin_prompt, get_task, prompt_hash, render, resolve_prompts


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_task_and_criterion_has_a_prompt_with_five_levels(task, criterion):
    template = builtin_prompt(task, criterion)
    assert re.findall(r"^(\d) - ", template, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    assert template.count("{text}") == 1
    assert template.count("{input}") == TASKS[task].needs_input
    assert f"Criterion: {criterion}" in template
    noun = {"captioning": "caption", "referring": "expression"}.get(task, "answer")
    assert noun in template and template == template.strip()


@pytest.mark.parametrize("task", TASKS)
def test_what_the_criteria_share_comes_first_and_what_is_their_own_is_short(task):
    """A judge reads what is common once and the rest five times: this keeps five criteria near the cost of one."""
    templates = {criterion: builtin_prompt(task, criterion) for criterion in CRITERIA}
    common = os.path.commonprefix(list(templates.values()))  # noqa: RUF071
    assert common.endswith("\n\nCriterion: ")
    assert "{text}" in common and ("{input}" in common) == TASKS[task].needs_input
    after_text = common.partition("{text}")[2]
    assert "ends here" in after_text and "Answer with one number from 1 to 5" in after_text
    for criterion, template in templates.items():
        own = template.removeprefix(common)
        # Words, marks and line ends: within three of the tokens of Qwen's vocabulary, within ten of Llama's.
        assert len(re.findall(r"\w+|[^\w\s]|\n", own)) <= 60, (criterion, own)
        question, *levels = own.splitlines()[1:]
        assert own.splitlines()[0] == criterion and question.endswith("?") and len(set(levels)) == 5


@given(st.text(), st.text())
def test_text_and_input_are_data(text, question):
    assert render("Q {input} A {text} end", text, question) == "Q " + question + " A " + text + " end"


@pytest.mark.parametrize("text", ["{text}", "{input}", "{0}", "{}", "{{text}}", "%s", r"\1 \g<0>", "<image>", "</s>"])
def test_nothing_in_a_text_is_expanded(text):
    assert render("{text}|{input}", text, "q") == f"{text}|q"


def test_the_users_prompts_win_over_the_judges_and_those_over_the_builtin():
    beside = {"captioning": {"correctness": "{text} correctness", "fluency": "{text} fluency"}}
    task, scale = get_task("captioning"), (1, 2, 3, 4, 5)
    assert list(resolve_prompts(task, None, None, None, scale)) == list(CRITERIA)
    assert resolve_prompts(task, None, None, beside, scale) == beside["captioning"]
    mixed = resolve_prompts(task, ["fluency", "correctness"], {"fluency": "mine {text}"}, beside, scale)
    assert list(mixed.items()) == [("fluency", "mine {text}"), ("correctness", "{text} correctness")]
    # A judge with prompts for another task only is an ordinary judge here.
    assert resolve_prompts(get_task("vqa"), ["fluency"], None, beside, scale)["fluency"].startswith("Rate an answer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["wit"], None, None, (1, 2, 3, 4, 5)), "wit"),
        (([], None, None, (1, 2, 3, 4, 5)), "non-empty"),
        ((["fluency", "fluency"], None, None, (1, 2, 3, 4, 5)), "repetitions"),
        ((None, {"wit": "no place"}, None, (1, 2)), "{text}"),
        ((["fluency"], {"wit": "{text}"}, None, (1, 2, 3, 4, 5)), "wit"),
        ((None, None, None, (1, 2, 3)), "scale 1 to 5"),
        ((["clarity"], None, {"captioning": {"fluency": "{text}"}}, (1, 2, 3, 4, 5)), "clarity"),
    ],
)
def test_refuses_criteria_that_cannot_be_asked(arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        resolve_prompts(get_task("captioning"), *arguments)


def test_unknown_task_names_the_known():
    with pytest.raises(InputError, match="captioning, vqa, document, referring"):
        get_task("poetry")


def test_the_hash_changes_with_task_template_and_ratings_only():
    base = prompt_hash("vqa", {"a": "x {text}", "b": "y {text}"}, ("1", "2"))
    assert base == prompt_hash("vqa", {"b": "y {text}", "a": "x {text}"}, ("1", "2"))
    others = {
        prompt_hash("captioning", {"a": "x {text}", "b": "y {text}"}, ("1", "2")),
        prompt_hash("vqa", {"a": "x  {text}", "b": "y {text}"}, ("1", "2")),
        prompt_hash("vqa", {"a": "x {text}"}, ("1", "2")),
        prompt_hash("vqa", {"a": "x {text}", "b": "y {text}"}, ("1", "3")),
    }
    assert base not in others and len(others) == 4
