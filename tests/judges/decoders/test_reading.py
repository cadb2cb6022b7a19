import pytest
import torch

from rewards.judges.decoders.reading import Reading, log_probabilities, table


def test_sets_of_tokens_at_several_positions():
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    readings = [Reading((((0,),), ((1, 2), (3,), (4, 5, 6)))), Reading((((6,),),))]
    found = log_probabilities(logits.float(), table(readings)).exp()
    exact = logits.softmax(-1)
    assert found[0, 0].item() == pytest.approx(exact[0, 0].item(), abs=1e-6)
    assert found[1].tolist() == pytest.approx(
        [exact[1, [1, 2]].sum().item(), exact[1, 3].item(), exact[1, 4:].sum().item()], abs=1e-6
    )
    assert found[2].tolist() == pytest.approx([exact[2, 6].item(), 0, 0], abs=1e-6)


def test_what_is_hardly_possible_keeps_its_logarithm():
    """A float32 probability below 1e-45 is 0; its logarithm is not minus infinity."""
    logits = torch.tensor([[0.0, -200.0, -201.0]])
    found = log_probabilities(logits, table([Reading((((1, 2),),))]))
    assert found.item() == pytest.approx(-200 + torch.tensor([0.0, -1.0]).logsumexp(0).item(), abs=1e-4)


def test_a_broken_logit_is_nan():
    assert log_probabilities(torch.tensor([[float("nan"), 0.0]]), table([Reading((((1,),),))])).isnan().all()
