"""The oracle reads what was drawn, and says so when a shape is malformed."""

import random

import numpy as np
import pytest
from scipy import ndimage

from rewards.errors import RewardsError
from rewards.judges.base import UnsupportedAbility
from rewards.shapes.language import describe, vary
from rewards.shapes.oracle import Oracle, Seen, SeenShape, answer, look
from rewards.shapes.questions import ELEMENT_TYPES, questions_for
from rewards.shapes.render import render, render_array
from rewards.shapes.scenes import sample_scene


@pytest.fixture(scope="module")
def world():
    rng = random.Random(3)
    scenes = [sample_scene(rng) for _ in range(400)]
    return scenes, render_array(scenes), [questions_for(str(vary(describe(scene), rng))) for scene in scenes]


def share_right(pictures, questions):
    hits = [answer(look(p), q.text) == q.answer for p, row in zip(pictures, questions) for q in row]
    return np.mean(hits)


def test_right_on_clean_pictures(world):
    _, pictures, questions = world
    assert share_right(pictures, questions) >= 0.99
    assert all(look(p).sure for p in pictures)


def test_tolerant_of_blur(world):
    _, pictures, questions = world
    assert share_right(ndimage.gaussian_filter(pictures, (0, 0.8, 0.8, 0)), questions) >= 0.98


def test_wrong_pictures_score_lower(world):
    _, pictures, questions = world
    assert share_right(np.roll(pictures, 1, 0), questions) < 0.6


def test_every_element_type_is_asked(world):
    assert {q.element_type for row in world[2] for q in row} == set(ELEMENT_TYPES)


def test_a_malformed_blob_has_no_shape():
    picture = render_array([sample_scene(random.Random(0))])
    picture[:] = -1
    picture[0, 8:11, 4:28] = np.array((225, 35, 35)) / 127.5 - 1  # a bar
    seen = look(picture[0])
    assert not seen.sure
    assert [s.shape for s in seen.shapes] == [None]
    assert answer(seen, "is there a red square?") == "no"


TWO = Seen((SeenShape("red", "circle", 6, 6), SeenShape("blue", "square", 25, 6)), "white", True)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("is there a red circle?", "yes"),
        ("is there a red square?", "no"),
        ("what color is the square?", "blue"),
        ("what color is the triangle?", "none"),
        ("what shape is the red object?", "circle"),
        ("what shape is the green object?", "none"),
        ("how many objects are there?", "two"),
        ("how many red circles are there?", "one"),
        ("how many triangles are there?", "zero"),
        ("is the red circle left of the blue square?", "yes"),
        ("is the red circle above the blue square?", "no"),
        ("where is the blue square relative to the red circle?", "right"),
        ("where is the green square relative to the red circle?", "none"),
        ("what color is the background?", "white"),
    ],
)
def test_answers_by_hand(question, expected):
    assert answer(TWO, question) == expected


def test_the_oracle_is_a_judge():
    scene = sample_scene(random.Random(1))
    picture = render(scene)
    assert Oracle().answer([picture, picture], ["what color is the background?"] * 2) == [scene.background] * 2
    with pytest.raises(UnsupportedAbility):
        Oracle().rate([picture], ["a red circle"])


def test_pictures_of_another_world_are_refused():
    from PIL import Image

    with pytest.raises(RewardsError, match="32"):
        Oracle().answer([Image.new("RGB", (64, 64))], ["what color is the background?"])
