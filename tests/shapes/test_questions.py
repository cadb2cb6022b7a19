"""The questions that a caption fixes."""

import pytest

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
