"""The gradient of choices to the pixels: value of the ordinary call, finite differences, one step uphill."""

import pytest
import torch

from rewards import load_judge
from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.judges.base import UnsupportedAbility
from rewards.shapes.oracle import Oracle
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.reward import TIFA


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    prompts = generator_prompts("test", 12, seed=3)
    store = question_store(tmp_path_factory.mktemp("world") / "questions.sqlite", prompts)
    pictures = torch.rand(12, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 0.3 + 0.6
    return TIFA(load_judge("shapes-vqa", device="cpu"), store, soft=True), pictures, prompts


def test_value_is_that_of_soft_tifa_and_the_answers_too(world):
    tifa, pictures, prompts = world
    plain, graded = tifa.score(pictures, prompts), tifa.score(pictures.clone().requires_grad_(), prompts, grad=True)
    torch.testing.assert_close(graded.overall.detach(), plain.overall, atol=2e-6, rtol=0)
    assert [row.choice for row in graded.answers] == [row.choice for row in plain.answers]
    assert graded.overall.requires_grad and tifa.differentiable


@pytest.mark.parametrize("size", [32, 48])
def test_gradient_is_that_of_finite_differences(world, size, monkeypatch):
    """Along smooth directions; rounding to 8 bits is switched off, which no difference quotient could see through."""
    from rewards.judges.answerers import gradient

    tifa, _, prompts = world
    pictures = torch.rand(12, 3, size, size, generator=torch.Generator().manual_seed(1)) * 0.3 + 0.6

    def smooth_only(judge, images):
        processor = judge.processor.image_processor
        height, width = processor.size["height"], processor.size["width"]
        if images.shape[-2:] != (height, width):
            images = torch.nn.functional.interpolate(images, (height, width), mode="bicubic", antialias=True)
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (processor.image_mean, processor.image_std))
        return (images - mean) / std

    monkeypatch.setattr(gradient, "judge_pixels", smooth_only)
    leaf = pictures.clone().requires_grad_()
    (slope,) = torch.autograd.grad(tifa.score(leaf, prompts, grad=True).overall.sum(), leaf)
    direction = slope / slope.abs().max()
    up, down = (tifa.score(pictures + h * direction, prompts, grad=True).overall.sum() for h in (1e-4, -1e-4))
    assert float(up - down) / 2e-4 == pytest.approx(float((slope * direction).sum()), rel=2e-2)


def test_one_step_uphill_raises_the_score(world):
    tifa, pictures, prompts = world
    leaf = pictures.clone().requires_grad_()
    before = tifa.score(leaf, prompts, grad=True).overall
    (slope,) = torch.autograd.grad(before.sum(), leaf)
    after = tifa.score((pictures + 0.01 * slope.sign()).clamp(0, 1), prompts).overall
    assert float((after > before.detach()).float().mean()) >= 0.95


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


def test_who_has_no_gradient_says_so(world):
    tifa, pictures, prompts = world
    oracle = TIFA(Oracle(), tifa.questions, matcher=AnswerMatcher(sentence_model=None))
    assert not oracle.differentiable
    with pytest.raises(UnsupportedAbility, match="no gradient"):
        Oracle().choose_with_grad([], [], [])
    with pytest.raises(InputError, match="soft=True"):
        TIFA(tifa.judge, tifa.questions, answer="choices").score(pictures, prompts, grad=True)
    with pytest.raises(InputError, match="no gradient"):
        FunctionReward(lambda images, prompts, metadata: [0.0] * 12).score_with_grad(pictures, prompts)
    with pytest.raises(InputError, match="one tensor"):
        tifa.score([picture.numpy() for picture in pictures], prompts, grad=True)
