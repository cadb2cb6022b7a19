"""The five true ratings of a caption, by hand."""

import random

import pytest

from rewards.shapes.language import describe
from rewards.shapes.scenes import Scene, Shape, sample_scene
from rewards.shapes.truth import CRITERIA, caption_truth, true_overall

SCENE = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0), Shape("blue", "square", (0, 2), 25.5, 6.5, 5.0)), "white")
# Its details: number, colour and shape of two groups, the relation, the background: eight.


@pytest.mark.parametrize(
    ("text", "criterion", "expected"),
    [
        ("a red circle left of a blue square on a white background", "correctness", 5.0),
        ("a blue square right of a red circle on a white background", "correctness", 5.0),
        ("a red circle right of a blue square", "correctness", 3.5),
        ("a green circle left of a blue square", "correctness", 3.5),
        ("a red circle on a black background", "correctness", 3.5),
        ("two red circles and a blue square", "correctness", 3.5),
        ("a yellow triangle", "correctness", 1.0),  # number, colour and shape of nothing that is there
        ("a red circle", "completeness", 1 + 4 * 3 / 8),
        ("a red circle and a blue square", "completeness", 1 + 4 * 6 / 8),
        ("a red circle left of a blue square", "completeness", 1 + 4 * 7 / 8),
        ("a thing", "clarity", 3.0),
        ("a red circle and and a blue square", "clarity", 4.5),
        ("a red circle and and a blue square", "fluency", 3.5),
        ("a red circle and a blue square", "fluency", 5.0),
        ("a red circle and a red circle", "conciseness", 1.0),  # seven words where three (at least four counted) do
        ("there is a red circle", "conciseness", 3.0),
        ("a red circle left of a blue square", "conciseness", 5.0),
    ],
)
def test_by_hand(text, criterion, expected):
    assert caption_truth(SCENE, text)[criterion] == pytest.approx(expected)


def test_the_full_description_is_perfect():
    rng = random.Random(0)
    for _ in range(500):
        scene = sample_scene(rng)
        assert caption_truth(scene, str(describe(scene))) == dict.fromkeys(CRITERIA, 5.0)


def test_an_empty_text_is_the_worst():
    assert true_overall(SCENE, "  ") == 1.0


def test_a_group_is_not_counted_twice():
    one = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0),), "white")
    assert caption_truth(one, "a red circle and a red square")["correctness"] < 5
