from collections.abc import Callable

import pytest

from rewards.tifa.questions.checking import check_questions
from rewards.tifa.questions.question import Question

Ask = Callable[..., Question]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"text": "what color is the red dot?", "choices": ("red", "blue")}, "answer in question"),
        ({"text": "what color?", "choices": ("red", "blue", "Blue.")}, "equal choices"),
        ({"text": "what color?", "choices": ("red",)}, "single choice"),
        ({"text": "what color?", "choices": ("red", "Red", "RED."), "answer": "rEd"}, "several right choices"),
        ({"text": "what color?", "choices": ("green", "blue"), "answer": "blue"}, "color not among choices"),
        ({"text": "what color?", "choices": ("shiny", "dull"), "answer": "dull"}, "no color among choices"),
        (
            {"text": "how many?", "choices": ("few", "many"), "answer": "few", "element_type": "counting"},
            "no number among choices",
        ),
        ({"text": "is it?", "choices": ("yes", "no"), "answer": "yes", "element_type": "mood"}, "unknown element type"),
    ],
)  # fmt: skip
def test_each_suspicion_is_found(fields: dict, kind: str, ask: Ask) -> None:
    question = ask(**({"answer": "red"} | fields))
    assert kind in [found.kind for found in check_questions([question])]


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "what color?", "choices": ("dark red", "blue"), "answer": "dark red"},
        {"text": "is the dot red or blue?", "choices": ("red", "blue"), "answer": "red"},
        {"text": "is it red?"},
        {"text": "how many dots?", "choices": ("two", "4"), "answer": "4", "element_type": "counting"},
        {"text": "are there two dots?", "element_type": "counting"},
        {"text": "is the carpet red?", "choices": ("car", "pet"), "answer": "car", "element_type": "object"},
    ],
)
def test_ordinary_questions_are_left_alone(fields: dict, ask: Ask) -> None:
    assert check_questions([ask(**fields)]) == []


def test_a_prompt_that_is_always_answered_yes(ask: Ask) -> None:
    always, mixed = [ask("q1"), ask("q2")], [ask("q1", id="b"), ask("q2", answer="no", id="b")]
    found = check_questions([*always, *mixed])
    assert [(one.id, one.question, one.kind) for one in found] == [("s_1", None, "always yes")]


def test_right_answers_that_come_first_in_most_questions(ask: Ask) -> None:
    questions = [ask(f"q{n}", ("red", "blue"), "red" if n % 5 else "blue", id=str(n)) for n in range(25)]
    assert [one.kind for one in check_questions(questions)] == ["answer comes first"]
    turned = [ask(f"q{n}", ("red", "blue") if n % 2 else ("blue", "red"), "red", id=str(n)) for n in range(25)]
    assert check_questions(turned) == []


def test_the_other_forms_are_known(ask: Ask) -> None:
    asked = [
        ask("how many?", (), "two", element_type="count"),
        ask("is it left?", (), "yes", element_type="position"),
        ask("is there a car?", element_type="entity.whole", id="d", extra={"dsg": []}),
        ask("is the car red?", element_type="attribute.color", id="d", extra={"dsg": []}),
    ]
    assert check_questions(asked) == []
    assert [one.kind for one in check_questions([ask(element_type="colours.bright")])] == ["unknown element type"]
