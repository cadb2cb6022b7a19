"""The parser against hand-made cases, the 15 examples in many disguises, and random text."""

# ruff: noqa: E501 - the tables show model outputs as they come, one a line

import random
import re
from collections.abc import Callable
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.tifa.normalization import normalize_answer
from rewards.tifa.questions.parsing import Parsed, parse_output
from rewards.tifa.questions.question import ELEMENT_TYPES, Question

EXAMPLES = [
    tuple(block.removeprefix("Description: ").split("\n", 1))
    for block in (files("rewards.tifa.questions") / "prompts" / "examples.txt").read_text("utf-8").strip().split("\n\n")
]


def summary(parsed: Parsed) -> list[tuple[str, frozenset[str], str, str, str]]:
    return [(q.text, frozenset(q.choices), q.answer, q.element, q.element_type) for q in parsed.questions]


def assert_valid(parsed: Parsed) -> None:
    texts = [normalize_answer(question.text) for question in parsed.questions]
    assert len(set(texts)) == len(texts)
    for question in parsed.questions:
        assert isinstance(question, Question) and question.element_type in ELEMENT_TYPES
        assert question.answer in question.choices and len(question.choices) >= 2
        assert len({normalize_answer(choice) for choice in question.choices}) == len(question.choices)
        assert isinstance(question.extra["choices_seed"], int)


def test_there_are_fifteen_examples_and_they_cover_every_type() -> None:
    assert len(EXAMPLES) == 15
    types = set()
    for prompt, output in EXAMPLES:
        parsed = parse_output(output, prompt)
        assert parsed.dropped == []
        types |= {question.element_type for question in parsed.questions}
        for header in re.findall(r"^About (.*)$", output, re.MULTILINE):
            # A yes/no question and one with four choices for every element, as listed.
            block = output.split(f"About {header}\n", 1)[1].split("\nAbout ")[0]
            two = parse_output(f"About {header}\n{block}", prompt).questions
            assert [len(question.choices) for question in two] == [2, 4] and two[0].answer == "yes"
    assert types == set(ELEMENT_TYPES)
    written = set(re.findall(r"\((\w+)\):$", "\n".join(output for _, output in EXAMPLES), re.MULTILINE))
    assert written == (set(ELEMENT_TYPES) - {"animal/human"}) | {"animal", "human"}


def test_the_right_choice_stands_anywhere_in_the_examples_and_after_parsing() -> None:
    positions = {False: [0] * 4, True: [0] * 4}
    for prompt, output in EXAMPLES:
        for line_choices, line_answer in re.findall(r"^Choices: (.*, .*, .*)\nA: (.*)$", output, re.MULTILINE):
            positions[False][line_choices.split(", ").index(line_answer)] += 1
        for question in parse_output(output, prompt).questions:
            if len(question.choices) == 4:
                positions[True][question.answer_index] += 1
    for counts in positions.values():
        assert min(counts) > 0.1 * sum(counts) and max(counts) < 0.5 * sum(counts)


def test_choices_are_shuffled_by_a_seed_that_is_kept() -> None:
    output = "About dog (animal):\nQ: which?\nChoices: a1, b2, c3, d4, e5\nA: c3"
    orders = {parse_output(output, "p", seed=seed).questions[0].choices for seed in range(20)}
    assert len(orders) > 5
    question = parse_output(output, "p", seed=3).questions[0]
    again = ["a1", "b2", "c3", "d4", "e5"]
    random.Random(question.extra["choices_seed"]).shuffle(again)
    assert list(question.choices) == again
    # A question's order does not depend on its neighbours.
    both = parse_output(f"About x (food):\nQ: other?\nChoices: y, n\nA: y\n{output}", "p", seed=3)
    assert both.questions[1] == question


RED = [("what color?", frozenset({"red", "blue"}), "red", "dot", "color")]
BIG_BEN = [("is it?", frozenset({"yes", "no"}), "yes", "Big Ben (clock)", "object")]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("About dot (color):\nQ: what color?\nChoices: red, blue\nA: red", RED),
        ("About dot (color):\nQ: what color?\nChoices:red,blue\nA: red", RED),  # FACTS: "Choices:yes,no"
        ("About dot (color)\nQ:what color?\nchoices : Red ,Blue\nA:RED.", [("what color?", frozenset({"Red", "Blue"}), "Red", "dot", "color")]),
        ("About Big Ben (clock) (object):\nQ: is it?\nChoices: yes, no\nA: yes", BIG_BEN),  # FACTS
        ("About Big Ben (clock)(object)：\nQ：is it?\nChoices：yes，no\nA：yes", BIG_BEN),
        ("**About dot (color):**\n1. **Q:** what color?\n**Choices:** red, blue\n**A:** red", RED),
        ("### About dot (color)\n- Q1: what color?\n- Options: red | blue\n- Answer: red", RED),
        ("> About dot (colour):\n> Question 1: what color?\n> Choices: [\"red\", \"blue\"]\n> Answer: \"red\"", RED),
        ("About dot (color):\nQ: what color?\nA: red\nChoices: red, blue", RED),  # wrong order
        ("About dot (color):\nQ: what color?\nChoices:\n- red\n- blue\nA: red", RED),
        ("About dot (color):\nQ: what color?\nChoices: (a) red (b) blue\nA: (a)", RED),
        ("About dot (color):\nQ: what color?\nChoices:\nA) red\nB) blue\nA: A) red", RED),
        ("About dot (color):\nQ: what color? Choices: red, blue A: red", RED),
        ("```\nAbout dot (color):\n\nQ: what color?\n\nChoices: red; blue\n\nA: red\n```", RED),
        ("<think>About x (color):\nQ: no?\nChoices: a, b\nA: a</think>\nAbout dot (color):\nQ: what color?\nChoices: red, blue\nA: red", RED),
        ("Entities: dot\nColors: red\nQuestions and answers are below:\nAbout dot (Color):\nQ: what color?\nChoices: red, blue\nA: red", RED),
        ("About dot (color):\nQ: what color?\nChoices: red, blue, Red\nA: the red", RED),
        ("About 狗 (animal)：\nQ：这是什么？\nChoices：狗、猫、鸟\nA：狗", [("这是什么？", frozenset("狗猫鸟"), "狗", "狗", "animal/human")]),
        ("About Äpfel (food):\nQ: wie viele?\nChoices: 1,000, 2, 3\nA: 1000", [("wie viele?", frozenset({"1,000", "2", "3"}), "1,000", "Äpfel", "food")]),
        ("About dots (counting):\nQ: how many?\nChoices:1,2,3,4\nA: three", [("how many?", frozenset("1234"), "3", "dots", "counting")]),
    ],
)  # fmt: skip
def test_what_models_write(output: str, expected: list[tuple]) -> None:
    parsed = parse_output(output, "a red dot")
    assert summary(parsed) == expected and parsed.dropped == []


@pytest.mark.parametrize(
    ("output", "dropped"),
    [
        ("About several (counting):", "element 'several': no questions"),  # FACTS: an element with nothing after it
        ("About several\nQ: are there?\nChoices: yes, no\nA: yes", "question 'are there?': element 'several' has no known type"),
        ("About x (weather):\nQ: is it?\nChoices: yes, no\nA: yes", "question 'is it?': element 'x' has no known type"),
        ("Q: is it?\nChoices: yes, no\nA: yes", "question 'is it?': it belongs to no element"),
        ("About x (food):\nQ: is it?\nA: yes", "question 'is it?': no choices"),
        ("About x (food):\nQ: is it?\nChoices: yes, no", "question 'is it?': no answer"),
        ("About x (food):\nQ: is it?\nChoices: yes, no\nA: ye", "question 'is it?': the answer 'ye' is not among the choices ['yes', 'no']"),
        ("About x (food):\nQ: is it?\nChoices: yes, Yes.\nA: yes", "question 'is it?': fewer than two different choices"),
        ("About x (food):\nQ:\nChoices: yes, no\nA: yes", "question '': empty"),
    ],
)  # fmt: skip
def test_what_is_dropped_is_said(output: str, dropped: str) -> None:
    parsed = parse_output(output, "p")
    assert parsed.questions == [] and parsed.dropped == [dropped]


def test_a_bad_question_costs_only_itself() -> None:
    good = "Q: {0}?\nChoices: yes, no\nA: yes\n"
    output = (
        "About x (food):\n"
        + good.format("one")
        + "Q: lost?\nA: yes\n"
        + good.format("two")
        + good.format("one")
        + "Q: cut"
    )
    parsed = parse_output(output, "p")
    assert [question.text for question in parsed.questions] == ["one?", "two?"]
    assert parsed.dropped == ["question 'lost?': no choices", "question 'one?': repeated", "question 'cut': no choices"]


def test_fields_of_two_questions_are_never_mixed() -> None:
    output = "About x (food):\nChoices: a, b\nA: a\nQ: first?\nQ: second?\nChoices: c, d\nA: c\nA: d"
    parsed = parse_output(output, "p")
    assert summary(parsed) == [("second?", frozenset("cd"), "c", "x", "food")]


def test_reading_stops_where_the_model_invents_another_description() -> None:
    prompt, output = EXAMPLES[0]
    parsed = parse_output(f"Description: {prompt}\n{output}\nDescription: A cat.\n{EXAMPLES[1][1]}", prompt)
    assert summary(parsed) == summary(parse_output(output, prompt))
    assert parsed.dropped == ["everything from 'Description: A cat.' on: another description"]


def test_a_half_line_at_the_end_is_not_taken_for_a_whole_one() -> None:
    output = "About x (counting):\nQ: how many?\nChoices: 1, 12\nA: 1"  # the model was about to write 12
    assert parse_output(output, "p", cut_off=True).questions == []
    assert parse_output(output, "p").questions[0].answer == "1"


LOSSLESS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "no blanks after colons": lambda text: text.replace(": ", ":"),
    "no blanks between choices": lambda text: re.sub(r"(?<=,) (?=.*\nA:)", "", text),
    "windows line ends": lambda text: text.replace("\n", "\r\n"),
    "empty lines": lambda text: text.replace("\n", "\n\n"),
    "indented": lambda text: re.sub("^", "    ", text, flags=re.MULTILINE),
    "trailing blanks": lambda text: text.replace("\n", "   \n"),
    "bold labels": lambda text: re.sub(r"^(Q|Choices|A):", r"**\1:**", text, flags=re.MULTILINE),
    "bold lines": lambda text: re.sub(r"^(.+)$", r"**\1**", text, flags=re.MULTILINE),
    "headings": lambda text: text.replace("About ", "## About "),
    "bullets": lambda text: re.sub(r"^(?=Q|Choices|A:)", "- ", text, flags=re.MULTILINE),
    "numbered": lambda text: re.sub(r"^Q:", "12. Q:", text, flags=re.MULTILINE),
    "numbered labels": lambda text: re.sub(r"^Q:", "Q3:", text, flags=re.MULTILINE),
    "long labels": lambda text: text.replace("Q: ", "Question: ").replace("\nA: ", "\nAnswer: ").replace("Choices", "Options"),
    "upper-case labels": lambda text: text.replace("Choices", "CHOICES"),
    "full-width colons": lambda text: re.sub(r"^(Q|Choices|A): ", r"\1：", text, flags=re.MULTILINE),
    "answers before choices": lambda text: re.sub(r"^(Choices: .*)\n(A: .*)$", r"\2\n\1", text, flags=re.MULTILINE),
    "one line": lambda text: re.sub(r"\n(?=Choices|A:)", " ", text),
    "choices one a line": lambda text: re.sub(r"^Choices: (.*)$", lambda m: "Choices:\n- " + m[1].replace(", ", "\n- "), text, flags=re.MULTILINE),
    "bars": lambda text: re.sub(r"^Choices: (.*)$", lambda m: "Choices: " + m[1].replace(", ", " | "), text, flags=re.MULTILINE),
    "brackets": lambda text: re.sub(r"^Choices: (.*)$", r"Choices: [\1]", text, flags=re.MULTILINE),
    "quoted": lambda text: re.sub(r"^A: (.*)$", r'A: "\1"', text, flags=re.MULTILINE),
    "upper-case answers": lambda text: re.sub(r"^A: (.*)$", lambda m: m[0].upper(), text, flags=re.MULTILINE),
    "full stops": lambda text: re.sub(r"^A: (.*)$", r"A: \1.", text, flags=re.MULTILINE),
    "upper-case types": lambda text: re.sub(r"\((\w+)\):$", lambda m: m[0].upper(), text, flags=re.MULTILINE),
    "no colons after elements": lambda text: re.sub(r"\):$", ")", text, flags=re.MULTILINE),
    "official headings": lambda text: f"Entities: x\nActivities:\nColors:\nCounting:\nOther attributes:\nQuestions and answers are below:\n{text}",
    "a preface": lambda text: f"Sure! Here are the questions about your description:\n\n{text}\n\nLet me know if you need more.",
    "a code block": lambda text: f"```text\n{text}\n```",
    "thoughts": lambda text: f"<think>About red (color): maybe.\nQ: hm?</think>\n{text}",
}  # fmt: skip


@pytest.mark.parametrize("disguise", LOSSLESS)
def test_disguised_outputs_lose_nothing(disguise: str) -> None:
    for prompt, output in EXAMPLES:
        plain, parsed = parse_output(output, prompt), parse_output(LOSSLESS[disguise](output), prompt)
        assert summary(parsed) == summary(plain) and parsed.dropped == [], prompt
        assert_valid(parsed)


def test_outputs_cut_off_anywhere_keep_their_beginning() -> None:
    for number, (prompt, output) in enumerate(EXAMPLES):
        whole = summary(parse_output(output, prompt))
        for end in random.Random(number).sample(range(len(output)), 15):
            parsed = parse_output(output[:end], prompt, cut_off=True)
            kept = summary(parsed)
            assert kept == whole[: len(kept)], (prompt, end)
            assert len(kept) == len(re.findall(r"^A: .*\n", output[:end], re.MULTILINE))
            assert_valid(parsed)


PIECES = st.sampled_from(
    ["About ", "About dog (animal):", "(", ")", "((", "Q: ", "Q", ":", "：", "Choices:", "Choices: yes, no", "A: yes", "A:", "a) ", "\n",
     "\n", "\n", "yes", "no", ", ", ",", "|", "**", "- ", "1. ", "Description: x", "</think>", "?", "\u2028", "\x00", "狗", "\ud800", "[]", '"']
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200), st.booleans())
def test_nothing_raises_and_kept_questions_are_valid(output: str, cut_off: bool) -> None:
    assert_valid(parse_output(output, "p", cut_off=cut_off))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_missing_lines_never_mix_questions(data: st.DataObject) -> None:
    prompt, output = data.draw(st.sampled_from(EXAMPLES))
    lines = output.split("\n")
    lost = data.draw(st.sets(st.sampled_from(range(len(lines))), max_size=12))
    # Without its "Q:" line nothing tells a question's choices from those of the one before.
    kept = [line for number, line in enumerate(lines) if number not in lost or line.startswith("Q:")]
    parsed = parse_output("\n".join(kept), prompt)
    assert_valid(parsed)
    whole = {(text, choices, answer) for text, choices, answer, _, _ in summary(parse_output(output, prompt))}
    # A question that survived has either its own choices and answer, or lost its own lines and is not kept.
    assert {(text, choices, answer) for text, choices, answer, _, _ in summary(parsed)} <= whole
