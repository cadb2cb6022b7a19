"""The order of candidates, and rewards of every kind as scores of candidates."""

import math

import numpy as np
import pytest
from PIL import Image

from rewards.combined import Combined
from rewards.errors import InputError, RewardsError
from rewards.rerank import Item, best_of_n
from rewards.rerank.ranking import Score, rank
from rewards.rerank.selection import rank_stream


def length(prompts, completions, **columns):
    return [None if "?" in text else len(text) for text in completions]


def brightness(images, prompts, metadata=None):
    return np.array([np.asarray(image).mean() for image in images], dtype=np.float32), {"info": 1.0}


def texts(*candidates, **fields):
    return Item(candidates, image="x.png", **fields)


def grey(level):
    return Image.new("RGB", (4, 4), (level,) * 3)


def test_best_first_ties_by_position_abstentions_last():
    ranking = best_of_n(length, [texts("bb", "what?", "a", "ccc", "dd", "?")])[0]
    assert [(r.rank, r.index, r.score.overall) for r in ranking.candidates] == [
        (1, 3, 3.0), (2, 0, 2.0), (3, 4, 2.0), (4, 2, 1.0), (None, 1, None), (None, 5, None),
    ]  # fmt: skip
    assert ranking.best.candidate == "ccc" and ranking.margin == 1.0
    assert ranking.candidates[-1].score.reason == "length abstained"


def test_nothing_judged_has_no_best_and_one_candidate_no_margin():
    ranking = best_of_n(length, [texts("?", "??")])[0]
    assert ranking.judged == () and ranking.margin is None
    with pytest.raises(RewardsError, match="an item has no best candidate, none could be judged: length abstained"):
        _ = ranking.best
    assert best_of_n(length, [texts("a")])[0].margin is None


def test_float_noise_below_the_sixth_decimal_is_a_tie_and_nan_an_abstention():
    scores = [Score(0.5), Score(0.5 + 4e-8), Score(math.nan), Score(-1e-9)]
    ranking = rank(texts("a", "b", "c", "d"), scores)
    assert [r.index for r in ranking.candidates] == [0, 1, 3, 2]
    assert str(ranking.candidates[2].score.overall) == "0.0"


def test_equal_candidates_are_judged_once_and_stay_in_order():
    seen = []

    def counting(prompts, completions, **columns):
        seen.extend(completions)
        return [len(text) for text in completions]

    ranking = best_of_n(counting, [texts("aa", "b", "aa", "b")])[0]
    assert seen == ["aa", "b"]
    assert [(r.index, r.same_as) for r in ranking.candidates] == [(0, None), (2, 0), (1, None), (3, 1)]


@pytest.mark.parametrize("batch_size", [1, 3, 7, 1000])
def test_ranks_do_not_depend_on_the_batch_size_or_the_order_of_items(batch_size):
    rng = np.random.default_rng(0)
    items = [texts(*("x" * int(n) for n in rng.integers(0, 9, rng.integers(1, 6))), id=str(k)) for k in range(40)]
    expected = {r.item.id: [c.index for c in r.candidates] for r in best_of_n(length, items, batch_size=128)}
    shuffled = [items[k] for k in rng.permutation(40)]
    rankings = best_of_n(length, shuffled, batch_size=batch_size)
    assert [r.item.id for r in rankings] == [item.id for item in shuffled]
    assert {r.item.id: [c.index for c in r.candidates] for r in rankings} == expected


def test_extra_columns_reach_a_function_in_trls_convention():
    def named(prompts, completions, image, scene, **columns):
        return [1.0 if text == wanted else 0.0 for text, wanted in zip(completions, scene, strict=True)]

    items = [texts("a", "b", extra={"scene": "b"}), texts("c", "d", extra={"scene": "c"})]
    assert [r.best.candidate for r in best_of_n(named, items)] == ["b", "c"]


def test_pictures_are_ranked_and_a_broken_one_abstains():
    items = [Item((grey(10), "missing.png", grey(200)), prompt="light"), Item((grey(3), grey(2)), prompt="dark")]
    first, second = best_of_n(brightness, items)
    assert [r.index for r in first.candidates] == [2, 0, 1] and first.margin == 190
    assert "missing.png" in first.candidates[2].score.reason and second.best.index == 0


def test_weighted_reward_keeps_its_parts():
    def red(images, prompts, metadata=None):
        return [None if np.asarray(image)[0, 0, 0] == 7 else 1.0 for image in images]

    red.__name__ = "red"
    brightness.__name__ = "brightness"
    reward = Combined([brightness, red], [0.1, 1.0])
    ranking = best_of_n(reward, [Item((grey(10), grey(7), grey(20)), prompt="p")])[0]
    assert [r.index for r in ranking.candidates] == [2, 0, 1]
    assert ranking.best.score.overall == pytest.approx(3.0)
    assert ranking.best.score.parts == {"brightness": 20.0, "red": 1.0}
    assert ranking.candidates[2].score.reason == "red: red abstained"
    with pytest.raises(InputError, match="standardize"):
        list(best_of_n(Combined([red], [1.0], standardize="running"), [{"candidates": (grey(1),), "prompt": "p"}]))


def test_a_batch_that_is_refused_is_scored_item_by_item():
    def strict(prompts, completions, **columns):
        if "bad" in completions:
            raise InputError("row 3 is bad")
        return [1.0] * len(completions)

    good, bad, fine = best_of_n(strict, [texts("a", "b"), texts("bad", "c"), texts("d")])
    assert good.judged and fine.judged and not bad.judged
    assert bad.candidates[0].score.reason == "row 3 is bad"


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"candidates": ["a"], "picture": "x"}, "item 0 has unknown fields picture"),
        ({"image": "x"}, "item 0 has no candidates"),
        ({"image": "x", "candidates": []}, "item 0 has no candidates"),
        ({"image": "x", "candidates": ["a", 3]}, "item 0: candidates about a picture must be texts"),
        ({"candidates": ["a.png"]}, "item 0 has neither an image"),
        ({"image": "x", "candidates": "abc"}, "item 0: candidates are 'abc'; a list of them is needed"),
        ({"image": "x", "texts": ["a"]}, "known are box, candidates, extra, id, image, prompt, question"),
    ],
)
def test_malformed_items_are_named(item, message):
    with pytest.raises(InputError, match=message):
        best_of_n(length, [item])


def test_wrong_batch_size_wrong_count_and_what_is_no_reward_are_refused():
    with pytest.raises(InputError, match="batch_size is 0"):
        list(rank_stream(length, [texts("a")], batch_size=0))
    short = best_of_n(lambda prompts, completions, **columns: [1.0], [texts("a", "b")])[0]
    assert not short.judged and "shape (1,) for 2 samples" in short.candidates[0].score.reason
    with pytest.raises(InputError, match="int is not a reward"):
        best_of_n(3, [texts("a")])
