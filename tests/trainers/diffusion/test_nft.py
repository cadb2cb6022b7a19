"""DiffusionNFT: its loss against the reference's formulas, its policies in every parametrisation, whole runs."""

import pytest
import torch
from diffusers import DDIMScheduler

from rewards.trainers.diffusion.methods.nft import implicit_policies, nft_loss
from rewards.trainers.diffusion.steppers.ddim import DDIM
from tests.trainers.diffusion.tiny_diffusion import redness
from tests.trainers.diffusion.tiny_runs import PIPELINES, new_trainer, weights


@pytest.mark.parametrize("beta", [1.0, 0.1])
def test_loss_is_that_of_the_reference_on_a_flow(beta):
    """The update of scripts/train_nft_sd3.py, written down from its formulas on velocities, in float64."""
    torch.manual_seed(0)
    clean, noise, new, old = (torch.randn(3, 2, 4, 4, dtype=torch.float64) for _ in range(4))
    t, r = torch.tensor([0.9, 0.4, 0.2], dtype=torch.float64), torch.tensor([0.8, 0.1, 0.5], dtype=torch.float64)
    s = t.view(-1, 1, 1, 1)
    noisy = (1 - s) * clean + s * noise
    expected = torch.zeros(3, dtype=torch.float64)
    for sign, share in ((1, r), (-1, 1 - r)):
        velocity = beta * new + (1 - beta) * old if sign == 1 else (1 + beta) * old - beta * new
        error = noisy - s * velocity - clean
        weight = error.abs().mean(dim=(1, 2, 3)).clamp(min=1e-5)
        expected += share * (error**2).mean(dim=(1, 2, 3)) / weight / beta
    better, worse = (noisy - s * velocity for velocity in implicit_policies(new, old, beta))
    torch.testing.assert_close(nft_loss(better, worse, clean, r, beta), expected, atol=1e-12, rtol=0)
    single = nft_loss(better.float(), worse.float(), clean.float(), r.float(), beta)
    torch.testing.assert_close(single.double(), expected, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("zero_snr", [False, True])
def test_policies_are_the_same_in_every_parametrisation(zero_snr):
    """Mixing epsilon, v or x_0 gives the same x_0, at the noisiest step too."""
    torch.manual_seed(1)
    kinds = ["v_prediction", "sample"] + ([] if zero_snr else ["epsilon"])
    options = {"rescale_betas_zero_snr": zero_snr, "timestep_spacing": "trailing", "clip_sample": False}
    steppers = {k: DDIM(DDIMScheduler(prediction_type=k, **options), 4, 0.0) for k in kinds}
    clean, noise = torch.randn(2, 4, 2, 3, 3).unbind()
    steps = torch.arange(4)
    noisy = steppers["sample"].noised(clean, noise, steps)
    new, old = torch.randn(2, 4, 2, 3, 3).unbind()  # as x_0
    alpha = steppers["sample"].schedule.alpha.view(-1, 1, 1, 1)
    in_kind = {
        "sample": lambda x0: x0,
        "epsilon": lambda x0: (noisy - alpha.sqrt() * x0) / (1 - alpha).sqrt(),
        "v_prediction": lambda x0: (alpha.sqrt() * noisy - x0) / (1 - alpha).sqrt(),
    }
    expected = implicit_policies(new, old, 0.3)
    for kind, stepper in steppers.items():
        mixed = implicit_policies(in_kind[kind](new), in_kind[kind](old), 0.3)
        for prediction, x0 in zip(mixed, expected):
            torch.testing.assert_close(stepper.clean(prediction, noisy, steps), x0, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_first_update_starts_at_the_old_policy(tmp_path, pipeline):
    options = {"train_batch_size": 8, "train_kl_coefficient": 0.0, "train_kl_log_freq": 1, "nft_old_decay": 0.001}
    trainer = new_trainer(tmp_path, "nft", pipeline, num_epochs=1, **options)
    before = weights(trainer)
    metrics = trainer.train()
    assert metrics["train/optimizer_steps"] == 1 and metrics["train/pairs"] == 8 * 3
    assert metrics["policy/distance_to_old"] == 0.0 and metrics["policy/kl"] < 1e-10
    assert not torch.equal(before, weights(trainer))
    old = torch.cat([value.flatten() for value in trainer.method.old])
    torch.testing.assert_close(old, 0.001 * before + 0.999 * weights(trainer), atol=1e-7, rtol=0)


def test_pictures_that_abstain_take_no_part(tmp_path):
    def some(images, prompts, metadata):
        values = redness(images, prompts)[0]
        values[::4] = float("nan")
        return values

    metrics = new_trainer(tmp_path, "nft", reward=some, num_epochs=1, train_kl_coefficient=0.1).train()
    assert metrics["train/pairs"] == 6 * 3
