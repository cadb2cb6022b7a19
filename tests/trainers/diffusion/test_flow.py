"""Flow matching: pictures of the plain pipeline, densities against float64, marginals by sampling, whole trainings."""

import math

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

from rewards.errors import InputError
from rewards.runs.summary import gains
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods.awm import AWM
from rewards.trainers.diffusion.methods.ddpo import DDPO
from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO, FlowGRPOConfig
from rewards.trainers.diffusion.methods.grpo_guard import GRPOGuard
from rewards.trainers.diffusion.methods.nft import NFT
from rewards.trainers.diffusion.methods.reward_gradient import RewardGradient
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.rollout import Sampler, draw
from rewards.trainers.diffusion.steppers.flow import Flow
from tests.trainers.diffusion.tiny_diffusion import redness, stable_diffusion, stable_diffusion_3
from tests.trainers.diffusion.tiny_runs import PROMPTS, Redness, weights

LAYERS = ["to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "ff.net.0.proj", "ff.net.2"]
NOISE = {"sde": 0.7, "dance": 0.3, "cps": 0.7}


def new_trainer(folder, method=FlowGRPO, pipeline=None, reward=redness, eval_prompts=None, **changes):
    values = {
        "output_dir": str(folder / "run"),
        "num_epochs": 1,
        "sample_num_steps": 4,
        "sample_guidance_scale": 1.0,
        "sample_batch_size": 8,
        "sample_num_batches_per_epoch": 1,
        "sample_num_images_per_prompt": 4,
        "train_batch_size": 8,
        "train_learning_rate": 5e-3,
        "lora_target_modules": LAYERS,
        "max_sequence_length": 12,
        "save_freq": 0,
        "eval_freq": 0,
    }
    args = method.config_class(**(values | changes))
    pipeline = pipeline or stable_diffusion_3()
    return DiffusionTrainer(pipeline, reward, PROMPTS, method(args), eval_prompts=eval_prompts)


def schedule(steps, shift=3.0):
    scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    scheduler.set_timesteps(steps)
    return scheduler.timesteps, scheduler.sigmas


@pytest.mark.parametrize("guidance", [1.0, 2.5])
@pytest.mark.parametrize("dynamic", [False, True])
def test_pictures_without_noise_are_those_of_the_pipeline(tmp_path, guidance, dynamic):
    options = {"use_dynamic_shifting": True, "base_image_seq_len": 2, "max_image_seq_len": 16} if dynamic else {}
    trainer = new_trainer(tmp_path, pipeline=stable_diffusion_3(**options))
    policy = trainer.policy
    start, noise = (Noise(0, "test", range(2), policy.latent_shape) for _ in range(2))
    ours = policy.pictures(draw(policy, PROMPTS[:2], Sampler(policy.stepper(4, 0.0), guidance), noise).final)
    theirs = policy.pipeline(
        PROMPTS[:2],
        latents=start.draw(),
        num_inference_steps=4,
        guidance_scale=guidance,
        height=8,
        width=8,
        max_sequence_length=12,
        output_type="pt",
    ).images
    assert torch.equal(ours, theirs.float())


@pytest.mark.parametrize("dynamics", NOISE)
def test_steps_are_the_formulas_in_float64(dynamics):
    torch.manual_seed(0)
    timesteps, sigmas = schedule(6)
    stepper = Flow(timesteps, sigmas, NOISE[dynamics], dynamics)
    x, v = torch.randn(2, 6, 2, 3, 3)
    found = stepper.step(v, x, torch.arange(6))
    a = NOISE[dynamics]
    for k in range(6):
        s, after = float(sigmas[k]), float(sigmas[k + 1])
        xk, vk, dt = x[k].double(), v[k].double(), after - s
        x0, x1 = xk - s * vk, xk + (1 - s) * vk
        if k == 5:
            mean, std = xk + vk * dt, 0.0
        elif dynamics == "sde":
            sd = a * math.sqrt(s / (1 - (float(sigmas[1]) if s == 1 else s)))
            mean = xk * (1 + sd**2 / (2 * s) * dt) + vk * (1 + sd**2 * (1 - s) / (2 * s)) * dt
            std = sd * math.sqrt(-dt)
        elif dynamics == "dance":
            mean = xk + (vk + a**2 / 2 * (xk - x0 * (1 - s)) / s**2) * dt
            std = a * math.sqrt(-dt)
        else:
            std = after * math.sin(a * math.pi / 2)
            mean = (1 - after) * x0 + math.sqrt(after**2 - std**2) * x1
        torch.testing.assert_close(found.mean[k].double(), mean, atol=2e-6, rtol=2e-6)
        assert float(found.std[k]) == pytest.approx(std, rel=1e-6)


def test_cps_keeps_the_shares_of_picture_and_noise():
    timesteps, sigmas = schedule(6)
    stepper = Flow(timesteps, sigmas, 0.7, "cps")
    clean, noise = torch.randn(2, 5, 2, 3, 3)
    steps = torch.arange(5)
    step = stepper.step(noise - clean, stepper.noised(clean, noise, steps), steps)
    after = sigmas[1:6].view(-1, 1, 1, 1)
    share = (step.mean - (1 - after) * clean) / noise
    torch.testing.assert_close(share**2 + step.std**2, (after**2).expand_as(share), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dynamics", ["sde", "dance"])
def test_samples_of_a_known_flow_have_its_mean_and_deviation(dynamics):
    """Data N(0.7, 0.5^2), whose velocity is known: with many steps both dynamics end at the data."""
    ends = end_of_known_flow(dynamics, steps=200)
    assert float(ends.mean()) == pytest.approx(0.7, abs=0.02)
    assert float(ends.std()) == pytest.approx(0.5, abs=0.035)


def end_of_known_flow(dynamics, steps, count=20_000):
    timesteps, sigmas = schedule(steps)
    stepper = Flow(timesteps, sigmas, NOISE[dynamics], dynamics)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 1, 1, 1, generator=generator)
    for k in range(steps):
        s = sigmas[k]
        variance = (1 - s) ** 2 * 0.25 + s**2
        pull = (s - (1 - s) * 0.25) / variance  # E[epsilon - x_0 | x] for a Gaussian
        velocity = -0.7 + pull * (x - (1 - s) * 0.7)
        step = stepper.step(velocity, x, torch.full((count,), k))
        x = step.mean + step.std * torch.randn(x.shape, generator=generator)
    return x


def test_no_fresh_noise_is_left_in_the_picture():
    """At 10 steps a noisy last step of Flow-SDE would leave a deviation of 0.2 that no network can remove."""
    equal = torch.linspace(1, 0, 11)
    sigmas = 3 * equal / (1 + 2 * equal)
    stepper = Flow(1000 * sigmas[:-1], sigmas, 0.7)
    x = torch.randn(10, 1, 1, 1)
    assert stepper.step(x, x, torch.arange(10)).std.flatten()[-1] == 0 and not stepper.stochastic[-1]
    s = sigmas[-2]
    assert 0.7 * math.sqrt(s / (1 - s)) * math.sqrt(s) > 0.19


def test_windows():
    def starts(**options):
        method = FlowGRPO(FlowGRPOConfig(sample_num_steps=6, sample_window_size=2, **options))
        return [list(method.window(epoch)) for epoch in range(8)]

    assert starts() == [[0, 1]] * 8
    sliding = starts(sample_window="sliding", sample_window_epochs=2)
    assert sliding[::2] == [[0, 1], [1, 2], [2, 3], [3, 4]] and sliding[0] == sliding[1]
    random = starts(sample_window="random")
    assert len({tuple(window) for window in random}) > 1 and max(max(window) for window in random) <= 4
    with pytest.raises(InputError, match="sample_window_size"):
        FlowGRPOConfig(sample_num_steps=4, sample_window_size=4)
    with pytest.raises(InputError, match="deterministic"):
        Flow(*schedule(4), 0.7, window=[3])


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("dynamics", NOISE)
def test_ratio_is_one_before_the_first_update(tmp_path, dynamics, guidance):
    trainer = new_trainer(
        tmp_path,
        sample_dynamics=dynamics,
        sample_noise_level=NOISE[dynamics],
        sample_window_size=2,
        sample_window="random",
        sample_guidance_scale=guidance,
        train_kl_kind={"sde": "exact", "dance": "means", "cps": "velocity"}[dynamics],
    )
    before = weights(trainer)
    metrics = trainer.train()
    assert metrics["policy/ratio_before_update"] == 1.0 and metrics["policy/ratio_farthest"] == 0.0
    assert metrics["policy/sampling_mismatch"] < 1e-5 and metrics["train/pairs"] == 8 * 2
    assert metrics["policy/kl"] < 1e-8 and not torch.equal(before, weights(trainer))


METHODS = {
    "awm": (AWM, {}),
    "flow_grpo": (FlowGRPO, {"train_clip_range": 1e-2, "train_kl_coefficient": 0.0, "train_kl_log_freq": 1}),
    "grpo_guard": (GRPOGuard, {"train_clip_range": 1e-3}),
    "ddpo": (DDPO, {"sample_eta": 0.7, "train_clip_range": 1e-2, "eval_eta": 0.0}),
    "nft": (NFT, {}),
    "reward_gradient": (RewardGradient, {"gradient_steps": 2}),
    "direct_align": (RewardGradient, {"gradient_mode": "direct_align", "gradient_steps": 3}),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_and_its_adapter_loads_in_plain_diffusers(tmp_path, name):
    method, options = METHODS[name]
    trainer = new_trainer(
        tmp_path,
        method,
        reward=Redness(),
        eval_prompts=["a blue square", "a circle"],
        eval_num_images_per_prompt=8,
        num_epochs=3,
        sample_batch_size=16,
        sample_num_images_per_prompt=8,
        train_learning_rate=1e-2,
        **options,
    )
    trainer.train()
    gain = gains(*trainer.evaluation_log.ends())["overall"]
    assert gain.gain > 0.001 if name == "reward_gradient" else gain.gain != 0  # the others need more than seconds
    fresh = stable_diffusion_3()
    call = {"num_inference_steps": 4, "guidance_scale": 1.0, "height": 8, "width": 8, "max_sequence_length": 12}
    call |= {"latents": Noise(0, "x", range(2), trainer.policy.latent_shape).draw(), "output_type": "pt"}
    base = fresh(PROMPTS[:2], **call).images
    fresh.load_lora_weights(tmp_path / "run" / "adapter")
    loaded, trained = (pipe(PROMPTS[:2], **call).images for pipe in (fresh, trainer.policy.pipeline))
    torch.testing.assert_close(loaded, trained, atol=1e-5, rtol=0)
    assert (loaded - base).abs().max() > 1e-4


def test_flow_grpo_refuses_a_unet(tmp_path):
    with pytest.raises(InputError, match="take ddpo"):
        new_trainer(tmp_path, pipeline=stable_diffusion(), lora_target_modules=["to_q"])
