"""Weighting against an independent float64 reference and hand-computed limits (HarmonicEval eq. 1 and 2)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rewards.harmonic.weighting import (
    expected_rating,
    harmonic_score,
    harmonic_weights,
    normalize_ratings,
    rating_deviation,
)

RATINGS = (1, 2, 3, 4, 5)


def reference(probabilities: np.ndarray, gamma: float) -> tuple[np.ndarray, ...]:
    """The paper's equations with numpy in float64, powers taken of sigma relative to the smallest."""
    ratings = np.arange(1, 6, dtype=np.float64)
    expected = probabilities @ ratings
    sigma = np.sqrt(np.einsum("...r,...r->...", (ratings - expected[..., None]) ** 2, probabilities))
    powers = (sigma / sigma.min(-1, keepdims=True)) ** (-2 * (1 - gamma) / gamma)
    weights = powers / powers.sum(-1, keepdims=True)
    return expected, sigma, weights, (weights * expected).sum(-1)


def test_agrees_with_a_float64_reference_on_10000_inputs():
    generator = np.random.default_rng(0)
    for gamma in (0.05, 0.3, 0.5, 0.75, 0.9, 1.0):
        # Concentrations from nearly one-hot to nearly uniform.
        concentration = 10 ** generator.uniform(-1.5, 1.5, (10_000, 5, 1))
        probabilities = generator.standard_gamma(np.broadcast_to(concentration, (10_000, 5, 5))) + 1e-12
        probabilities /= probabilities.sum(-1, keepdims=True)
        probabilities = probabilities.astype(np.float32).astype(np.float64)
        given_probabilities = torch.tensor(probabilities, dtype=torch.float32)
        expected, sigma, weights, overall = reference(probabilities, gamma)
        assert np.abs(expected_rating(given_probabilities, RATINGS).numpy() - expected).max() < 1e-6
        assert np.abs(rating_deviation(given_probabilities, RATINGS).numpy() - sigma).max() < 1e-6
        assert np.abs(harmonic_weights(torch.tensor(sigma), gamma).numpy() - weights).max() < 1e-6
        assert np.abs(harmonic_score(given_probabilities, RATINGS, gamma).numpy() - overall).max() < 1e-6


def test_hand_computed_values():
    probabilities = torch.tensor([[0.0, 0.0, 0.0, 0.5, 0.5], [0.5, 0.0, 0.0, 0.0, 0.5]])
    assert expected_rating(probabilities, RATINGS).tolist() == [4.5, 3.0]
    assert rating_deviation(probabilities, RATINGS).tolist() == [0.5, 2.0]
    # gamma 0.5: weights 1/0.25 : 1/4 = 16 : 1, score (16 * 4.5 + 3) / 17
    assert harmonic_weights(torch.tensor([0.5, 2.0]), 0.5).tolist() == pytest.approx([16 / 17, 1 / 17], abs=1e-7)
    assert harmonic_score(probabilities, RATINGS, 0.5).item() == pytest.approx(75 / 17, abs=1e-6)
    # gamma 0.75: exponent -2/3, weights 0.5^(-2/3) : 2^(-2/3)
    high, low = 0.5 ** (-2 / 3), 2 ** (-2 / 3)
    assert harmonic_weights(torch.tensor([0.5, 2.0]), 0.75)[0].item() == pytest.approx(high / (high + low), abs=1e-7)


def test_raw_probabilities_follow_the_paper_without_renormalising():
    probabilities = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.5]], dtype=torch.float64)
    assert expected_rating(probabilities, RATINGS).item() == 2.5
    assert rating_deviation(probabilities, RATINGS).item() == pytest.approx(math.sqrt(2.5**2 * 0.5))
    normal, mass = normalize_ratings(probabilities)
    assert (expected_rating(normal, RATINGS).item(), mass.item()) == (5.0, 0.5)


@pytest.mark.parametrize(
    ("deviations", "gamma", "weights"),
    [
        ([0.0, 1.0, 1.0, 2.0], 1.0, [0.25] * 4),
        ([0.0, 1.0, 2.0, 3.0], 0.999, [1, 0, 0, 0]),
        ([0.0, 0.0, 2.0, 3.0], 0.75, [0.5, 0.5, 0, 0]),
        ([0.0, 0.0, 0.0, 0.0], 0.75, [0.25] * 4),
        ([0.0, 0.0, 0.0, 0.0], 0.0, [0.25] * 4),
        ([2.0, 1.0, 1.0, 3.0], 0.0, [0, 0.5, 0.5, 0]),
        ([2.0, 1.0, 1.5, 3.0], 0.0, [0, 1, 0, 0]),
        ([2.0, 1.0, 1.5, 3.0], 1e-310, [0, 1, 0, 0]),
        ([2.0, 1.0, 1.5, 3.0], 1e-4, [0, 1, 0, 0]),
        ([1e-30, 1e30], 0.5, [1, 0]),
        ([1e-300, 1e300], 0.75, [1, 0]),
        ([1e-300, 1e-300], 0.1, [0.5, 0.5]),
        ([1e-300, 1e-300 * (1 + 2e-16)], 0.0, [1, 0]),  # their logarithms are equal
        ([0.5 + 1e-16, 0.5], 0.0, [0, 1]),
        ([5e-324, 5e-324, 1e-323], 0.0, [0.5, 0.5, 0]),
    ],
)
def test_limits(deviations, gamma, weights):
    found = harmonic_weights(torch.tensor(deviations, dtype=torch.float64), gamma)
    assert found.tolist() == pytest.approx(weights, abs=1e-12)


def test_approaches_its_limits():
    deviations = torch.tensor([0.3, 0.5, 1.2], dtype=torch.float64)
    assert torch.allclose(harmonic_weights(deviations, 1 - 1e-9), harmonic_weights(deviations, 1.0), atol=1e-8)
    assert torch.allclose(harmonic_weights(deviations, 0.01), harmonic_weights(deviations, 0.0), atol=1e-8)
    inverse = deviations.square().reciprocal()
    assert torch.allclose(harmonic_weights(deviations, 0.5), inverse / inverse.sum())


@given(
    hnp.arrays(np.float64, (3, 5), elements=st.one_of(st.just(0.0), st.floats(1e-300, 2.0))),
    st.floats(0, 1),
)
@settings(max_examples=300, deadline=None)
def test_weights_are_a_distribution_that_prefers_certainty(deviations, gamma):
    weights = harmonic_weights(torch.tensor(deviations), gamma)
    assert torch.isfinite(weights).all() and (weights >= 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(3, dtype=torch.float64))
    for row in range(3):
        ordered = weights[row][torch.tensor(deviations[row]).argsort(stable=True)]
        assert (ordered.diff() <= 1e-12).all()


@given(
    hnp.arrays(np.float64, (2, 4, 5), elements=st.floats(0, 1)).filter(lambda p: (p.sum(-1) > 0).all()),
    st.floats(0, 1),
    st.floats(1e-3, 1e3),
    st.permutations(range(4)),
)
@settings(max_examples=200, deadline=None)
def test_score_is_a_mean_that_ignores_order_and_scale(probabilities, gamma, scale, order):
    probabilities = torch.tensor(probabilities / probabilities.sum(-1, keepdims=True))
    score = harmonic_score(probabilities, RATINGS, gamma)
    expected = expected_rating(probabilities, RATINGS)
    assert (score <= expected.amax(-1) + 1e-9).all() and (score >= expected.amin(-1) - 1e-9).all()
    if gamma >= 0.01:  # below, float noise in equal deviations decides the selection
        assert torch.allclose(harmonic_score(probabilities[:, list(order)], RATINGS, gamma), score)
    deviation = rating_deviation(probabilities, RATINGS)
    if gamma >= 0.01:
        scaled = harmonic_weights(deviation * scale, gamma)
        assert torch.allclose(scaled, harmonic_weights(deviation, gamma), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_input_is_computed_in_full_precision(dtype):
    probabilities = torch.softmax(torch.randn(64, 5, 5, generator=torch.Generator().manual_seed(0)), -1).to(dtype)
    result = harmonic_score(probabilities, RATINGS, 0.75)
    assert result.dtype == torch.float32
    assert torch.equal(result, harmonic_score(probabilities.float(), RATINGS, 0.75))
    deviation = torch.tensor([1e-6, 1e-5], dtype=dtype)
    assert torch.equal(harmonic_weights(deviation, 0.5), harmonic_weights(deviation.float(), 0.5))


def test_float64_stays_float64_and_empty_batches_pass():
    assert harmonic_score(torch.full((2, 3, 5), 0.2, dtype=torch.float64), RATINGS, 0.75).dtype == torch.float64
    assert harmonic_score(torch.zeros(0, 3, 5), RATINGS, 0.75).shape == (0,)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan, math.inf])
def test_refuses_gamma_outside_its_range(gamma):
    with pytest.raises(ValueError, match="gamma"):
        harmonic_weights(torch.ones(3), gamma)
    with pytest.raises(ValueError, match="gamma"):
        harmonic_score(torch.full((3, 5), 0.2), RATINGS, gamma)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize("function", [expected_rating, rating_deviation, lambda p, r: harmonic_score(p, r, 0.75)])
def test_refuses_values_that_are_no_probabilities(function, value):
    probabilities = torch.full((2, 5), 0.2)
    probabilities[1, 2] = value
    with pytest.raises(ValueError, match="probabilities"):
        function(probabilities, RATINGS)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_refuses_values_that_are_no_deviations(value):
    with pytest.raises(ValueError, match="deviation"):
        harmonic_weights(torch.tensor([1.0, value]), 0.5)


@pytest.mark.parametrize("function", [expected_rating, rating_deviation, lambda p, r: harmonic_score(p, r, 0.75)])
def test_refuses_a_last_axis_that_does_not_match_the_ratings(function):
    with pytest.raises(ValueError, match=r"\(2, 5\)"):
        function(torch.full((2, 5), 0.2), (1, 2, 3))


def test_hidden_mass_widens_the_deviation_as_stated():
    """sigma^2 = sum_r (r - s)^2 P(r) + u max_r (r - s)^2, against numbers worked out by hand."""
    probabilities = torch.tensor([[0.0, 0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    unseen = torch.tensor([0.02, 0.25], dtype=torch.float64)
    found = rating_deviation(probabilities, (1, 2, 3, 4, 5), unseen)
    expected = [(0.25 + 0.02 * 3.5**2) ** 0.5, (0.25 * 2**2) ** 0.5]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert torch.equal(
        rating_deviation(probabilities, (1, 2, 3, 4, 5), torch.zeros(2)),
        rating_deviation(probabilities, (1, 2, 3, 4, 5)),
    )
    with pytest.raises(ValueError, match="unseen mass must not be negative"):
        rating_deviation(probabilities, (1, 2, 3, 4, 5), -unseen)


@given(st.data())
def test_no_distribution_of_the_hidden_mass_spreads_wider(data):
    shares = data.draw(st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5).filter(lambda row: sum(row) > 0.1))
    hidden = data.draw(st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5).filter(lambda row: sum(row) > 0.1))
    unseen = data.draw(st.floats(0.0, 0.3))
    ratings = torch.arange(1.0, 6.0, dtype=torch.float64)
    seen = torch.tensor(shares, dtype=torch.float64)
    seen = seen / seen.sum() * (1 - unseen)
    placed = torch.tensor(hidden, dtype=torch.float64)
    true = seen + placed / placed.sum() * unseen
    bound = rating_deviation(seen / (1 - unseen), ratings, torch.tensor(unseen / (1 - unseen), dtype=torch.float64))
    assert rating_deviation(true, ratings) <= bound + 1e-9
