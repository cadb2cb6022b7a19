"""What captions mean, and that any text can be read."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.shapes.language import Description, Phrase, describe, read, vary
from rewards.shapes.questions import meaning
from rewards.shapes.scenes import Scene, Shape, relation, sample_scene
from rewards.shapes.vocabulary import WORDS


def test_a_caption_reads_back_as_what_it_was_made_from():
    rng = random.Random(0)
    for _ in range(1000):
        said = vary(describe(sample_scene(rng)), rng)
        reading = read(str(said))
        assert (reading.phrases, reading.faults, reading.vague, reading.filler) == (said.phrases, 0, 0, 0)
        assert meaning(str(said)) == said


@given(st.lists(st.sampled_from(WORDS), max_size=30), st.text(max_size=40))
def test_any_text_can_be_read(words, text):
    for anything in (" ".join(words), text):
        reading = read(anything)
        assert len(reading.phrases) == len(reading.noun_positions)
        assert all(left + 1 < len(reading.phrases) for left, _ in reading.relations)


@pytest.mark.parametrize(
    ("text", "faults", "vague", "filler"),
    [
        ("a red circle", 0, 0, 0),
        ("a red circles", 1, 0, 0),  # number
        ("two red circle", 1, 0, 0),
        ("red circle", 1, 0, 0),  # no article
        ("a red red circle", 1, 0, 0),
        ("a red circle and", 1, 0, 0),
        ("and a red circle", 1, 0, 0),
        ("a red circle a blue square", 1, 0, 0),  # no connector
        ("a red circle on white background", 1, 0, 0),
        ("a thing", 0, 1, 0),
        ("some red circles", 0, 1, 0),
        ("a circle", 0, 1, 0),
        ("there is a red circle", 0, 0, 2),
        ("this is a picture of a red circle", 0, 0, 5),
        ("blorp", 2, 0, 0),  # an unknown word, and no phrase
    ],
)
def test_faults_vagueness_and_filler_are_counted(text, faults, vague, filler):
    reading = read(text)
    assert (reading.faults, reading.vague, reading.filler) == (faults, vague, filler)


def test_relations_join_the_phrases_around_them():
    reading = read("a red circle left of a blue square and a green triangle")
    assert reading.relations == ((0, "left of"),)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [((0, 0), (0, 2), "left of"), ((2, 1), (0, 1), "below"), ((0, 0), (2, 2), None), ((0, 2), (1, 0), "right of")],
)
def test_relation_goes_by_the_longer_axis(a, b, expected):
    assert relation(a, b) == expected


def test_equal_meanings_have_one_key_and_split():
    red, blue = Phrase(1, "red", "circle"), Phrase(1, "blue", "square")
    above, below = Description((red, blue), "above", "white"), Description((blue, red), "below")
    assert above.key() == below.key()
    assert Description((red, blue)).key() == Description((blue, red)).key()
    assert above.split() == below.split()


def test_describe_names_groups_relation_and_background():
    scene = Scene(
        (Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0), Shape("blue", "square", (2, 0), 6.5, 25.5, 5.0)), "gray"
    )
    assert str(describe(scene)) == "a red circle above a blue square on a gray background"
