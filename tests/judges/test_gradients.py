"""The gradient to the pixels, of every kind of judge: ordinary values, finite differences, one step uphill."""

import pytest
import torch

from rewards.errors import InputError
from rewards.judges.base import GRADIENTS, Judge, UnsupportedAbility
from rewards.judges.cache import CachedJudge
from rewards.judges.decoders.tasks import Read
from rewards.shapes.oracle import Oracle

ANSWERERS = ["blip", "vilt", "git", "blip2_opt", "blip2_t5"]
DECODERS = ["llava", "qwen2_5_vl", "idefics3"]
OTHERS = ["llava_next", "internvl", "smolvlm", "qwen2_vl", "qwen3_vl", "mistral_llava", "llava_onevision"]
KINDS = [*ANSWERERS, *DECODERS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)]
QUESTIONS = ["how many circle", "what color is the square", "is it red or blue"]
CHOICES = [["1", "2", "3"], ["red", "blue", "white"], ["yes", "no"]]
FORMS = [["2", "3"], ["red", "Red"], ["yes", "Yes"]]


def pictures(count, size=(44, 60), seed=0):
    return torch.rand(count, 3, *size, generator=torch.Generator().manual_seed(seed)) * 0.6 + 0.2


def asked(images):
    """Three questions about each picture: its tensor, the question, and what is asked of it."""
    return [image for image in images for _ in QUESTIONS], QUESTIONS * len(images)


def soft(judge, images, grad):
    """A soft score of each picture, by the mean over its questions."""
    shown, questions = asked(list(images))
    ask = judge.choose_with_grad if grad else judge.choose
    logs = ask(shown, questions, CHOICES * len(images))
    return torch.stack([log.softmax(0)[0] for log in logs]).view(-1, len(QUESTIONS)).mean(1)


def rated(judge, images, grad):
    """The expected rating on one criterion."""
    ask = judge.rate_with_grad if grad else judge.rate
    found = ask(list(images), ["Rate it from 1 to 5."] * len(images)).probabilities
    return (found / found.sum(-1, keepdim=True) * torch.arange(1.0, 6.0)).sum(-1)


def uphill(images, slope):
    """The pictures with the steepest twentieth of their pixels one of 255 levels up or down."""
    steep = slope.abs() >= slope.abs().flatten(1).quantile(0.95, dim=1).view(-1, 1, 1, 1)
    return (images + steep * slope.sign() / 255).clamp(0, 1)


def smooth_only(monkeypatch):
    """Without rounding to 8 bits, which no difference quotient could see through."""

    def smooth(exact, smooth):
        return {name: smooth[name] if getattr(smooth[name], "requires_grad", False) else exact[name] for name in exact}

    for module in ("answerers.vqa", "decoders.encoding"):
        monkeypatch.setattr(f"rewards.judges.{module}.straight_through", smooth)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_ordinary_calls(tiny_judge, kind):
    judge = tiny_judge(kind)
    leaf = pictures(2).requires_grad_()
    shown, questions = asked(list(leaf))
    plain = [image.detach() for image in shown]
    for found, expected in zip(
        judge.choose_with_grad(shown, questions, CHOICES * 2), judge.choose(plain, questions, CHOICES * 2), strict=True
    ):
        torch.testing.assert_close(found.detach(), expected, atol=1e-6, rtol=1e-6)
        assert found.requires_grad

    masses = judge.mass_with_grad(shown, questions, FORMS * 2)
    torch.testing.assert_close(masses.detach(), judge.mass(plain, questions, FORMS * 2), atol=1e-6, rtol=1e-6)
    masses.sum().backward()
    assert (leaf.grad.abs().amax(dim=(1, 2, 3)) > 0).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ANSWERERS])
def test_ratings_are_those_of_the_ordinary_call(tiny_judge, kind):
    judge = tiny_judge(kind)
    leaf, prompts = pictures(2).requires_grad_(), ["Rate it.", "Rate the circle."]
    found = judge.rate_with_grad(list(leaf), prompts)
    expected = judge.rate(list(leaf.detach()), prompts)
    torch.testing.assert_close(found.probabilities.detach(), expected.probabilities, atol=1e-6, rtol=1e-6)
    assert found.mass.requires_grad and found.reasons == expected.reasons


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_that_of_finite_differences(tiny_judge, kind, monkeypatch):
    smooth_only(monkeypatch)
    judge = tiny_judge(kind, dtype="float64")
    for score in [soft] if kind in ANSWERERS else [soft, rated]:
        leaf = pictures(2).requires_grad_()
        (slope,) = torch.autograd.grad(score(judge, leaf, grad=True).sum(), leaf)
        direction = slope / slope.norm()
        moved = ((leaf + h * direction).detach().requires_grad_() for h in (2e-3, -2e-3))
        up, down = (score(judge, there, grad=True).detach().sum() for there in moved)
        assert float(up - down) / 4e-3 == pytest.approx(float(slope.norm()), rel=2e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_uphill_raises_the_score(tiny_judge, kind):
    judge = tiny_judge(kind)
    for score in [soft] if kind in ANSWERERS else [soft, rated]:
        leaf = pictures(20, size=(32, 32)).requires_grad_()
        before = score(judge, leaf, grad=True)
        (slope,) = torch.autograd.grad(before.sum(), leaf)
        after = score(judge, uphill(leaf.detach(), slope), grad=False)
        assert int((after > before.detach()).sum()) >= 19  # of 20


@pytest.mark.parametrize("kind", ["blip", "qwen2_5_vl"])
def test_small_pictures_and_several_sizes(tiny_judge, kind):
    """Enlarged as the ordinary call enlarges them; a row depends on its own picture alone."""
    judge = tiny_judge(kind)
    small, large = (pictures(1, size)[0].requires_grad_() for size in ((16, 20), (90, 60)))
    found = judge.choose_with_grad([small, large], QUESTIONS[:2], CHOICES[:2])
    expected = judge.choose([small.detach(), large.detach()], QUESTIONS[:2], CHOICES[:2])
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.detach(), other, atol=1e-5, rtol=1e-5)
    slopes = torch.autograd.grad(found[0].sum(), (small, large), allow_unused=True)
    assert slopes[0].abs().sum() > 0 and (slopes[1] is None or slopes[1].abs().sum() == 0)


@pytest.mark.parametrize("kind", ["blip", "llava"])
def test_equal_pictures_have_gradients_of_their_own(tiny_judge, kind):
    judge, one = tiny_judge(kind), pictures(1)[0]
    twins = torch.stack([one, one]).requires_grad_()
    found = judge.choose_with_grad(list(twins), [QUESTIONS[0]] * 2, [CHOICES[0]] * 2)
    (slope,) = torch.autograd.grad(found[1][0], twins)
    assert slope[0].abs().sum() == 0 and slope[1].abs().sum() > 0


def saved_by(judge, count):
    """Numbers that autograd keeps for the backward pass while a score is made."""
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        soft(judge, pictures(count).requires_grad_(), grad=True)
    return sum(sizes)


@pytest.mark.parametrize("kind", ["blip", "llava"])
def test_activations_are_made_anew_in_the_backward_pass(tiny_judge, kind, monkeypatch):
    judge = tiny_judge(kind)
    saved = saved_by(judge, 4)
    monkeypatch.setattr(Read, "together", Read._together)
    monkeypatch.setattr(type(judge), "_choose_twice", type(judge)._choose, raising=False)
    assert saved_by(judge, 4) > 3 * saved


def test_who_has_no_gradient_says_so(tiny_judge, tmp_path):
    assert not GRADIENTS & Oracle().abilities
    with pytest.raises(UnsupportedAbility, match="no gradient to the pixels"):
        Oracle().choose_with_grad([], [], [])
    judge = tiny_judge("blip")
    assert judge.abilities & GRADIENTS == {"choose_with_grad", "mass_with_grad"}
    assert "with weights" in Judge().problem("rate_with_grad") and judge.problem("choose_with_grad") is None
    cached = CachedJudge(judge, tmp_path / "kept.sqlite")
    leaf = pictures(1).requires_grad_()
    assert cached.choose_with_grad(list(leaf), QUESTIONS[:1], CHOICES[:1])[0].requires_grad
    with pytest.raises(InputError, match=r"image 0: a gradient needs pictures as tensors \(3, H, W\)"):
        judge.choose_with_grad([pictures(1)[0].numpy()], QUESTIONS[:1], CHOICES[:1])


def test_processor_of_pil_images_leaves_no_gradient(tiny_judge, monkeypatch):
    judge = tiny_judge("blip")
    monkeypatch.setattr(judge, "takes_tensors", False)
    with pytest.raises(UnsupportedAbility, match="no gradient"):
        judge.choose_with_grad(list(pictures(1)), QUESTIONS[:1], CHOICES[:1])
