"""The reward's gradient: against a hand-written backward pass, through every mode, and whole runs."""

import pytest
import torch

from rewards.errors import InputError
from rewards.runs.metrics import read_metrics
from rewards.runs.summary import gains
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods.reward_gradient import RewardGradient, RewardGradientConfig, cut_out
from rewards.trainers.diffusion.randomness import Noise
from tests.trainers.diffusion.tiny_diffusion import four_steps, redness
from tests.trainers.diffusion.tiny_runs import PIPELINES, PROMPTS, Redness, weights


def new_trainer(folder, pipeline="zero_snr", reward=None, eval_prompts=None, **changes):
    values = {
        "output_dir": str(folder / "run"),
        "num_epochs": 1,
        "sample_num_steps": 3,
        "sample_batch_size": 8,
        "sample_num_batches_per_epoch": 1,
        "sample_num_images_per_prompt": 4,
        "train_batch_size": 8,
        "train_learning_rate": 5e-3,
        "save_freq": 0,
        "eval_freq": 0,
    }
    method = RewardGradient(RewardGradientConfig(**(values | changes)))
    return DiffusionTrainer(PIPELINES[pipeline](), reward or Redness(), PROMPTS, method, eval_prompts=eval_prompts)


def gradients(trainer):
    """What the first optimiser step of a trainer is taken with."""
    seen = []
    apply = trainer.optimization._apply

    def keep(finite):
        seen.append([p.grad.clone() for p in trainer.policy.parameters])
        apply(finite)

    trainer.optimization._apply = keep
    trainer.train()
    return seen[0]


@pytest.mark.parametrize("steps", [1, 3])
def test_gradient_is_that_of_the_sampler_written_out(tmp_path, steps):
    """DRaFT-K by plain autograd through diffusers' own scheduler, network and decoder."""
    trainer = new_trainer(tmp_path, gradient_steps=steps, train_max_grad_norm=1e9)
    pipe, policy = trainer.policy.pipeline, trainer.policy
    rows = trainer.collector.epoch(trainer.method, policy, 0).prompt_rows
    prompts = [PROMPTS[row] for row in rows]
    embeds = pipe.encode_prompt(prompts, "cpu", 1, False)[0]
    noise = Noise(0, "train/0", range(8), policy.latent_shape)
    latents = noise.draw()
    pipe.scheduler.set_timesteps(3)
    for index, timestep in enumerate(pipe.scheduler.timesteps):
        with torch.set_grad_enabled(index >= 3 - steps):
            out = pipe.unet(latents, timestep, encoder_hidden_states=embeds).sample
            latents = pipe.scheduler.step(out, timestep, latents, eta=0.0).prev_sample
    images = (pipe.vae.decode(latents / pipe.vae.config.scaling_factor).sample / 2 + 0.5).clamp(0, 1)
    expected = torch.autograd.grad(-redness(images, prompts)[0].mean(), policy.parameters)
    for found, wanted in zip(gradients(trainer), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-3)


def test_direct_align_is_its_formula_written_out(tmp_path):
    """The finished picture, noised to the second of three steps, one step, and the known noise taken out again."""
    trainer = new_trainer(tmp_path, gradient_mode="direct_align", gradient_steps=3, train_max_grad_norm=1e9)
    trainer.method._last_steps = lambda *stream: 2
    pipe, policy = trainer.policy.pipeline, trainer.policy
    drawn = trainer.collector.epoch(trainer.method, policy, 0)
    assert drawn.rollout.latents is None
    prompts = [PROMPTS[row] for row in drawn.prompt_rows]
    embeds = pipe.encode_prompt(prompts, "cpu", 1, False)[0]
    noise = torch.cat([Noise(0, "forward/0/0/1", [place], policy.latent_shape).draw() for place in range(8)])
    scheduler = pipe.scheduler
    scheduler.set_timesteps(3)
    now = scheduler.timesteps[1]
    noisy = scheduler.add_noise(drawn.rollout.final, noise, now.expand(8))
    out = pipe.unet(noisy, now, encoder_hidden_states=embeds).sample
    following = scheduler.step(out, now, noisy, eta=0.0).prev_sample
    alpha = scheduler.alphas_cumprod[now - 1000 // 3]  # as the scheduler's own step
    latents = (following - (1 - alpha).sqrt() * noise) / alpha.sqrt()
    images = (pipe.vae.decode(latents / pipe.vae.config.scaling_factor).sample / 2 + 0.5).clamp(0, 1)
    expected = torch.autograd.grad(-redness(images, prompts)[0].mean(), policy.parameters)
    for found, wanted in zip(gradients(trainer), expected, strict=True):
        assert (found - wanted).norm() <= 1e-3 * wanted.norm()


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample", "flow"])
def test_known_noise_is_taken_out_after_a_perfect_step(kind):
    stepper = four_steps(kind)
    clean, noise = torch.randn(2, 4, 2, 3, 3)
    steps = torch.arange(4)
    following = stepper.step(stepper.target(clean, noise, steps), stepper.noised(clean, noise, steps), steps).mean
    torch.testing.assert_close(stepper.clean_of(following, noise, steps), clean, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("mode", ["draft", "alignprop", "refl", "direct_align"])
@pytest.mark.parametrize("pipeline", ["sd1", "zero_snr", "sdxl"])
def test_every_mode_raises_the_reward(tmp_path, mode, pipeline):
    trainer = new_trainer(
        tmp_path,
        pipeline,
        num_epochs=3,
        gradient_mode=mode,
        gradient_steps=2,
        gradient_jitter=0.01,
        gradient_cutout=0.25,
        train_kl_coefficient=0.0,
        train_kl_log_freq=1,
        eval_prompts=["a blue square", "a circle"],
        eval_num_images_per_prompt=8,
    )
    metrics = trainer.train()
    gain = gains(*trainer.evaluation_log.ends())["overall"]
    assert gain.low > 0 and metrics["policy/kl"] > 0
    expected = {"draft": {2.0}, "alignprop": {1.0, 2.0}}.get(mode, {1.0})
    rows = [row for row in read_metrics(tmp_path / "run") if "train/steps_with_gradient" in row]
    assert {row["train/steps_with_gradient"] for row in rows} <= expected


def test_kl_holds_the_policy(tmp_path):
    moved = {}
    for coefficient in (0.0, 100.0):
        options = {"num_epochs": 4, "train_kl_coefficient": coefficient, "train_kl_log_freq": 1}
        moved[coefficient] = new_trainer(tmp_path / str(coefficient), **options).train()["policy/kl"]
    assert moved[100.0] < 0.5 * moved[0.0]


def test_abstained_samples_have_no_gradient(tmp_path):
    never = new_trainer(tmp_path, reward=Redness(abstains_on=PROMPTS), max_failure_rate=1.0)
    before = weights(never)
    assert never.train()["train/optimizer_steps"] == 0 and torch.equal(before, weights(never))


def test_reward_without_a_gradient_is_refused_at_the_start(tmp_path):
    with pytest.raises(InputError, match="redness has no gradient to the pixels"):
        new_trainer(tmp_path, reward=redness)
    with pytest.raises(InputError, match="gradient_steps"):
        RewardGradientConfig(sample_num_steps=3, gradient_steps=4)


def test_cut_out_is_a_grey_square_of_the_stated_size():
    cut = cut_out(torch.zeros(3, 3, 8, 8), 0.25, [1, 2, 3])
    assert ((cut == 0.5).sum(dim=(1, 2, 3)) == 3 * 2 * 2).all()
    assert torch.equal(cut, cut_out(torch.zeros(3, 3, 8, 8), 0.25, [1, 2, 3]))
