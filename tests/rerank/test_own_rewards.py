"""HarmonicEval and TIFA as rankers: the ranks of a plain sort by reward.score, with the parts that explain them."""

import random
from itertools import pairwise

import pytest

from rewards.errors import InputError
from rewards.harmonic.reward import HarmonicEval
from rewards.judges.loading import load_judge
from rewards.rerank import Item, best_of_n
from rewards.shapes.build.corruption import corrupt_scene, flawed_caption
from rewards.shapes.language import describe
from rewards.shapes.oracle import Oracle
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.shapes.scenes import sample_scene
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.reward import TIFA
from tests import tiny_models

from .brute_force import TOLERANCE

CANDIDATES = 8


@pytest.fixture(scope="module")
def harmonic(tmp_path_factory):
    judge = load_judge(tiny_models.save("llava", tmp_path_factory.mktemp("llava")))
    return HarmonicEval(judge, min_rating_mass=0)


@pytest.fixture
def tifa(tmp_path):
    rng = random.Random(1)
    scenes = [sample_scene(rng) for _ in range(10)]
    store = question_store(tmp_path / "q.sqlite", [str(describe(scene)) for scene in scenes])
    items = [
        Item(
            tuple(render(corrupt_scene(s, rng) if k else s) for k in range(CANDIDATES)),
            prompt=str(describe(s)),
            id=str(n),
        )
        for n, s in enumerate(scenes)
    ]
    return TIFA(Oracle(), store, matcher=AnswerMatcher(sentence_model=None)), items


def in_order(ranking, scores):
    """Whether no candidate stands before a better one; closer than the judge's noise either may come first."""
    order = [ranked.index for ranked in ranking.candidates]
    falling = all(scores[a] >= scores[b] - TOLERANCE for a, b in pairwise(order))
    return falling and sorted(order) == list(range(CANDIDATES))


@pytest.mark.parametrize("batch_size", [CANDIDATES, 20, 1000])
def test_texts_by_harmonic_eval(harmonic, batch_size):
    rng = random.Random(0)
    items = []
    for n in range(5):
        scene = sample_scene(rng)
        items.append(Item(tuple(flawed_caption(scene, rng) for _ in range(CANDIDATES)), image=render(scene), id=str(n)))
    rankings = best_of_n(harmonic, rng.sample(items, len(items)), batch_size=batch_size)
    by_id = {ranking.item.id: ranking for ranking in rankings}
    for item in items:
        scores = harmonic.score([item.image] * CANDIDATES, list(item.candidates))
        ranking = by_id[item.id]
        assert in_order(ranking, scores.overall.tolist())
        best = ranking.best
        assert best.score.parts["clarity"] == pytest.approx(scores.criteria[best.index, 2].item(), abs=1e-5)
        assert sum(best.score.details["weights"].values()) == pytest.approx(1, abs=1e-5)


def test_pictures_by_tifa(tifa):
    reward, items = tifa
    for item, ranking in zip(items, best_of_n(reward, items, batch_size=24), strict=True):
        scores = reward.score(list(item.candidates), [item.prompt] * CANDIDATES).overall.tolist()
        assert in_order(ranking, scores)
        assert ranking.best.score.overall == 1.0 and all(a["right"] for a in ranking.best.score.details["answers"])
        worst = ranking.candidates[-1].score
        wrong = next(answer for answer in worst.details["answers"] if not answer["right"])
        assert worst.overall < 1 and {"question", "answer", "choice", "element_type"} <= wrong.keys()
        assert set(worst.parts) == {question.element_type for question in reward.questions.get(item.prompt)}


def test_a_prompt_without_questions_spoils_only_its_own_item(tifa):
    reward, items = tifa
    unknown = Item(items[0].candidates, prompt="never asked about")
    first, second, third = best_of_n(reward, [items[0], unknown, items[1]])
    assert first.judged and third.judged and not second.judged
    assert "never asked about" in second.candidates[0].score.reason


def test_the_wrong_kind_of_candidates_is_refused_at_once(harmonic, tifa):
    reward, items = tifa
    with pytest.raises(InputError, match="HarmonicEval ranks texts"):
        best_of_n(harmonic, items)
    with pytest.raises(InputError, match="TIFA ranks pictures"):
        best_of_n(reward, [Item(("a", "b"), image="x.png")])
