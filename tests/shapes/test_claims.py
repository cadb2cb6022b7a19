"""Captions by claims, counted by hand."""

import math

import pytest

from rewards.shapes.claims import caption_claims, claim_shares
from rewards.shapes.scenes import Scene, Shape

PAIR = Scene(
    (Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0), Shape("blue", "square", (2, 0), 6.5, 25.5, 5.0)), "white"
)  # a red circle above a blue square
ONE = Scene((Shape("green", "triangle", (1, 1), 16.0, 16.0, 5.0),), "black")


def test_every_kind_of_claim_is_told_apart():
    found = caption_claims(PAIR, "two red circles below a blue triangle on a black background")
    assert found.claims == (
        ("count", False), ("color", True), ("shape", True),
        ("count", True), ("color", True), ("shape", False),
        ("relation", False), ("background", False),
    )  # fmt: skip
    assert (found.right, found.complete, found.words) == (False, False, 11)


@pytest.mark.parametrize(
    ("text", "right", "complete"),
    [
        ("a red circle above a blue square on a white background", True, True),
        ("a blue square below a red circle on a white background", True, True),
        ("a red circle and a blue square on a white background", True, False),
        ("a red circle above a blue square on a white background on a black background", False, True),
        ("a thing", True, False),
        ("there is", False, False),  # says nothing, so nothing right
        ("", False, False),
    ],
)
def test_right_and_complete(text, right, complete):
    found = caption_claims(PAIR, text)
    assert (found.right, found.complete) == (right, complete)


def test_shares_of_a_set():
    shares = claim_shares(
        [PAIR, PAIR, ONE, ONE],
        [
            "a red circle above a blue square on a white background",
            "a red circle and a blue square on a black background",  # 1 of 7 false
            "a green triangle on a black background",
            "two green circles",  # 2 of 3 false
        ],
    )
    assert shares["captions_right"] == shares["captions_complete"] == shares["captions_right_and_complete"] == 0.5
    assert shares["claims_false"] == pytest.approx(3 / (8 + 7 + 4 + 3))
    assert shares["claims_false/count"] == pytest.approx(1 / 6)
    assert shares["claims_false/color"] == 0
    assert shares["claims_false/shape"] == pytest.approx(1 / 6)
    assert shares["claims_false/relation"] == 0
    assert shares["backgrounds_stated"] == 0.75
    assert shares["claims_false/background"] == pytest.approx(1 / 3)
    assert shares["backgrounds_right"] == shares["backgrounds_same"] == pytest.approx(2 / 3)
    assert shares["texts_distinct"] == 1
    assert shares["words"] == (11 + 11 + 7 + 3) / 4


def test_a_policy_that_has_stopped_looking():
    shares = claim_shares([PAIR, ONE], ["a thing on a black background"] * 2)
    assert (shares["backgrounds_same"], shares["texts_distinct"], shares["backgrounds_right"]) == (1, 0.5, 0.5)


def test_shares_of_nothing_are_nan():
    shares = claim_shares([ONE], ["a thing"])
    assert math.isnan(shares["backgrounds_right"]) and math.isnan(shares["claims_false/color"])
    assert shares["claims_false"] == 0  # "a thing" says how many, rightly


@pytest.mark.parametrize(("scenes", "texts"), [([], []), ([ONE], ["a", "b"])])
def test_no_captions_or_too_many(scenes, texts):
    with pytest.raises(ValueError, match="captions for"):
        claim_shares(scenes, texts)
