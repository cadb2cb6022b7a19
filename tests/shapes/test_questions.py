"""The questions that a caption fixes."""

import pytest

from rewards.shapes.oracle import Seen, SeenShape, answer
from rewards.shapes.questions import questions_for


def total(caption):
    """The answer to how many objects there are, or None where that is not asked."""
    return next((q.answer for q in questions_for(caption) if q.text == "how many objects are there?"), None)


@pytest.mark.parametrize(
    ("caption", "answer"),
    [
        ("a red circle", "one"),
        ("two red circles", None),  # asked by their name already
        ("a red circle and two blue squares", "three"),
        ("two red circles and two blue squares", None),  # no word for four
    ],
)
def test_how_many_objects(caption, answer):
    assert total(caption) == answer


@pytest.mark.parametrize(
    ("caption", "asked"),
    [
        ("two red circles", {"red objects": "two", "circles": "two", "objects": "two"}),
        (
            "a red circle above a red square",  # the total is asked already
            {"red objects": "two", "circles": "one", "squares": "one"},
        ),
        (
            "two red circles and two blue circles",  # no word for four
            {"red objects": "two", "blue objects": "two"},
        ),
    ],
)
def test_surplus_is_asked_by_counting(caption, asked):
    found = questions_for(caption, surplus=True)
    assert found[: len(questions_for(caption))] == questions_for(caption)
    further = found[len(questions_for(caption)) :]
    assert {q.text: q.answer for q in further} == {f"how many {what} are there?": n for what, n in asked.items()}
    assert {q.element_type for q in further} == {"surplus"}


@pytest.mark.parametrize("extra", [("red", "square"), ("blue", "circle"), ("blue", "square"), ("red", "circle")])
def test_an_object_too_many_is_seen_by_the_oracle(extra):
    """By TIFA's own questions only where they count: two circles of one name hide a square of their colour."""
    caption = "two red circles"
    shapes = [("red", "circle"), ("red", "circle"), extra]
    seen = Seen(tuple(SeenShape(*look, 5.0 + 9 * at, 9.0) for at, look in enumerate(shapes)), "white", True)
    wrong = [q.element_type for q in questions_for(caption, surplus=True) if answer(seen, q.text) != q.answer]
    assert "surplus" in wrong
    assert ("counting" in wrong) == (extra == ("red", "circle"))
