"""What the rater's second stage is trained on: texts, pictures and labels."""

import random

import numpy as np
import pytest
import torch

from rewards.shapes.build.corruption import lazy_caption
from rewards.shapes.build.pictures import noise_pictures
from rewards.shapes.build.rater import new_processor, pack, soft_ratings
from rewards.shapes.build.rater_false_details import (
    CAPTIONS,
    NOTHING,
    Example,
    grounds_of,
    texts_about,
    unsure,
    with_backgrounds,
)
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.scenes import Scene, Shape
from rewards.shapes.truth import caption_truth
from rewards.shapes.vocabulary import WORDS

ONE = Scene((Shape("green", "triangle", (1, 1), 16.0, 16.0, 5.0),), "black")
RATINGS = torch.arange(1.0, 6.0)


@pytest.mark.parametrize(
    ("rating", "mean", "deviation"),
    [(5.0, 4.9, 0.3), (1.0, 1.1, 0.3), (3.0, 3.0, 0.1**0.5), (3.5, 3.5, 0.35**0.5)],
)
def test_smoothed_labels_keep_the_order_and_are_never_certain(rating, mean, deviation):
    label = (1 - (RATINGS - rating).abs()).clamp(min=0)[None]
    smoothed = unsure(label, share=0.1)[0]
    assert smoothed.sum().item() == pytest.approx(1)
    assert (smoothed @ RATINGS).item() == pytest.approx(mean)
    assert (smoothed @ (RATINGS - mean) ** 2).sqrt().item() == pytest.approx(deviation, abs=1e-6)


def test_grounds_stand_at_the_word_background_of_the_packed_rows():
    words = new_processor().tokenizer.get_vocab()
    examples = [
        Example(ONE, False, ["a green triangle on a black background", "a background", "a white background"]),
        Example(NOTHING, True, ["a red circle", "two red circles on a gray background", "a black background"]),
    ]
    batch = pack([e.scene for e in examples], [e.texts for e in examples], words)
    grounds = grounds_of(examples)
    assert (batch.ids[grounds.rows, grounds.columns] == words["background"]).all()
    assert grounds.rows.tolist() == [0, 0, 1, 1]
    assert grounds.holds.tolist() == [1, 0, 0, 0]
    assert grounds.seen.tolist() == [1, 1, -1, -1]  # black; nothing to be seen in noise
    nouns = len(batch.noun_rows)
    whole = with_backgrounds(batch, grounds)
    assert whole.noun_facts[nouns:].tolist() == [[-1, 1, -1, -1], *[[-1, 0, -1, -1]] * 3]
    assert len(whole.noun_cells) == len(whole.noun_rows) == nouns + 4


def test_nothing_is_right_or_complete_on_noise():
    ratings = soft_ratings([NOTHING], [["a red circle on a black background"]]) @ RATINGS
    assert ratings.tolist() == [1.0, 1.0, 5.0, 5.0, 5.0]


def test_every_picture_comes_with_right_and_near_miss_texts():
    rng = random.Random(0)
    for scene in sample_scenes("train", 50, seed=0):
        texts = texts_about(scene, ["a red circle", "a thing"], rng)
        correctness = [caption_truth(scene, text)["correctness"] for text in texts]
        assert len(texts) == CAPTIONS
        assert max(correctness) == 5
        assert min(correctness) <= 3.5


def test_lazy_captions_are_words_of_the_world():
    rng = random.Random(0)
    texts = {lazy_caption("a red circle on a white background", rng) for _ in range(300)}
    assert {word for text in texts for word in text.split()} <= set(WORDS)
    assert "a red circle on a black background" in texts
    assert len(texts) > 40
    assert isinstance(lazy_caption("", rng), str)


def test_noise_pictures_are_in_range_and_repeat_by_seed():
    made = noise_pictures(20, np.random.default_rng(3))
    assert made.min() >= -1 and made.max() <= 1
    assert (made.std((1, 2, 3)) > 0.1).all()
    np.testing.assert_array_equal(made, noise_pictures(20, np.random.default_rng(3)))
