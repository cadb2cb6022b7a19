"""PPO on texts as pure functions: token rewards, generalised advantages, the clipped value loss.

Names: Schulman et al. 2016 (GAE), Schulman et al. 2017 (PPO), Ziegler et al. 2019 (the KL in the reward). Shapes: B
texts, T tokens; the mask is 1 on the tokens that the policy wrote.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def token_rewards(
    scores: Tensor, log_probs: Tensor, reference_log_probs: Tensor | None, mask: Tensor, kl_coef: float
) -> Tensor:
    """The reward of each token: the text's score on its last token, less the KL to the reference on every token.

    r_t = -kl_coef (log pi(y_t) - log pi_ref(y_t)) + [t = last] score (Ziegler et al. 2019, eq. 2).

    Args:
        scores: rewards of the texts, shape (B,).
        log_probs: log-probabilities of the tokens under the sampling policy, shape (B, T).
        reference_log_probs: under the reference, shape (B, T); None for no KL.
        mask: shape (B, T).
        kl_coef: weight of the KL.

    Returns:
        Shape (B, T), 0 where the mask is 0. A text without tokens gets no reward.

    Example:
        >>> token_rewards(torch.tensor([2.0]), torch.zeros(1, 3), None, torch.tensor([[1, 1, 0]]), 0.1)
        tensor([[0., 2., 0.]])
    """
    mask = mask.to(log_probs.dtype)
    rewards = torch.zeros_like(log_probs)
    if reference_log_probs is not None:
        rewards = -kl_coef * (log_probs - reference_log_probs) * mask
    places = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask > 0, places, -1).amax(1)
    rows = torch.nonzero(last >= 0).flatten()
    return rewards.index_put((rows, last[rows]), scores[rows].to(rewards.dtype), accumulate=True)


def generalized_advantages(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Advantages and returns (GAE eq. 11-16).

    A_t = sum_l (gamma lam)^l delta_{t+l} with delta_t = r_t + gamma V_{t+1} - V_t; the return is A_t + V_t.
    The text ends with its last token: nothing is bootstrapped from beyond it.

    Args:
        rewards: shape (B, T).
        values: value of the state before each token, shape (B, T).
        mask: shape (B, T). Tokens that a policy did not write (what a tool answered) may lie between its own: the
            state after one of its tokens is the one before its next.
        gamma: discount, in [0, 1].
        lam: GAE's lambda, in [0, 1].

    Returns:
        Advantages and returns (advantage + value), each of shape (B, T), 0 where the mask is 0.

    Example:
        >>> ones = torch.ones(1, 2)
        >>> generalized_advantages(torch.tensor([[0.0, 1.0]]), 0 * ones, ones, gamma=1.0, lam=0.5)[0]
        tensor([[0.5000, 1.0000]])
    """
    advantages = torch.zeros_like(values)
    running = next_values = torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        counts = mask[:, t] > 0
        deltas = rewards[:, t] + gamma * next_values - values[:, t]
        running = torch.where(counts, deltas + gamma * lam * running, running)
        next_values = torch.where(counts, values[:, t], next_values)
        advantages[:, t] = torch.where(counts, running, 0.0)
    return advantages, advantages + values * mask.to(values.dtype)


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, cliprange_value: float
) -> tuple[Tensor, Tensor]:
    """Half the squared error of the values, not rewarding moves beyond the clip range.

    1/2 mean max((V - R)^2, (clip(V, V_old +- c) - R)^2): the value loss of OpenAI's PPO ("PPO2") and of TRL's.

    Args:
        values: new values, shape (B, T).
        old_values: values at sampling, shape (B, T).
        returns: targets, shape (B, T).
        mask: tokens that count, shape (B, T).
        cliprange_value: c.

    Returns:
        The loss, and the share of tokens where the clipped term decides; both 0 if no token counts.

    Example:
        >>> one = torch.ones(1, 1)
        >>> clipped_value_loss(3 * one, 0 * one, 4 * one, one, cliprange_value=1.0)[0]
        tensor(4.5000)
    """
    mask = mask.to(values.dtype)
    clipped = old_values + (values - old_values).clamp(-cliprange_value, cliprange_value)
    plain, bounded = (values - returns).square(), (clipped - returns).square()
    count = mask.sum().clamp(min=1)
    loss = 0.5 * (torch.maximum(plain, bounded) * mask).sum() / count
    return loss, ((bounded > plain).to(values.dtype) * mask).sum() / count


def masked_moments(values: Tensor, mask: Tensor) -> Tensor:
    """Sum, sum of squares and count of the values where the mask is 1: float64, shape (3,), addable over processes.

    Example:
        >>> masked_moments(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([1, 1, 0])).tolist()
        [3.0, 5.0, 2.0]
    """
    exact = torch.float32 if values.device.type == "mps" else torch.float64
    weight, values = mask.to(exact), values.to(exact)
    return torch.stack([(values * weight).sum(), (values.square() * weight).sum(), weight.sum()])


def whiten(values: Tensor, mask: Tensor, moments: Tensor) -> Tensor:
    """Values shifted and scaled to mean 0 and variance 1 by given moments, 0 where the mask is 0.

    Args:
        values: any shape.
        mask: same shape.
        moments: of :func:`masked_moments`, summed over processes.

    Example:
        >>> mask = torch.ones(2)
        >>> whiten(torch.tensor([1.0, 3.0]), mask, masked_moments(torch.tensor([1.0, 3.0]), mask))
        tensor([-1.,  1.])
    """
    total, squares, count = moments.unbind()
    count = count.clamp(min=1)
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
    return (((values - mean) / (deviation + 1e-8)) * mask).to(values.dtype)


def explained_variance(errors: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns) over the tokens that count; NaN if the returns do not vary.

    Args:
        errors: moments (see :func:`masked_moments`) of returns - values, summed over processes.
        returns: moments of the returns.

    Example:
        >>> mask, returns = torch.ones(4), torch.arange(4.0)
        >>> explained_variance(masked_moments(returns - returns, mask), masked_moments(returns, mask))
        1.0
    """
    error, target = _variance(errors), _variance(returns)
    # Rounding leaves a variance of about 1e-16 of the squares where nothing varies.
    return 1 - error / target if target > 1e-12 * max(returns[1].item(), 1e-300) else math.nan


def _variance(moments: Tensor) -> float:
    total, squares, count = moments.tolist()
    return max(squares / count - (total / count) ** 2, 0.0) if count else 0.0
