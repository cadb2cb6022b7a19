"""Rewards with a gradient to the pixels: the ordinary values, one step uphill, abstentions, sums."""

import random

import pytest
import torch
from torchvision.transforms.functional import to_tensor

from rewards import load_judge
from rewards.combined import Combined
from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.harmonic.reward import HarmonicEval
from rewards.judges.base import Judge
from rewards.shapes.oracle import Oracle
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.shapes.render import render
from rewards.shapes.scenes import sample_scene
from rewards.tifa.gradient import soft_scores
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.reward import TIFA
from rewards.tifa.vqascore import VQAScore
from tests.judges.test_gradients import uphill


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    prompts = generator_prompts("test", 12, seed=3)
    store = question_store(tmp_path_factory.mktemp("world") / "questions.sqlite", prompts)
    rng = random.Random(0)
    pictures = torch.stack([to_tensor(render(sample_scene(rng))) for _ in prompts])
    return TIFA(load_judge("shapes-vqa", device="cpu"), store, soft=True), pictures, prompts


def test_value_is_that_of_soft_tifa_and_the_answers_too(world):
    tifa, pictures, prompts = world
    plain, graded = tifa.score(pictures, prompts), tifa.score(pictures.clone().requires_grad_(), prompts, grad=True)
    torch.testing.assert_close(graded.overall.detach(), plain.overall, atol=2e-6, rtol=0)
    assert [row.choice for row in graded.answers] == [row.choice for row in plain.answers]
    assert graded.overall.requires_grad and tifa.gradient_problem is None


def test_pictures_of_other_sizes_are_resized_as_the_judge_resizes_them(world):
    tifa, _, prompts = world
    pictures = torch.rand(12, 3, 57, 41, generator=torch.Generator().manual_seed(2))
    graded = tifa.score(pictures.clone().requires_grad_(), prompts, grad=True).overall
    torch.testing.assert_close(graded.detach(), tifa.score(pictures, prompts).overall, atol=2e-6, rtol=0)


def test_row_depends_on_its_own_picture_alone(world):
    tifa, pictures, prompts = world
    leaf = pictures.clone().requires_grad_()
    (slope,) = torch.autograd.grad(tifa.score(leaf, prompts, grad=True).overall[3], leaf)
    assert slope[3].abs().sum() > 0 and slope[[i for i in range(12) if i != 3]].abs().sum() == 0


def test_a_broken_picture_abstains_and_leaves_the_others_their_gradient(world):
    tifa, pictures, prompts = world
    broken = pictures.clone()
    broken[2] = 0.0
    leaf = broken.requires_grad_()
    scores = tifa.score(leaf, prompts, grad=True)
    assert scores.abstained.tolist() == [i == 2 for i in range(12)] and scores.reasons[2]
    scores.overall[~scores.abstained].sum().backward()
    assert leaf.grad.isfinite().all() and (leaf.grad[2] == 0).all() and leaf.grad[1].abs().sum() > 0


def of(reward, pictures, prompts):
    """A reward's graded scores and their gradient, and its ordinary scores."""
    leaf = pictures.clone().requires_grad_()
    graded = reward.score_with_grad(leaf, prompts)
    (slope,) = torch.autograd.grad(graded.overall.nansum(), leaf)
    return graded, slope, reward.score(pictures, prompts)


def rises(reward, pictures, prompts):
    """The share of pictures whose ordinary score is higher one step uphill."""
    _, slope, plain = of(reward, pictures, prompts)
    after = reward.score(uphill(pictures, slope), prompts)
    return float((after.overall > plain.overall).float().mean())


@pytest.mark.parametrize("aggregate", ["arithmetic", "geometric"])
@pytest.mark.parametrize("soft", [True, "mass"])
def test_both_kinds_and_means_of_soft_tifa(world, soft, aggregate):
    tifa, pictures, prompts = world
    reward = TIFA(tifa.judge, tifa.questions, soft=soft, aggregate=aggregate)
    graded, slope, plain = of(reward, pictures, prompts)
    torch.testing.assert_close(graded.overall.detach(), plain.overall, atol=2e-6, rtol=0)
    torch.testing.assert_close(graded.parts, plain.parts, atol=2e-6, rtol=0, equal_nan=True)
    assert [row.how for row in graded.answers] == [row.how for row in plain.answers]
    assert slope.isfinite().all() and (slope.abs().amax(dim=(1, 2, 3)) > 0).all()
    assert rises(reward, pictures, prompts) >= 0.95


def test_an_answer_without_probability_has_none_of_the_geometric_mean():
    leaf = torch.tensor([0.0, 0.5, 0.2], requires_grad=True)
    rows = [(0, None), (0, None), (1, None)]
    scores = soft_scores(rows, list(leaf), 3, "geometric")
    assert scores[:2].tolist() == pytest.approx([0.0, 0.2]) and scores[2].isnan()
    scores[:2].sum().backward()
    assert leaf.grad.tolist() == pytest.approx([0.0, 0.0, 1.0])


@pytest.fixture(scope="module")
def rater():
    return load_judge("shapes-rater", device="cpu")


@pytest.mark.parametrize("options", [{}, {"gamma": 1.0}, {"normalize": False, "min_rating_mass": 0.0}])
def test_harmonic_eval_of_a_pictures_caption(world, rater, options):
    _, pictures, prompts = world
    reward = HarmonicEval(rater, **options)
    graded, slope, plain = of(reward, pictures, prompts)
    torch.testing.assert_close(graded.overall.detach(), plain.overall, atol=1e-5, rtol=0)
    assert torch.equal(graded.criteria, plain.criteria) and graded.reasons == plain.reasons
    assert slope.isfinite().all() and (slope.abs().amax(dim=(1, 2, 3)) > 0).all()
    assert rises(reward, pictures, prompts) >= 0.95


def test_certain_ratings_have_a_finite_gradient(rater):
    """The deviation of a rating that is certain is 0, and a root has no slope there."""
    reward = HarmonicEval(rater)
    logits = torch.zeros(1, len(reward.criteria), 5)
    logits[..., 3] = 200.0
    leaf = logits.requires_grad_()
    raw = leaf.softmax(-1)
    scores = reward._aggregate(raw.detach(), torch.zeros(raw.shape[:-1]), [None])
    overall = reward._overall_with_grad(raw, [0], scores)
    assert overall.item() == 4.0
    overall.sum().backward()
    assert leaf.grad.isfinite().all()


def test_vqascore(world):
    tifa, pictures, prompts = world
    reward = VQAScore(tifa.judge)
    graded, slope, plain = of(reward, pictures, prompts)
    torch.testing.assert_close(graded.overall.detach(), plain.overall, atol=2e-6, rtol=0)
    assert (slope.abs().amax(dim=(1, 2, 3)) > 0).all()


@pytest.mark.parametrize("standardize", ["none", "running"])
def test_sum_of_rewards_is_the_sum_of_gradients(world, rater, standardize):
    tifa, pictures, prompts = world
    pictures = pictures.clone()
    pictures[2] = 0.0  # TIFA abstains there
    harmonic = HarmonicEval(rater)
    both = Combined([tifa, harmonic], [2.0, 0.25], standardize=standardize)
    for part in (pictures[:6], pictures[6:]):
        both.score(part, prompts[:6])
    kept = both.state_dict()
    leaf = pictures.clone().requires_grad_()
    graded, plain = both.score_with_grad(leaf, prompts), both.for_evaluation()
    plain.rewards = both.rewards  # soft, as it trains
    torch.testing.assert_close(
        graded.overall.detach(), plain.score(pictures, prompts).overall, atol=1e-5, rtol=1e-5, equal_nan=True
    )
    assert both.state_dict() == kept and graded.overall[2].isnan()
    (slope,) = torch.autograd.grad(graded.overall[~graded.abstained].sum(), leaf)
    shares = [moments.deviation if standardize == "running" else 1.0 for moments in both._running]
    _, first, _ = of(tifa, pictures, prompts)
    _, second, _ = of(harmonic, pictures, prompts)
    expected = 2.0 * first / shares[0] + 0.25 * second / shares[1]
    expected[2] = 0.0
    torch.testing.assert_close(slope, expected, atol=1e-5, rtol=1e-3)


def test_where_one_reward_abstains_the_others_decide_with_their_gradient(world, rater):
    tifa, pictures, prompts = world
    pictures = pictures.clone()
    pictures[2] = 0.0
    both = Combined([tifa, HarmonicEval(rater)], [1.0, 1.0], on_abstain="renormalize")
    graded, slope, plain = of(both, pictures, prompts)
    torch.testing.assert_close(graded.overall.detach(), plain.overall, atol=1e-5, rtol=0)
    assert slope.isfinite().all() and slope[2].abs().sum() > 0


class Choosing(Judge):
    """A judge that chooses, as one behind a server does."""

    name = "elsewhere"

    def choose(self, images, questions, choices):
        raise NotImplementedError


def test_who_has_no_gradient_says_so(world, rater):
    tifa, pictures, prompts = world
    oracle = TIFA(Oracle(), tifa.questions, matcher=AnswerMatcher(sentence_model=None))
    hard = TIFA(tifa.judge, tifa.questions, answer="choices")
    asked = TIFA(Choosing(), tifa.questions, soft=True)
    function = FunctionReward(lambda images, prompts, metadata: [0.0] * 12)
    for reward, problem in [
        (oracle, "soft=True"),
        (hard, "soft=True"),
        (asked, "judge 'elsewhere' gives no gradient to the pixels"),
        (TIFA(tifa.judge, tifa.questions, soft=True, dependencies="soft"), "dependencies='none'"),
        (function, "no gradient to the pixels"),
        (HarmonicEval(rater, gamma=0.0), "gamma > 0"),
        (HarmonicEval(rater, task="referring", prompts={"c": "{text}"}), "boxes"),
        (Combined([tifa, function]), "no gradient to the pixels"),
    ]:
        assert problem in reward.gradient_problem
        with pytest.raises(InputError, match=problem):
            reward.score_with_grad(pictures, prompts)
    with pytest.raises(InputError, match="as tensors"):
        tifa.score([picture.numpy() for picture in pictures], prompts, grad=True)
