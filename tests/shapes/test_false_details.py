"""One false detail: one place changed, false by the truth, and as grammatical as before."""

import random

import pytest

from rewards.shapes.build.corruption import flawed_caption
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.false_details import KINDS, criterion_of, edits, false_detail, false_details
from rewards.shapes.language import describe, read
from rewards.shapes.scenes import Scene, Shape
from rewards.shapes.truth import caption_truth

PAIR = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0), Shape("blue", "square", (2, 0), 6.5, 25.5, 5.0)), "white")
TEXT = "a red circle above a blue square on a white background"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("background", ["a red circle above a blue square on a black background",
                        "a red circle above a blue square on a gray background"]),
        ("location", ["a blue square above a red circle on a white background"]),
        ("missing", ["a blue square on a white background", "a red circle on a white background"]),
        ("relation", ["a red circle left of a blue square on a white background",
                      "a red circle right of a blue square on a white background",
                      "a red circle below a blue square on a white background"]),
        ("count", ["two red circles above a blue square on a white background",
                   "three red circles above a blue square on a white background",
                   "a red circle above two blue squares on a white background",
                   "a red circle above three blue squares on a white background"]),
        ("shape", ["a red square above a blue square on a white background",
                   "a red triangle above a blue square on a white background",
                   "a red circle above a blue circle on a white background",
                   "a red circle above a blue triangle on a white background"]),
    ],
)  # fmt: skip
def test_all_false_details_of_a_caption(kind, expected):
    assert false_details(PAIR, TEXT, kind) == expected


def test_colors_and_inventions():
    assert len(false_details(PAIR, TEXT, "color")) == 8  # four others for each of two
    invented = false_details(PAIR, TEXT, "invented")
    # 15 looks less the two that are there (those repeat a phrase and are false of nothing)
    assert len(invented) == 13
    assert "a red circle above a blue square and a green circle on a white background" in invented


def test_a_swap_that_is_still_true_is_no_false_detail():
    two = Scene(
        (Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0), Shape("blue", "circle", (2, 0), 6.5, 25.5, 5.0)), "white"
    )
    assert "a blue circle and a blue circle" in edits("a red circle and a blue circle", "color")
    assert "a blue circle and a blue circle" not in false_details(two, "a red circle and a blue circle", "color")


def test_what_is_false_already_is_left_alone():
    assert false_details(PAIR, "a green circle on a white background", "background") == [
        "a green circle on a black background",
        "a green circle on a gray background",
    ]
    assert false_details(PAIR, "a red circle on a black background", "background") == []
    assert false_details(PAIR, "three green triangles", "color") == []  # the lowest rating already


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_on_right_and_on_flawed_captions(kind):
    rng, made, changed_words = random.Random(3), 0, []
    for scene in sample_scenes("test", 200, seed=4):
        for text in (str(describe(scene)), flawed_caption(scene, rng)):
            false = false_detail(scene, text, kind, rng)
            if false is None:
                continue
            made += 1
            before, after = caption_truth(scene, text), caption_truth(scene, false)
            assert after[criterion_of(kind)] < before[criterion_of(kind)], (text, false)
            assert after["fluency"] == before["fluency"] and after["clarity"] == before["clarity"], (text, false)
            if kind == "missing":
                assert after["correctness"] >= before["correctness"], (text, false)
                assert len(read(false).phrases) == len(read(text).phrases) - 1
            if kind in ("color", "shape", "background"):
                pairs = zip(text.split(), false.split(), strict=True)
                changed_words.append(sum(a != b for a, b in pairs))
    assert made > 50
    assert set(changed_words) <= {1}


def test_the_same_seed_gives_the_same_detail():
    assert false_detail(PAIR, TEXT, "color", random.Random(1)) == false_detail(PAIR, TEXT, "color", random.Random(1))


@pytest.mark.parametrize("text", ["", "on a", "above above", "background", "a", "red red", "<img>", "a red circle and"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_text_at_all(text, kind):
    assert isinstance(false_details(PAIR, text, kind), list)


def test_an_unknown_kind():
    with pytest.raises(KeyError, match="size"):
        edits(TEXT, "size")
