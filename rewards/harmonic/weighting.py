"""HarmonicEval section 2 as pure functions: expected rating, deviation, harmonic weights, overall score.

Every function takes the probabilities exactly as given; whether they were renormalised over the ratings is the
caller's choice (see :func:`normalize_ratings`). Results are float32, or float64 for float64 input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def normalize_ratings(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Renormalise raw rating probabilities and report their mass.

    The paper leaves open whether P is taken over all tokens or over the ratings alone. With raw P, the mass that went
    to other tokens pulls the expected rating towards 0, so :class:`~rewards.HarmonicEval` renormalises by default.

    Args:
        probabilities: raw probabilities of the ratings, shape (..., R), non-negative.

    Returns:
        The probabilities divided by their sum, shape (..., R), and the sum (the rating mass), shape (...). Where the
        mass is 0 there is nothing to normalise and the row is NaN.

    Raises:
        ValueError: for negative, NaN or infinite probabilities.

    Example:
        >>> normalize_ratings(torch.tensor([0.2, 0.3]))
        (tensor([0.4000, 0.6000]), tensor(0.5000))
    """
    exact = _checked(probabilities, "probabilities")
    mass = exact.sum(-1)
    return _as_result(exact / mass.unsqueeze(-1), probabilities), _as_result(mass, probabilities)


def expected_rating(probabilities: Tensor, ratings: Sequence[float] | Tensor) -> Tensor:
    """The criterion-wise score: s~_c = sum_r r P(r) (HarmonicEval section 2.1).

    Args:
        probabilities: probabilities of the ratings, shape (..., C, R) (any leading shape), non-negative.
        ratings: the R numbers that the judge could answer, such as (1, 2, 3, 4, 5).

    Returns:
        Shape (..., C).

    Raises:
        ValueError: for negative, NaN or infinite probabilities, or a last axis that does not match the ratings.

    Example:
        >>> expected_rating(torch.tensor([[0.0, 0.0, 0.0, 0.5, 0.5]]), (1, 2, 3, 4, 5))
        tensor([4.5000])
    """
    exact, values = _checked_pair(probabilities, ratings)
    return _as_result(_expectation(exact, values), probabilities)


def rating_deviation(probabilities: Tensor, ratings: Sequence[float] | Tensor, unseen: Tensor | None = None) -> Tensor:
    """The deviation of the rating: sigma_c = sqrt(sum_r (r - s~_c)^2 P(r)) (HarmonicEval eq. 2).

    A chat server shows its likeliest tokens only. A short list would pass for certainty, take all of the weight, and
    make the overall score jump when a rating leaves the list. So the mass u that a list may hide from the ratings
    enters as if it lay on the rating that is farthest from s~_c: sigma_c^2 = sum_r (r - s~_c)^2 P(r) +
    u max_r (r - s~_c)^2. That is the largest second moment about s~_c that any distribution of the hidden mass gives;
    it is continuous in every listed probability, and eq. 2 itself at u = 0.

    Args:
        probabilities: probabilities of the ratings, shape (..., C, R), non-negative.
        ratings: the R numbers that the judge could answer.
        unseen: the most probability that the ratings may have beyond `probabilities`, shape (..., C), in the same unit
            (where `probabilities` were divided by their mass, divided by it too). None: nothing is hidden.

    Returns:
        Shape (..., C), at least 0; exactly 0 where all probability (1) lies on one rating and none is hidden.

    Raises:
        ValueError: as :func:`expected_rating`, also for unseen mass that is negative, NaN or infinite.

    Example:
        >>> rating_deviation(torch.tensor([[0.5, 0.0, 0.0, 0.0, 0.5]]), (1, 2, 3, 4, 5))
        tensor([2.])
        >>> rating_deviation(torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0]]), (1, 2, 3, 4, 5), unseen=torch.tensor([0.01]))
        tensor([0.4000])
    """
    exact, values = _checked_pair(probabilities, ratings)
    return _as_result(_deviation(exact, values, _checked_unseen(unseen)), probabilities)


def harmonic_weights(deviation: Tensor, gamma: float) -> Tensor:
    """The weights of the criteria: w_c = sigma_c^(-2(1-gamma)/gamma) / H (HarmonicEval eq. 1).

    Computed in log space, where the powers neither overflow nor vanish: the weights are a softmax of
    -2(1-gamma)/gamma log(sigma). gamma = 1 is uniform, gamma = 0.5 inverse variance, gamma = 0 selective (the smallest
    deviation, shared equally where several are smallest). Below gamma = 1 deviations of exactly 0 take all the
    weight and share it equally.

    Args:
        deviation: deviations of the criteria, shape (..., C), finite, at least 0.
        gamma: between uniform (1) and selective (0) weighting.

    Returns:
        Shape (..., C), in [0, 1], with sum 1 over the last axis.

    Raises:
        ValueError: for gamma outside [0, 1], and for negative, NaN or infinite deviations.

    Example:
        >>> harmonic_weights(torch.tensor([1.0, 2.0]), gamma=0.5)
        tensor([0.8000, 0.2000])
    """
    _check_gamma(gamma)
    return _as_result(_weights(_checked(deviation, "deviation"), gamma), deviation)


def harmonic_score(
    probabilities: Tensor, ratings: Sequence[float] | Tensor, gamma: float, unseen: Tensor | None = None
) -> Tensor:
    """The overall score: S = sum_c w_c s~_c (HarmonicEval eq. 1).

    Args:
        probabilities: probabilities of the ratings, shape (..., C, R), non-negative.
        ratings: the R numbers that the judge could answer.
        gamma: between uniform (1) and selective (0) weighting; the paper's default is 0.75.
        unseen: as for :func:`rating_deviation`.

    Returns:
        Shape (...), within the range of the ratings if the probabilities of every criterion sum to 1.

    Raises:
        ValueError: as :func:`expected_rating` and :func:`harmonic_weights`.

    Example:
        >>> certain, torn = [0.0, 0.0, 0.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.0, 0.5]
        >>> harmonic_score(torch.tensor([certain, torn]), (1, 2, 3, 4, 5), gamma=0.75)
        tensor(5.)
    """
    _check_gamma(gamma)
    exact, values = _checked_pair(probabilities, ratings)
    weights = _weights(_deviation(exact, values, _checked_unseen(unseen)), gamma)
    return _as_result((weights * _expectation(exact, values)).sum(-1), probabilities)


def _expectation(probabilities: Tensor, ratings: Tensor) -> Tensor:
    return (probabilities * ratings).sum(-1)


def _deviation(probabilities: Tensor, ratings: Tensor, unseen: Tensor | None) -> Tensor:
    squares = (ratings - _expectation(probabilities, ratings).unsqueeze(-1)).square()
    moment = (squares * probabilities).sum(-1)
    return (moment if unseen is None else moment + unseen * squares.amax(-1)).sqrt()


def _checked_unseen(unseen: Tensor | None) -> Tensor | None:
    return None if unseen is None else _checked(unseen, "unseen mass")


def _weights(deviation: Tensor, gamma: float) -> Tensor:
    if gamma == 1:
        return torch.full_like(deviation, 1 / max(deviation.shape[-1], 1))
    exponent = 2 * (1 - gamma) / gamma if gamma > 0 else torch.inf
    smallest = deviation.min(-1, keepdim=True).values
    # log(sigma / smallest) is 0 for the most certain criteria and infinite for the others if those have sigma = 0;
    # writing both out avoids 0/0, and inf * 0 when gamma is so small that the exponent itself overflows.
    excess = (deviation - smallest) / smallest
    # Of nearly equal deviations the logarithms may be equal, and inf * 0 would be NaN: log1p tells them apart.
    ratio = torch.where(excess < 1, excess.log1p(), deviation.log() - smallest.log())
    distance = torch.where(smallest > 0, ratio, torch.inf)
    logits = torch.where(deviation == smallest, 0.0, -exponent * distance)
    return logits.softmax(-1)


def _check_gamma(gamma: float) -> None:
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must lie in [0, 1], got {gamma}")


def _checked(values: Tensor, name: str) -> Tensor:
    if not torch.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    if (values < 0).any():
        raise ValueError(f"{name} must not be negative, got {values.min().item()}")
    return _exact(values)


def _checked_pair(probabilities: Tensor, ratings: Sequence[float] | Tensor) -> tuple[Tensor, Tensor]:
    values = torch.as_tensor(ratings, device=probabilities.device)
    if values.dim() != 1 or probabilities.dim() == 0 or probabilities.shape[-1] != len(values):
        raise ValueError(
            f"the last axis of probabilities must have one entry a rating: shape {tuple(probabilities.shape)} "
            f"against {tuple(values.shape)} ratings"
        )
    if not torch.isfinite(values).all():
        raise ValueError("ratings must be finite")
    return _checked(probabilities, "probabilities"), _exact(values)


def _exact(values: Tensor) -> Tensor:
    # A power of -2(1-gamma)/gamma multiplies the relative error of sigma, so float32 alone would miss 1e-6 at small
    # gamma; Apple's MPS has no float64.
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def _as_result(values: Tensor, like: Tensor) -> Tensor:
    return values.to(torch.float64 if like.dtype == torch.float64 else torch.float32)
