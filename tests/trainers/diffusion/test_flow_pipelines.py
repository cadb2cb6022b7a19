"""FLUX.1, Qwen-Image and Z-Image: pictures of the plain pipelines, training, adapters that load there."""

import pytest
import torch
from diffusers import EulerDiscreteScheduler

from rewards.errors import InputError
from rewards.trainers.diffusion.methods.nft import NFTConfig
from rewards.trainers.diffusion.policy import new_policy
from rewards.trainers.diffusion.policy.transformer import pack, unpack
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.rollout import Sampler, draw
from tests.trainers.diffusion import tiny_diffusion
from tests.trainers.diffusion.tiny_runs import new_trainer, weights

PROMPTS = ["a red circle", "a green square on white background"]
PIPELINES = {
    "flux": tiny_diffusion.flux,
    "schnell": lambda: tiny_diffusion.flux(guided=False),
    "qwen_image": tiny_diffusion.qwen_image,
    "z_image": tiny_diffusion.z_image,
}
LENGTH = {"qwen_image": 200}  # its template is long


def pictures(kind, pipeline, guidance, latents):
    """What the plain pipeline draws."""
    options = {"height": 8, "width": 8, "num_inference_steps": 4, "output_type": "pt"}
    options["max_sequence_length"] = LENGTH.get(kind, 12)
    if kind == "qwen_image":
        options |= {"true_cfg_scale": guidance, "negative_prompt": [" "] * 2} if guidance > 1 else {}
    else:
        options["guidance_scale"] = guidance - 1 if kind == "z_image" else guidance
    options["latents"] = latents if kind == "z_image" else pack(latents)
    return pipeline(PROMPTS, **options).images.float()


@pytest.mark.parametrize(
    ("kind", "guidance"),
    [(kind, scale) for kind in PIPELINES for scale in (1.0, 2.5) if kind != "schnell" or scale == 1],
)
def test_pictures_without_noise_are_those_of_the_pipeline(kind, guidance):
    pipeline = PIPELINES[kind]()
    args = NFTConfig(resolution=8, max_sequence_length=LENGTH.get(kind, 12), sample_guidance_scale=guidance)
    policy = new_policy(pipeline, args, torch.device("cpu"), False)
    start, noise = (Noise(0, "test", range(2), policy.latent_shape) for _ in range(2))
    ours = policy.pictures(draw(policy, PROMPTS, Sampler(policy.stepper(4, 0.0), guidance), noise).final)
    assert torch.equal(ours, pictures(kind, pipeline, guidance, start.draw()))


@pytest.mark.parametrize("method", ["nft", "flow_grpo"])
@pytest.mark.parametrize("kind", PIPELINES)
def test_training_and_its_adapter_in_plain_diffusers(tmp_path, kind, method):
    targets = ["attention.to_q", "to_q", "to_k", "to_v", "to_out.0"]
    options = {"max_sequence_length": LENGTH.get(kind, 12), "resolution": 8, "lora_target_modules": targets}
    options |= {"num_epochs": 1, "train_batch_size": 8, "train_learning_rate": 1e-2, "lora_rank": 4, "lora_alpha": 8}
    if kind == "qwen_image":
        options["sample_guidance_scale"] = 2.0
    trainer = new_trainer(tmp_path, method, PIPELINES[kind](), **options)
    before = weights(trainer)
    metrics = trainer.train()
    assert metrics["train/optimizer_steps"] == 1 and not torch.equal(before, weights(trainer))
    if method == "flow_grpo":
        assert metrics["policy/ratio_before_update"] == 1.0 and metrics["policy/sampling_mismatch"] < 1e-5
    else:
        assert metrics["policy/distance_to_old"] == 0.0
    latents = Noise(0, "x", range(2), trainer.policy.latent_shape).draw()
    fresh = PIPELINES[kind]()
    base = pictures(kind, fresh, 1.0, latents)
    fresh.load_lora_weights(tmp_path / "run" / "adapter")
    loaded, trained = (pictures(kind, pipe, 1.0, latents) for pipe in (fresh, trainer.policy.pipeline))
    torch.testing.assert_close(loaded, trained, atol=1e-5, rtol=0)
    assert (loaded - base).abs().max() > 1e-4


def test_conditionings_of_several_batches_are_as_long_as_the_longest():
    policy = new_policy(PIPELINES["z_image"](), NFTConfig(resolution=8), torch.device("cpu"), False)
    short, long = policy.encode(PROMPTS[:1], 2.0), policy.encode(PROMPTS, 2.0)
    together = type(short).concatenate([short, long])
    assert together.mask.sum(1).tolist() == [short.mask.sum(), short.mask.sum(), long.mask.sum(1).max()]
    assert torch.equal(together.embeds[0, : short.embeds.shape[1]], together.embeds[1, : short.embeds.shape[1]])
    latents, times = torch.randn(3, *policy.latent_shape), torch.full((3,), 500.0)
    whole = policy.predict(latents, times, together, 2.0)
    torch.testing.assert_close(policy.predict(latents[:1], times[:1], short, 2.0), whole[:1], atol=1e-5, rtol=1e-4)


def test_latents_are_packed_as_the_pipeline_packs_them():
    latents = torch.randn(2, 4, 6, 8)
    pipeline = tiny_diffusion.FluxPipeline
    assert torch.equal(pack(latents), pipeline._pack_latents(latents, 2, 4, 6, 8))
    assert torch.equal(unpack(pack(latents), 6), latents)


def test_what_cannot_be_drawn_is_refused():
    device = torch.device("cpu")
    with pytest.raises(InputError, match=r"schnell.*must be 1, got 2\.5"):
        new_policy(PIPELINES["schnell"](), NFTConfig(sample_guidance_scale=2.5), device, False)
    for kind in ("flux", "z_image"):
        with pytest.raises(InputError, match="multiple of 4 for this pipeline, got 10"):
            new_policy(PIPELINES[kind](), NFTConfig(resolution=10), device, False)
    pipeline = PIPELINES["flux"]()
    pipeline.scheduler = EulerDiscreteScheduler()
    with pytest.raises(InputError, match="FlowMatchEulerDiscreteScheduler is needed"):
        new_policy(pipeline, NFTConfig(resolution=8), device, False)
