"""PPO's pure functions against direct sums and hand-computed values."""

import math

import pytest
import torch

from rewards.trainers.language.ppo_math import (
    clipped_value_loss,
    explained_variance,
    generalized_advantages,
    masked_moments,
    token_rewards,
    whiten,
)


def lengths_mask(lengths: list[int], size: int) -> torch.Tensor:
    return (torch.arange(size) < torch.tensor(lengths).unsqueeze(1)).long()


def direct_advantages(rewards, values, length, gamma, lam):
    """A_t as the double sum of its definition: weights lam^(n-1) over n-step advantages, the rest on the longest."""
    out = []
    for t in range(length):
        total, weight_left = 0.0, 1.0
        for n in range(1, length - t + 1):
            steps = sum(gamma**k * rewards[t + k] for k in range(n))
            bootstrap = gamma**n * values[t + n] if t + n < length else 0.0
            last = n == length - t
            weight = weight_left if last else (1 - lam) * lam ** (n - 1)
            weight_left -= weight
            total += weight * (steps + bootstrap - values[t])
        out.append(total)
    return out


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("lam", [1.0, 0.95, 0.3, 0.0])
def test_advantages_equal_the_direct_sum_over_n_step_advantages(gamma, lam):
    generator = torch.Generator().manual_seed(0)
    lengths = [7, 3, 1, 0]
    mask = lengths_mask(lengths, 7)
    rewards, values = torch.randn(2, 4, 7, generator=generator, dtype=torch.float64)
    advantages, returns = generalized_advantages(rewards, values, mask, gamma, lam)
    for row, length in enumerate(lengths):
        expected = direct_advantages(rewards[row].tolist(), values[row].tolist(), length, gamma, lam)
        assert advantages[row, :length].tolist() == pytest.approx(expected, abs=1e-12)
        assert returns[row, :length].tolist() == pytest.approx((advantages + values)[row, :length].tolist())
        assert (advantages[row, length:] == 0).all() and (returns[row, length:] == 0).all()


def test_lambda_one_returns_are_the_discounted_rewards_whatever_the_values():
    rewards = torch.tensor([[0.0, 0.0, 2.0]])
    _, returns = generalized_advantages(rewards, torch.tensor([[5.0, -3.0, 1.0]]), torch.ones(1, 3), 0.5, 1.0)
    assert torch.allclose(returns, torch.tensor([[0.5, 1.0, 2.0]]))


def test_padding_holds_nothing_that_counts():
    mask = lengths_mask([2], 4)
    rewards, values = torch.tensor([[1.0, 2.0, 99.0, 99.0]]), torch.tensor([[0.5, 0.5, 77.0, 77.0]])
    short = generalized_advantages(rewards[:, :2], values[:, :2], mask[:, :2], 0.9, 0.8)
    long = generalized_advantages(rewards, values, mask, 0.9, 0.8)
    assert torch.equal(long[0][:, :2], short[0]) and torch.equal(long[1][:, :2], short[1])


def test_the_score_goes_to_the_last_token_and_the_kl_to_every_token():
    mask = lengths_mask([3, 1, 0], 3)
    log_probs = torch.tensor([[-1.0, -2.0, -3.0]] * 3)
    reference = torch.tensor([[-1.5, -1.0, -3.0]] * 3)
    rewards = token_rewards(torch.tensor([4.0, 2.0, 9.0]), log_probs, reference, mask, kl_coef=0.1)
    assert torch.allclose(rewards, torch.tensor([[-0.05, 0.1, 4.0], [1.95, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert torch.equal(
        token_rewards(torch.tensor([4.0, 2.0, 9.0]), log_probs, None, mask, kl_coef=0.1),
        torch.tensor([[0.0, 0.0, 4.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    )


def test_value_loss_by_hand():
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    old, returns = torch.zeros(1, 4), torch.full((1, 4), 2.0)
    values = torch.tensor([[0.1, 1.0, 3.0, 50.0]])
    # In range: (0.1-2)^2. Beyond: the clipped 0.2 is farther from 2 than 1.0 is, and than 3.0 is: (0.2-2)^2 twice.
    loss, clipped = clipped_value_loss(values, old, returns, mask, cliprange_value=0.2)
    assert loss.item() == pytest.approx(0.5 * (1.9**2 + 1.8**2 + 1.8**2) / 3)
    assert clipped.item() == pytest.approx(2 / 3)
    nothing = clipped_value_loss(values, old, returns, torch.zeros(1, 4), 0.2)
    assert nothing[0] == 0 and nothing[1] == 0


def test_a_value_beyond_its_clip_range_gets_no_gradient_towards_the_return():
    values = torch.tensor([[0.5]], requires_grad=True)
    loss, _ = clipped_value_loss(values, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1), 0.2)
    loss.backward()
    assert values.grad is not None and values.grad.item() == 0


def test_whitening_over_two_processes_equals_one():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(8, 5, generator=generator) * 3 + 1e3
    mask = lengths_mask([5, 4, 3, 2, 1, 0, 5, 5], 5)
    whole = whiten(values, mask, masked_moments(values, mask))
    shared = masked_moments(values[:4], mask[:4]) + masked_moments(values[4:], mask[4:])
    halves = torch.cat([whiten(values[:4], mask[:4], shared), whiten(values[4:], mask[4:], shared)])
    assert torch.allclose(whole, halves, atol=1e-6)
    chosen = whole[mask.bool()]
    assert chosen.mean().abs() < 1e-4 and (chosen.std(correction=0) - 1).abs() < 1e-4
    assert (whole[~mask.bool()] == 0).all()
    constant = torch.full((2, 2), 7.0)
    assert whiten(constant, torch.ones(2, 2), masked_moments(constant, torch.ones(2, 2))).abs().max() < 1e-3


def test_explained_variance():
    returns, mask = torch.tensor([1.0, 2.0, 3.0, 100.0]), torch.tensor([1, 1, 1, 0])

    def of(values, returns=returns):
        return explained_variance(masked_moments(returns - values, mask), masked_moments(returns, mask))

    assert of(torch.full((4,), 9.0)) == pytest.approx(0.0)
    assert of(returns) == 1.0
    assert of(torch.tensor([1.5, 2.0, 2.5, 0.0])) == pytest.approx(0.75)
    assert math.isnan(of(returns, torch.ones(4)))
    assert math.isnan(explained_variance(torch.zeros(3), torch.zeros(3)))


@pytest.mark.parametrize("seed", range(20))
def test_tokens_that_the_policy_did_not_write_change_nothing(seed):
    """What a tool answered lies between a policy's tokens: with it left out, all numbers are the same."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(1, 9, generator=generator) < 0.6).float()
    own = mask[0].bool()
    values, log_probs, reference = (torch.randn(1, 9, generator=generator) for _ in range(3))
    scores = torch.tensor([3.0])
    rewards = token_rewards(scores, log_probs, reference, mask, 0.1)
    advantages, returns = generalized_advantages(rewards, values, mask, gamma=0.9, lam=0.8)
    dense = torch.ones(1, int(own.sum()))
    alone = token_rewards(scores, log_probs[:, own], reference[:, own], dense, 0.1)
    expected = generalized_advantages(alone, values[:, own], dense, gamma=0.9, lam=0.8)
    assert torch.allclose(rewards[:, own], alone) and (rewards[:, ~own] == 0).all()
    for found, wanted in zip((advantages, returns), expected):
        assert torch.allclose(found[:, own], wanted, atol=1e-6) and (found[:, ~own] == 0).all()
