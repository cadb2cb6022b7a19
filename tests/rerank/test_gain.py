"""Best-of-k: the closed form against enumeration of all subsets, ties and abstentions included."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.errors import InputError
from rewards.rerank import Item
from rewards.rerank.gain import best_of_k_probabilities, gain_curves
from rewards.rerank.ranking import Score, rank


def enumerated(scores, k):
    """Chance of being chosen over all k-subsets; equal best ones share, abstentions are never chosen."""
    chance = np.zeros(len(scores))
    subsets = list(itertools.combinations(range(len(scores)), k))
    for subset in subsets:
        judged = [n for n in subset if scores[n] is not None]
        if judged:
            top = max(scores[n] for n in judged)
            best = [n for n in judged if scores[n] == top]
            chance[best] += 1 / len(best)
    return chance / len(subsets)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 4).map(float)), min_size=1, max_size=7))
def test_probabilities_equal_enumeration_in_total_and_tied_candidates_share_alike(scores):
    chance = best_of_k_probabilities(scores)
    for k in range(1, len(scores) + 1):
        expected = enumerated(scores, k)
        # Equal scores share alike, so that it is the sum over a tied group that enumeration fixes.
        for value in {score for score in scores if score is not None}:
            group = [n for n, score in enumerate(scores) if score == value]
            assert chance[k - 1][group].sum() == pytest.approx(expected[group].sum())
            assert np.ptp(chance[k - 1][group]) < 1e-12
        assert all(chance[k - 1][n] == 0 for n, score in enumerate(scores) if score is None)


def ranking(scores, parts=None):
    item = Item(tuple(f"t{n}" for n in range(len(scores))), image="x")
    return rank(item, [Score(s, parts[n] if parts else {}) for n, s in enumerate(scores)])


def test_judge_and_held_out_curves_by_hand():
    judge = ranking([1.0, 2.0, 3.0], parts=[{"clarity": c} for c in (5.0, 1.0, 3.0)])
    oracle = ranking([3.0, 1.0, 2.0])
    curves = gain_curves([judge], {"oracle": [oracle]}, resamples=5).curves
    assert [p.value for p in curves["overall"]] == pytest.approx([2.0, 8 / 3, 3.0])
    # k=2: {0,1}->1, {0,2}->2, {1,2}->2: oracle (1+2+2)/3; clarity (1+3+3)/3.
    gains = gain_curves([judge], {"oracle": [oracle]}, resamples=5).gains
    assert [p.value for p in gains["oracle"]] == pytest.approx([0.0, -1 / 3, 0.0])
    assert gains["oracle"][0].low == gains["oracle"][0].high == 0
    assert [p.value for p in curves["oracle"]] == pytest.approx([2.0, 5 / 3, 2.0])
    assert [p.value for p in curves["clarity"]] == pytest.approx([3.0, 7 / 3, 3.0])


def test_the_estimator_is_unbiased():
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(1500, 6))
    curves = gain_curves([ranking(list(row)) for row in pool], resamples=5).curves["overall"]
    for k in (1, 2, 4):
        drawn = pool[:, :k].max(axis=1)
        assert curves[k - 1].value == pytest.approx(drawn.mean(), abs=4 * drawn.std() / math.sqrt(1500))


def test_items_without_a_choice_are_left_out_and_abstentions_do_not_count_as_zero():
    curves = gain_curves([ranking([1.0]), ranking([2.0, None]), ranking([4.0, 6.0])], resamples=5)
    assert curves.items == 2 and curves.k == [1, 2]
    assert [p.value for p in curves.curves["overall"]] == pytest.approx([(2 + 5) / 2, (2 + 6) / 2])


def test_no_choice_at_all_and_rankings_of_other_items_are_refused():
    with pytest.raises(InputError, match="no item has two candidates"):
        gain_curves([ranking([1.0])])
    with pytest.raises(InputError, match="'oracle' are of other items"):
        gain_curves([ranking([1.0, 2.0])], {"oracle": [ranking([1.0])]})


def test_interval_narrows_with_items():
    rng = np.random.default_rng(1)
    widths = []
    for n in (20, 320):
        point = gain_curves([ranking(list(row)) for row in rng.normal(size=(n, 4))]).curves["overall"][3]
        widths.append(point.high - point.low)
    assert widths[1] < 0.5 * widths[0]
