"""DDPOTrainer on tiny pipelines of the real classes: what it computes, what it saves, and how it fails."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from accelerate.state import AcceleratorState
from diffusers import EulerDiscreteScheduler, UNet2DConditionModel

from rewards.errors import InputError, RewardsError
from rewards.runs.metrics import read_metrics
from rewards.runs.paired_gain import paired_gain
from rewards.runs.samples import read_samples
from rewards.trainers.audit import AuditGap, AuditGapExceeded
from rewards.trainers.diffusion.config import DDPOConfig
from rewards.trainers.diffusion.ddpo import DDPOTrainer
from rewards.trainers.diffusion.evaluation import summary
from rewards.trainers.diffusion.plan import learning_rate, prompt_indices
from rewards.trainers.diffusion.policy import as_ddim, noise_for
from rewards.trainers.diffusion.sampling import batch_noise, sample
from rewards.trainers.diffusion.update import plan_steps
from tests.trainers.diffusion.tiny_diffusion import ZERO_SNR, redness, stable_diffusion, stable_diffusion_xl

PROMPTS = ["a red circle", "a green square", "a blue circle", "a circle on white background"]
PIPELINES = {
    "sd1": lambda: stable_diffusion(),
    "sd2": lambda: stable_diffusion(prediction_type="v_prediction"),
    "zero_snr": lambda: stable_diffusion(**ZERO_SNR),
    "sdxl": stable_diffusion_xl,
}


def settings(folder, **changes):
    values = {
        "logdir": str(folder / "run"),
        "num_epochs": 1,
        "sample_num_steps": 3,
        "sample_guidance_scale": 1.0,
        "sample_batch_size": 8,
        "sample_num_batches_per_epoch": 1,
        "sample_num_images_per_prompt": 4,
        "train_batch_size": 4,
        "train_learning_rate": 5e-3,
        "train_clip_range": 1e-3,
        "per_prompt_stat_tracking_buffer_size": 4,
        "save_freq": 0,
        "eval_freq": 0,
        "num_logged_samples": 2,
    }
    return DDPOConfig(**(values | changes))


def new_trainer(folder, reward=redness, pipeline="zero_snr", eval_prompts=None, audit=None, **changes):
    made = PIPELINES[pipeline]() if isinstance(pipeline, str) else pipeline
    return DDPOTrainer(made, reward, PROMPTS, settings(folder, **changes), eval_prompts=eval_prompts, audit=audit)


@pytest.fixture(autouse=True)
def fresh_accelerate_state():
    """Accelerate keeps one state a process, so that another precision could not be asked for."""
    AcceleratorState._reset_state(reset_partial_state=True)


def weights(trainer):
    return torch.cat([p.detach().flatten().clone() for p in trainer.policy.parameters])


def same_metrics(left, right, tolerance=0.0):
    """Compares two lists of metric rows without what measures time."""
    assert len(left) == len(right)
    for a, b in zip(left, right):
        assert a.keys() == b.keys()
        for key in a.keys() - {"time"}:
            if not key.startswith("time/"):
                assert (a[key] is None) == (b[key] is None), key
                assert a[key] is None or abs(a[key] - b[key]) <= tolerance, (key, a[key], b[key])


def test_a_simple_reward_is_learnt(tmp_path):
    targets = ["to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2", "proj_in", "proj_out", "conv1", "conv2"]
    trainer = new_trainer(
        tmp_path,
        eval_prompts=["a blue square", "a red square"],
        eval_num_images_per_prompt=16,
        num_epochs=6,
        sample_num_steps=5,
        sample_batch_size=32,
        sample_num_images_per_prompt=8,
        per_prompt_stat_tracking_buffer_size=8,
        lora_target_modules=targets,
    )
    trainer.train()
    (_, before, _), (step, after, _) = trainer.evaluation_log.read()
    gain = paired_gain(before, after)
    assert step == 6 and gain.mean > 0.004 and gain.low > 0.002
    rows = read_metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 5, 6, 6]
    assert rows[-1]["eval/rewards/redness/overall/mean"] == pytest.approx(after.mean(), abs=1e-6)
    assert {sample["phase"] for sample in read_samples(tmp_path / "run")} == {"before", "after"}
    base = trainer.evaluate(base_model=True)
    np.testing.assert_allclose(base.scores, before, atol=1e-6)


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_ratio_is_one_before_the_first_update(tmp_path, pipeline, guidance):
    trainer = new_trainer(
        tmp_path, pipeline=pipeline, sample_guidance_scale=guidance, negative_prompts="a black", train_batch_size=8
    )
    before = weights(trainer)
    metrics = trainer.train()
    assert metrics["train/optimizer_steps"] == 1
    assert metrics["train/ratio_before_update"] == 1.0 and metrics["train/ratio_farthest"] == 0.0
    # The ratio is not 1 because the recomputed value is forgiven: it equals the recorded one.
    assert metrics["train/sampling_mismatch"] < 1e-5
    assert metrics["train/clip_fraction"] == 0.0
    assert not torch.equal(before, weights(trainer))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_pictures_are_those_of_the_pipeline(tmp_path, pipeline):
    trainer = new_trainer(tmp_path, pipeline=pipeline)
    pipe = trainer.policy.pipeline
    sampler = trainer.policy.sampler(3, 0.0, 2.5)
    noise = batch_noise(0, "test", range(2), 3, trainer.policy.latent_shape)
    ours = trainer.policy.decode(sample(trainer.policy, PROMPTS[:2], sampler, noise).latents[:, -1])
    pipe.vae.to(torch.float32)
    theirs = pipe(
        PROMPTS[:2], latents=noise[:, 0], num_inference_steps=3, guidance_scale=2.5, eta=0.0, output_type="pt"
    ).images
    torch.testing.assert_close(ours, theirs.float(), atol=2e-5, rtol=0)


@pytest.mark.parametrize("pipeline", ["zero_snr", "sdxl"])
def test_adapter_loads_in_plain_diffusers(tmp_path, pipeline):
    targets = ["to_q", "to_out.0", "conv1", "proj_in"]
    trainer = new_trainer(tmp_path, pipeline=pipeline, lora_target_modules=targets, lora_rank=4, lora_alpha=8)
    trainer.train()
    adapter = tmp_path / "run" / "adapter"
    fresh = PIPELINES[pipeline]()
    noise = noise_for(0, "x", 0, (2, *trainer.policy.latent_shape))
    options = {"latents": noise, "num_inference_steps": 3, "guidance_scale": 1.0, "output_type": "pt"}
    base = fresh(PROMPTS[:2], **options).images
    fresh.load_lora_weights(adapter)
    loaded = fresh(PROMPTS[:2], **options).images
    trained = trainer.policy.pipeline(PROMPTS[:2], **options).images
    torch.testing.assert_close(loaded, trained, atol=1e-5, rtol=0)
    assert (loaded - base).abs().max() > 1e-3
    card = (adapter / "README.md").read_text()
    header = yaml.safe_load(card.split("---")[1])
    assert header["library_name"] == "diffusers" and "lora" in header["tags"]
    assert "name: redness" in card and "took no part in the training: 0.00%" in card
    assert f"rewards curves {tmp_path / 'run'}" in card and "## Commands" in card


def test_batches_do_not_change_the_samples(tmp_path):
    rows = []
    for name, size, batches in (("a", 8, 1), ("b", 2, 4)):
        trainer = new_trainer(tmp_path / name, sample_batch_size=size, sample_num_batches_per_epoch=batches)
        trainer.train()
        rows.append(read_metrics(tmp_path / name / "run"))
    same_metrics(*rows, tolerance=1e-4)


def test_worker_thread_gives_the_same_run(tmp_path):
    for name, worker in (("a", False), ("b", True)):
        new_trainer(
            tmp_path / name,
            sample_num_batches_per_epoch=3,
            async_reward_computation=worker,
            max_workers=2,
            num_epochs=2,
        ).train()
    same_metrics(read_metrics(tmp_path / "a" / "run"), read_metrics(tmp_path / "b" / "run"))


def test_resumed_run_equals_the_uninterrupted_one(tmp_path):
    options = {
        "save_freq": 1,
        "num_epochs": 4,
        "eval_freq": 2,
        "eval_prompts": ["a red square"],
        "train_lr_schedule": "cosine",
    }
    whole = new_trainer(tmp_path / "whole", **options)
    whole.train()
    stopped = new_trainer(tmp_path / "cut", **options)
    stopped._epoch = lambda epoch, run=stopped._epoch: (
        (_ for _ in ()).throw(KeyboardInterrupt) if epoch == 2 else run(epoch)
    )
    with pytest.raises(KeyboardInterrupt):
        stopped.train()
    stopped.metrics_log.append(3, {"train/loss": 9.0})  # written after the checkpoint by the run that died
    with pytest.raises(InputError, match="already holds a run"):
        new_trainer(tmp_path / "cut", **options)
    resumed = new_trainer(tmp_path / "cut", resume_from="auto", **options)
    assert resumed.step == 2
    resumed.train()
    same_metrics(read_metrics(tmp_path / "whole" / "run"), read_metrics(tmp_path / "cut" / "run"), 1e-6)
    torch.testing.assert_close(weights(whole), weights(resumed), atol=1e-7, rtol=0)
    assert len(read_samples(tmp_path / "cut" / "run")) == 3
    checkpoints = sorted(path.name for path in (tmp_path / "cut" / "run" / "checkpoints").iterdir())
    assert checkpoints == [f"checkpoint_{step}" for step in (1, 2, 3, 4)]
    again = new_trainer(tmp_path / "more", resume_from=str(tmp_path / "cut" / "run"), num_epochs=5)
    assert again.step == 4
    with pytest.raises(InputError, match="no checkpoint there"):
        new_trainer(tmp_path / "none", resume_from=str(tmp_path))


def test_checkpoint_limit_and_partial_checkpoints(tmp_path):
    trainer = new_trainer(tmp_path, num_epochs=4, save_freq=1, num_checkpoint_limit=2)
    folder = tmp_path / "run" / "checkpoints"
    (folder / ".partial_1").mkdir(parents=True)
    (folder / ".partial_1" / "state.json").write_text("{")
    trainer.train()
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint_3", "checkpoint_4"]


def test_abstentions_are_counted_and_take_no_part(tmp_path):
    seen = []

    def some(images, prompts, metadata):
        values = redness(images, prompts)[0].tolist()
        seen.extend(values)
        return [None if index % 4 == 0 else value for index, value in enumerate(values)]

    trainer = new_trainer(tmp_path, reward=some)
    metrics = trainer.train()
    judged = [value for index, value in enumerate(seen) if index % 4]
    assert metrics["rewards/some/abstained"] == 2 and metrics["rewards/some/overall/count"] == 6
    assert metrics["rewards/some/overall/mean"] == pytest.approx(np.mean(judged), rel=1e-5)
    assert metrics["train/pairs"] == 6 * 2  # 3 steps, of which the last is deterministic
    assert metrics["samples/failure_rate"] == 0.25


def test_prompts_without_spread_leave_the_model_alone(tmp_path):
    trainer = new_trainer(tmp_path, reward=lambda images, prompts, metadata: torch.full((len(images),), 1 / 3))
    before = weights(trainer)
    metrics = trainer.train()
    assert metrics["train/optimizer_steps"] == 0 and metrics["train/zero_std_groups"] == 1
    assert math.isnan(metrics["train/loss"]) and torch.equal(before, weights(trainer))


def test_failing_judge_stops_the_run_with_its_reason(tmp_path):
    def dead(images, prompts, metadata):
        raise ConnectionError("judge is down")

    with pytest.raises(RewardsError, match=r"100% of the pictures of epoch 1 .*judge is down"):
        new_trainer(tmp_path, reward=dead).train()
    (row,) = read_metrics(tmp_path / "run")
    assert row["rewards/dead/overall/mean"] is None and row["rewards/dead/abstained"] == 8


def test_judge_that_fails_now_and_then_does_not_stop_the_run(tmp_path):
    calls = []

    def flaky(images, prompts, metadata):
        calls.append(1)
        if len(calls) % 2:
            raise TimeoutError("late")
        return redness(images, prompts)

    metrics = new_trainer(tmp_path, reward=flaky, sample_batch_size=4, sample_num_batches_per_epoch=4).train()
    assert metrics["samples/failure_rate"] == 0.5 and metrics["rewards/flaky/overall/count"] == 8


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (
            lambda images, prompts, metadata: (_ for _ in ()).throw(InputError("no questions for 'a red circle'")),
            "no questions",
        ),
        (lambda images, prompts, metadata: [1.0], r"shape \(1,\) for 8 pictures"),
    ],
)
def test_reward_that_refuses_its_input_stops_at_once(tmp_path, reward, message):
    with pytest.raises(RewardsError, match=message):
        new_trainer(tmp_path, reward=reward, max_failure_rate=1.0).train()


def test_broken_pictures_abstain(tmp_path):
    trainer = new_trainer(tmp_path, reward=lambda images, prompts, metadata: (redness(images, prompts)[0], {}))
    decode = trainer.policy.decode

    def broken(latents):
        images = decode(latents)
        images[0] = math.nan
        images[1] = 0.0
        return images

    trainer.policy.decode = broken
    metrics = trainer.train()
    assert metrics["samples/broken_pictures"] == 2 and metrics["samples/failure_rate"] == 0.25


def test_metadata_reaches_the_reward(tmp_path):
    def tagged(images, prompts, metadata):
        assert all(row == {"tag": prompt} for row, prompt in zip(metadata, prompts))
        return redness(images, prompts)

    prompts = [(prompt, {"tag": prompt}) for prompt in PROMPTS]
    DDPOTrainer(PIPELINES["zero_snr"](), tagged, prompts, settings(tmp_path)).train()
    with pytest.raises(InputError, match="prompt 1"):
        DDPOTrainer(PIPELINES["zero_snr"](), tagged, ["a", 5], settings(tmp_path / "x"))
    with pytest.raises(InputError, match="empty"):
        DDPOTrainer(PIPELINES["zero_snr"](), tagged, [], settings(tmp_path / "y"))


def test_kl_is_logged_and_its_penalty_holds_the_policy(tmp_path):
    distances = {}
    for coefficient in (0.0, 100.0):
        trainer = new_trainer(tmp_path / str(coefficient), num_epochs=4, train_kl_coefficient=coefficient)
        distances[coefficient] = trainer.train()["train/kl"]
    assert distances[0.0] > 1e-4
    assert distances[100.0] < 0.5 * distances[0.0]
    assert read_metrics(tmp_path / "0.0" / "run")[0]["train/kl"] < distances[0.0]


def test_whole_unet_can_be_trained(tmp_path):
    trainer = new_trainer(tmp_path, use_lora=False, train_learning_rate=1e-3, train_kl_coefficient=0.0)
    metrics = trainer.train()
    assert metrics["train/ratio_before_update"] == 1.0 and metrics["train/kl"] > 0
    saved = UNet2DConditionModel.from_pretrained(tmp_path / "run" / "adapter" / "unet")
    for name, value in trainer.policy.unet.state_dict().items():
        assert torch.equal(saved.state_dict()[name], value), name
    resumed = new_trainer(tmp_path / "x", resume_from=str(tmp_path / "run"), use_lora=False, num_epochs=2)
    torch.testing.assert_close(weights(resumed), weights(trainer), atol=0, rtol=0)


def test_gradient_checkpointing_changes_nothing(tmp_path):
    rows = []
    for name, checkpointing in (("a", False), ("b", True)):
        new_trainer(tmp_path / name, gradient_checkpointing=checkpointing).train()
        rows.append(read_metrics(tmp_path / name / "run"))
    same_metrics(*rows, tolerance=1e-6)


def test_bfloat16_keeps_what_must_be_float32(tmp_path):
    trainer = new_trainer(tmp_path, mixed_precision="bf16", train_kl_coefficient=0.0)
    metrics = trainer.train()
    assert trainer.policy.pipeline.vae.dtype == torch.float32
    assert {parameter.dtype for parameter in trainer.policy.parameters} == {torch.float32}
    assert trainer.policy.pipeline.text_encoder.dtype == torch.bfloat16
    assert metrics["train/ratio_before_update"] == 1.0 and math.isfinite(metrics["train/grad_norm"])


def test_audit_is_logged_beside_the_reward_and_can_stop_the_run(tmp_path):
    def audit(images, prompts, metadata):
        return redness(images, prompts)[0] - 0.25

    metrics = new_trainer(tmp_path / "a", audit=audit, eval_prompts=["a red square"]).train()
    assert metrics["audit/gap"] == pytest.approx(0.25, abs=1e-6)
    assert metrics["eval/audit/gap"] == pytest.approx(0.25, abs=1e-6)
    epochs = []

    def falling(images, prompts, metadata):
        epochs.append(1)
        return torch.full((len(images),), -float(len(epochs)))

    with pytest.raises(AuditGapExceeded, match="drifted"):
        new_trainer(tmp_path / "b", audit=falling, audit_max_gap=1.5, num_epochs=9).train()
    assert [row["step"] for row in read_metrics(tmp_path / "b" / "run")] == [1, 2, 3]


def test_trackers_get_metrics_and_pictures(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    new_trainer(tmp_path, log_with="tensorboard", eval_prompts=["a red square"]).train()
    (events,) = (tmp_path / "run" / "logs" / "rewards").glob("events*")
    accumulator = EventAccumulator(str(events)).Reload()
    assert "rewards/redness/overall/mean" in accumulator.Tags()["scalars"]
    assert accumulator.Tags()["images"] == ["eval/pictures"] or len(accumulator.Tags()["images"]) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_eta": 0.0}, "no policy gradient"),
        ({"train_batch_size": 0}, "train_batch_size"),
        ({"sample_num_images_per_prompt": 3}, "not a multiple"),
        ({"lora_target_modules": ["nothing"]}, "lora_target_modules"),
        ({"sample_num_steps": 1}, "stochastic"),
        ({"log_with": "no_such_tracker"}, "log_with"),
        ({"max_failure_rate": 2.0}, "max_failure_rate"),
        ({"train_timestep_fraction": 0.0}, "train_timestep_fraction"),
        ({"train_kl_coefficient": -1.0}, "train_kl_coefficient"),
        ({"sample_guidance_scale": -1.0}, "sample_guidance_scale must be at least 0, got -1.0"),
        ({"train_learning_rate": math.nan}, "train_learning_rate must be above 0, got nan"),
        ({"num_epochs": -1}, "num_epochs"),
        ({"eval_batch_size": 0}, "eval_batch_size"),
        ({"eval_eta": 1.5}, "eval_eta"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        new_trainer(tmp_path, **changes)


def test_pipelines_that_cannot_work_are_refused(tmp_path):
    class NoUnet:
        pass

    with pytest.raises(InputError, match="has no unet"):
        new_trainer(tmp_path / "a", pipeline=NoUnet())
    pipeline = PIPELINES["zero_snr"]()
    new_trainer(tmp_path / "b", pipeline=pipeline)
    with pytest.raises(InputError, match="already carries a LoRA"):
        new_trainer(tmp_path / "c", pipeline=pipeline)


def test_other_schedulers_become_ddim_without_clipping():
    scheduler = as_ddim(EulerDiscreteScheduler(beta_schedule="scaled_linear", prediction_type="v_prediction"))
    assert scheduler.config.prediction_type == "v_prediction" and scheduler.config.beta_schedule == "scaled_linear"
    assert not scheduler.config.clip_sample


def test_every_prompt_is_drawn_before_any_is_drawn_again():
    drawn = [index for epoch in range(5) for index in prompt_indices(10, 4, epoch, seed=3)]
    assert sorted(drawn[:10]) == list(range(10)) == sorted(drawn[10:])
    assert drawn[:10] != drawn[10:]


def test_plan_covers_every_pair_once_and_ignores_small_advantages(tmp_path):
    args = settings(tmp_path, train_batch_size=2, train_adv_min=0.1, sample_num_steps=5)
    advantages = np.array([1.0, 0.05, -1.0, 0.0, 2.0, -0.2, 0.3, 0.0], dtype=np.float32)
    plans = plan_steps(advantages, [0, 1, 3], args, 1, "0/0")
    assert len(plans) == 4
    pairs = {tuple(pair) for plan in plans for pair in plan.tolist()}
    assert pairs == {(i, k) for i in (0, 2, 4, 5, 6) for k in (0, 1, 3)} and sum(map(len, plans)) == 15
    # Two processes with half of everything take the same steps.
    half = settings(tmp_path, train_batch_size=1, train_adv_min=0.1, sample_num_steps=5)
    assert all(map(np.array_equal, plans, plan_steps(advantages, [0, 1, 3], half, 2, "0/0")))
    assert plan_steps(np.zeros(8), [0], args, 1, "0/0") == []
    fraction = settings(tmp_path, train_timestep_fraction=0.34, train_batch_size=8)
    assert sum(map(len, plan_steps(np.ones(8), [0, 1, 2], fraction, 1, "0/0"))) == 8


def test_learning_rate_schedules():
    args = DDPOConfig(num_epochs=12, train_lr_warmup_epochs=2, train_lr_schedule="cosine", train_learning_rate=1.0)
    rates = [learning_rate(args, epoch) for epoch in range(12)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1.0]) and rates[7] == pytest.approx(0.5)
    assert rates[2:] == sorted(rates[2:], reverse=True) and rates[-1] > 0


def test_summary_by_hand():
    scores = np.array([[1.0, 0.0], [np.nan, 1.0], [np.nan, np.nan]])
    assert summary(scores) == {
        "overall/mean": 0.75,
        "overall/standard_error": pytest.approx(np.std([0.5, 1.0], ddof=1) / math.sqrt(2)),
        "overall/count": 3,
        "abstained": 3,
    }


def test_audit_gap_watches_growth():
    gap = AuditGap(max_growth=0.1)
    assert gap.update(0.6, 0.5) == pytest.approx(0.1)
    gap.update(0.7, 0.52)
    gap.check()
    assert math.isnan(gap.update(math.nan, 0.5))
    gap.update(0.8, 0.5)
    with pytest.raises(AuditGapExceeded):
        gap.check()


def test_config_is_saved_beside_the_run(tmp_path):
    new_trainer(tmp_path, seed=7).train()
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["seed"] == 7
    state = json.loads((Path(tmp_path) / "run" / "checkpoints" / "checkpoint_1" / "state.json").read_text())
    assert state["step"] == 1 and state["config"]["seed"] == 7
