"""DDPOTrainer on tiny pipelines of the real classes: what it computes, what it saves, and how it fails."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from diffusers import EulerDiscreteScheduler, UNet2DConditionModel
from safetensors.torch import load_file

from rewards.errors import InputError, RewardsError
from rewards.report.page import write_report
from rewards.runs.locks import locked
from rewards.runs.metrics import read_metrics
from rewards.runs.samples import read_samples
from rewards.runs.summary import gains
from rewards.shapes.language import meaning
from rewards.trainers.audit import AuditGap, AuditGapExceeded
from rewards.trainers.diffusion.ddpo import DDPOConfig, DDPOTrainer
from rewards.trainers.diffusion.evaluation import summary
from rewards.trainers.diffusion.optimization import plan_pairs
from rewards.trainers.diffusion.plan import RateSchedule, prompt_indices
from rewards.trainers.diffusion.policy.unet import as_ddim
from rewards.trainers.diffusion.prompts import split_of_run
from rewards.trainers.diffusion.randomness import Noise, derived_seed
from rewards.trainers.diffusion.rollout import Sampler, draw
from rewards.trainers.diffusion.settings import DiffusionRunConfig
from tests.trainers.diffusion.tiny_diffusion import ZERO_SNR, redness, stable_diffusion
from tests.trainers.diffusion.tiny_runs import PIPELINES, PROMPTS, poison, same_metrics, weights


def settings(folder, **changes):
    values = {
        "output_dir": str(folder / "run"),
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


def test_ddpo_learns_redness_and_logs_it(tmp_path):
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
    first, last = trainer.evaluation_log.read()
    gain = gains(first, last)["overall"]
    assert last.step == 6 and gain.gain > 0.004 and gain.low > 0.002
    before = [judgment.overall for judgment in first.judgments()]
    rows = read_metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 5, 6, 6]
    assert rows[-1]["eval/rewards/redness/overall/mean"] == pytest.approx(gain.after, abs=1e-6)
    assert {sample["phase"] for sample in read_samples(tmp_path / "run")} == {"before", "after"}
    base = trainer.evaluate(base_model=True)
    np.testing.assert_allclose(base.scores.ravel(), before, atol=1e-6)


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_ratio_is_one_before_the_first_update(tmp_path, pipeline, guidance):
    trainer = new_trainer(
        tmp_path, pipeline=pipeline, sample_guidance_scale=guidance, negative_prompts="a black", train_batch_size=8
    )
    before = weights(trainer)
    metrics = trainer.train()
    assert metrics["train/optimizer_steps"] == 1
    assert metrics["policy/ratio_before_update"] == 1.0 and metrics["policy/ratio_farthest"] == 0.0
    # The ratio is not 1 because the recomputed value is forgiven: it equals the recorded one.
    assert metrics["policy/sampling_mismatch"] < 1e-5
    assert metrics["policy/clip_fraction"] == 0.0
    assert not torch.equal(before, weights(trainer))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_pictures_are_those_of_the_pipeline(tmp_path, pipeline):
    trainer = new_trainer(tmp_path, pipeline=pipeline)
    pipe = trainer.policy.pipeline
    sampler = Sampler(trainer.policy.stepper(3, 0.0), 2.5)
    start = Noise(0, "test", range(2), trainer.policy.latent_shape).draw()
    noise = Noise(0, "test", range(2), trainer.policy.latent_shape)
    ours = trainer.policy.pictures(draw(trainer.policy, PROMPTS[:2], sampler, noise).final)
    pipe.vae.to(torch.float32)
    theirs = pipe(
        PROMPTS[:2], latents=start, num_inference_steps=3, guidance_scale=2.5, eta=0.0, output_type="pt"
    ).images
    torch.testing.assert_close(ours, theirs.float(), atol=2e-5, rtol=0)


@pytest.mark.parametrize("pipeline", ["zero_snr", "sdxl"])
def test_adapter_loads_in_plain_diffusers(tmp_path, pipeline):
    targets = ["to_q", "to_out.0", "conv1", "proj_in"]
    trainer = new_trainer(tmp_path, pipeline=pipeline, lora_target_modules=targets, lora_rank=4, lora_alpha=8)
    trainer.train()
    adapter = tmp_path / "run" / "adapter"
    fresh = PIPELINES[pipeline]()
    noise = Noise(0, "x", range(2), trainer.policy.latent_shape).draw()
    options = {"latents": noise, "num_inference_steps": 3, "guidance_scale": 1.0, "output_type": "pt"}
    base = fresh(PROMPTS[:2], **options).images
    fresh.load_lora_weights(adapter)
    loaded = fresh(PROMPTS[:2], **options).images
    trained = trainer.policy.pipeline(PROMPTS[:2], **options).images
    torch.testing.assert_close(loaded, trained, atol=1e-5, rtol=0)
    assert (loaded - base).abs().max() > 1e-3
    card = (tmp_path / "run" / "README.md").read_text()
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
    resumed = new_trainer(tmp_path / "cut", resume=True, **options)
    assert resumed.step == 2
    resumed.train()
    same_metrics(read_metrics(tmp_path / "whole" / "run"), read_metrics(tmp_path / "cut" / "run"), 1e-6)
    torch.testing.assert_close(weights(whole), weights(resumed), atol=1e-7, rtol=0)
    assert len(read_samples(tmp_path / "cut" / "run")) == 3
    checkpoints = sorted(path.name for path in (tmp_path / "cut" / "run" / "checkpoints").iterdir())
    assert checkpoints == [f"checkpoint-{step}" for step in (1, 2, 3, 4)]
    again = new_trainer(tmp_path / "cut", resume=True, **(options | {"num_epochs": 5}))
    assert again.step == 4
    anew = new_trainer(tmp_path / "cut", overwrite=True, **options)
    assert anew.step == 0 and not (tmp_path / "cut" / "run" / "metrics.jsonl").exists()


def test_checkpoint_limit_and_partial_checkpoints(tmp_path):
    trainer = new_trainer(tmp_path, num_epochs=4, save_freq=1, num_checkpoint_limit=2)
    folder = tmp_path / "run" / "checkpoints"
    (folder / ".partial-1").mkdir(parents=True)
    (folder / ".partial-1" / "state.json").write_text("{")
    trainer.train()
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-3", "checkpoint-4"]


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
        (lambda images, prompts, metadata: [1.0], r"shape \(1,\) for 8 samples"),
    ],
)
def test_reward_that_refuses_its_input_stops_at_once(tmp_path, reward, message):
    with pytest.raises(RewardsError, match=message):
        new_trainer(tmp_path, reward=reward, max_failure_rate=1.0).train()


def test_broken_pictures_abstain(tmp_path):
    trainer = new_trainer(tmp_path, reward=lambda images, prompts, metadata: (redness(images, prompts)[0], {}))
    pictures = trainer.policy.pictures

    def broken(latents):
        images = pictures(latents)
        images[0] = math.nan
        images[1] = 0.0
        return images

    trainer.policy.pictures = broken
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
        trainer = new_trainer(
            tmp_path / str(coefficient), num_epochs=4, train_kl_coefficient=coefficient, train_kl_log_freq=1
        )
        distances[coefficient] = trainer.train()["policy/kl"]
    assert distances[0.0] > 1e-4
    assert distances[100.0] < 0.5 * distances[0.0]
    assert read_metrics(tmp_path / "0.0" / "run")[0]["policy/kl"] < distances[0.0]


def test_whole_unet_can_be_trained(tmp_path):
    trainer = new_trainer(
        tmp_path, use_lora=False, train_learning_rate=1e-3, train_kl_coefficient=0.0, train_kl_log_freq=1
    )
    metrics = trainer.train()
    assert metrics["policy/ratio_before_update"] == 1.0 and metrics["policy/kl"] > 0
    saved = UNet2DConditionModel.from_pretrained(tmp_path / "run" / "adapter" / "unet")
    for name, value in trainer.policy.network.state_dict().items():
        assert torch.equal(saved.state_dict()[name], value), name
    same = {"use_lora": False, "train_learning_rate": 1e-3, "train_kl_coefficient": 0.0, "train_kl_log_freq": 1}
    resumed = new_trainer(tmp_path, resume=True, num_epochs=2, **same)
    torch.testing.assert_close(weights(resumed), weights(trainer), atol=0, rtol=0)


def test_gradient_checkpointing_changes_nothing(tmp_path):
    rows = []
    for name, checkpointing in (("a", False), ("b", True)):
        new_trainer(tmp_path / name, gradient_checkpointing=checkpointing).train()
        rows.append(read_metrics(tmp_path / name / "run"))
    same_metrics(*rows, tolerance=1e-6)


def test_bfloat16_keeps_what_must_be_float32(tmp_path):
    trainer = new_trainer(tmp_path, mixed_precision="bf16", train_kl_coefficient=0.0, train_kl_log_freq=1)
    metrics = trainer.train()
    assert trainer.policy.pipeline.vae.dtype == torch.float32
    assert {parameter.dtype for parameter in trainer.policy.parameters} == {torch.float32}
    assert trainer.policy.pipeline.text_encoder.dtype == torch.bfloat16
    assert metrics["policy/ratio_before_update"] == 1.0 and math.isfinite(metrics["train/grad_norm"])


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


def test_a_run_without_held_out_prompts_shows_pictures_of_its_training(tmp_path):
    new_trainer(tmp_path, num_epochs=3, eval_freq=0).train()
    samples = read_samples(tmp_path / "run")
    assert [(sample["step"], sample["phase"]) for sample in samples] == [(1, "before")] * 2 + [(3, "during")] * 2
    assert len({sample["prompt"] for sample in samples[:2]}) == 2  # not two of one prompt
    assert all((tmp_path / "run" / sample["image"]).is_file() and sample["score"] is not None for sample in samples)
    page = write_report([tmp_path / "run"]).page.read_text(encoding="utf-8")
    shown = page.split("Samples from training")[1]
    assert shown.count("<img") == 4 and samples[0]["prompt"] in shown


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
        ({"sample_guidance_scale": -1.0}, "sample_guidance_scale must be at least 1, got -1.0"),
        ({"sample_guidance_scale": 0.5}, "sample_guidance_scale must be at least 1, got 0.5"),
        ({"eval_guidance_scale": 0.5}, "eval_guidance_scale must be at least 1, got 0.5"),
        ({"resume": True, "overwrite": True}, "set one of them"),
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
    plans = plan_pairs(advantages, [0, 1, 3], args, 1, "0/0")
    assert len(plans) == 4
    pairs = {tuple(pair) for plan in plans for pair in plan.tolist()}
    assert pairs == {(i, k) for i in (0, 2, 4, 5, 6) for k in (0, 1, 3)} and sum(map(len, plans)) == 15
    # Two processes with half of everything take the same steps.
    half = settings(tmp_path, train_batch_size=1, train_adv_min=0.1, sample_num_steps=5)
    assert all(map(np.array_equal, plans, plan_pairs(advantages, [0, 1, 3], half, 2, "0/0")))
    assert plan_pairs(np.zeros(8), [0], args, 1, "0/0") == []
    assert sum(map(len, plan_pairs(np.ones(8), [0, 1, 2], args, 1, "0/0", fraction=0.34))) == 8


def test_learning_rate_schedules():
    args = DDPOConfig(num_epochs=12, train_lr_warmup_epochs=2, train_lr_schedule="cosine", train_learning_rate=1.0)
    schedule = RateSchedule.new(args, 12)
    rates = [schedule.at(epoch) for epoch in range(12)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1.0]) and rates[7] == pytest.approx(0.5)
    assert rates[2:] == sorted(rates[2:], reverse=True) and rates[-1] > 0


def test_summary_by_hand():
    scores = np.array([[1.0, 0.0], [np.nan, 1.0], [np.nan, np.nan]])
    assert summary(scores, ["a", "b", "c"]) == {
        "overall/mean": 0.75,
        "overall/standard_error": pytest.approx(np.std([0.5, 1.0], ddof=1) / math.sqrt(2)),
        "overall/count": 3,
        "abstained": 3,
    }
    together = summary(np.array([[1.0], [1.0], [0.0], [0.0]]), ["a", "a", "b", "b"])
    assert together["overall/standard_error"] == pytest.approx(np.std([1.0, 0.0], ddof=1) / math.sqrt(2))
    assert math.isnan(summary(scores[2:], ["c"])["overall/mean"])


def test_prompts_that_mean_the_same_are_one_cluster(tmp_path):
    config = DiffusionRunConfig(output_dir=str(tmp_path), num_train_prompts=4, num_eval_prompts=256)
    _, held_out, _ = split_of_run(config)
    clusters = {prompt: extra["cluster"] for prompt, extra in held_out}
    assert len(clusters) == 256 and len(set(clusters.values())) == 70
    bare = {text.split(" on a ")[0] for text in clusters}
    assert len(bare) == 121  # in either order, or without the relation
    assert all(meaning(text.split(" on a ")[0]) == cluster for text, cluster in clusters.items())


def test_the_adapter_that_the_audit_likes_best_is_kept(tmp_path):
    said = iter([0.5, 0.9, 0.7])  # one evaluation each, before any epoch and after every

    def audit(images, prompts, metadata):
        return [next(said) if list(prompts) == ["a red square"] else 0.0] * len(prompts)

    trainer = new_trainer(
        tmp_path, audit=audit, eval_prompts=["a red square"], num_epochs=2, eval_freq=1, save_freq=1, audit_freq=0
    )
    trainer.train()
    assert trainer.best.step == 1 and trainer.best.audit == pytest.approx(0.9)
    best, last = (tmp_path / "run" / name / "pytorch_lora_weights.safetensors" for name in ("best", "adapter"))
    (then,) = (tmp_path / "run" / "checkpoints" / "checkpoint-1").rglob("pytorch_lora_weights.safetensors")
    assert best.read_bytes() != last.read_bytes()
    kept, at_step = load_file(best), load_file(then)
    assert kept.keys() == at_step.keys() and all(kept[name].equal(at_step[name]) for name in kept)


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
    state = json.loads((Path(tmp_path) / "run" / "checkpoints" / "checkpoint-1" / "state.json").read_text())
    assert state["step"] == 1
    identity = json.loads((tmp_path / "run" / "identity.json").read_text())
    assert identity["settings"]["seed"] == 7 and identity["settings"]["method"] == "ddpo"


CHANGED = {
    "seed": {"seed": 1},
    "sample_guidance_scale": {"sample_guidance_scale": 2.0},
    "lora_alpha": {"lora_alpha": 64},
    "lora_rank": {"lora_rank": 8},
    "train_learning_rate": {"train_learning_rate": 1e-4},
    "samples_per_epoch": {"sample_batch_size": 16},
}


@pytest.mark.parametrize("name", CHANGED)
def test_run_is_not_continued_with_settings_that_change_its_result(tmp_path, name):
    new_trainer(tmp_path).train()
    with pytest.raises(InputError, match=rf"settings\.{name} was .* and is now"):
        new_trainer(tmp_path, resume=True, num_epochs=2, **CHANGED[name])


def test_run_is_not_continued_with_another_reward_model_or_prompts(tmp_path):
    new_trainer(tmp_path).train()
    args = settings(tmp_path, resume=True, num_epochs=2)

    def other(images, prompts, metadata):
        return redness(images, prompts)

    with pytest.raises(InputError, match=r"reward\.name was 'redness' and is now 'other'"):
        DDPOTrainer(PIPELINES["zero_snr"](), other, PROMPTS, args)
    with pytest.raises(InputError, match=r"model\.weights\.unet was"):
        DDPOTrainer(stable_diffusion(seed=1, **ZERO_SNR), redness, PROMPTS, args)
    with pytest.raises(InputError, match=r"prompts\.train was"):
        DDPOTrainer(PIPELINES["zero_snr"](), redness, PROMPTS[:3], args)


def test_what_may_change_does_not_stop_a_run(tmp_path):
    new_trainer(tmp_path).train()
    other = {"num_epochs": 2, "eval_freq": 1, "sample_batch_size": 4, "sample_num_batches_per_epoch": 2}
    other |= {"train_batch_size": 2, "train_gradient_accumulation_steps": 2, "run_name": "longer"}
    assert new_trainer(tmp_path, resume=True, **other).train()["train/optimizer_steps"] == 2


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_extended_run_goes_on_from_its_learning_rate(tmp_path, schedule):
    options = {"train_lr_schedule": schedule, "train_learning_rate": 0.01}
    new_trainer(tmp_path, num_epochs=2, **options).train()
    new_trainer(tmp_path, num_epochs=6, resume=True, **options).train()
    rates = [row["train/learning_rate"] for row in read_metrics(tmp_path / "run")]
    assert len(rates) == 6 and rates[2] == rates[1]
    assert rates == sorted(rates, reverse=True)
    if schedule != "constant":
        assert rates[5] < rates[2] / 2
    again = new_trainer(tmp_path, num_epochs=6, resume=True, **options)  # nothing is left to do, nothing moves
    assert again.rates.at(5) == rates[5]


def test_run_stops_where_no_step_is_finite(tmp_path):
    trainer = new_trainer(tmp_path, num_epochs=9, train_max_skipped_steps=3, save_freq=1)
    poison(trainer, calls=range(1, 1000))
    with pytest.raises(RewardsError, match="4 optimiser steps in a row"):
        trainer.train()
    assert bool(weights(trainer).isfinite().all())


def test_checkpoint_is_never_written_of_a_model_that_is_not_finite(tmp_path):
    trainer = new_trainer(tmp_path, num_epochs=1)
    trainer.train()
    with torch.no_grad():
        trainer.policy.parameters[0].view(-1)[0] = math.inf
    trainer.step = 2
    with pytest.raises(RewardsError, match="not finite"):
        trainer.save_checkpoint()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["checkpoint-1"]


def ruin_moments(trainer):
    next(iter(trainer.optimization.optimizer.state.values()))["exp_avg"].view(-1)[0] = math.nan


def ruin_average(trainer):
    trainer.average._values[0].view(-1)[0] = math.inf


def ruin_statistics(trainer):
    next(iter(trainer.statistics._buffers.values())).append(math.nan)


def ruin_what_the_reward_learned(trainer):
    trainer.reward.state_dict = lambda: {"scale": [1.0, math.inf]}


def ruin_what_the_method_keeps(trainer):
    trainer.method.state = lambda: {"old": [torch.ones(2), torch.tensor([1.0, math.nan])]}


@pytest.mark.parametrize(
    "ruin",
    [ruin_moments, ruin_average, ruin_statistics, ruin_what_the_reward_learned, ruin_what_the_method_keeps],
)
def test_checkpoint_is_never_written_with_a_value_that_is_not_finite_whoever_keeps_it(tmp_path, ruin):
    trainer = new_trainer(tmp_path, num_epochs=1, train_ema_decay=0.5)
    trainer.train()
    ruin(trainer)
    trainer.step = 2
    with pytest.raises(RewardsError, match="is not finite: no checkpoint is written of it"):
        trainer.save_checkpoint()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["checkpoint-1"]
    if ruin is ruin_average:  # what is saved as the result
        with pytest.raises(RewardsError, match=r"moving_average\.0 is not finite"):
            trainer.save_model()


def test_a_run_that_learns_nothing_is_stopped_after_three_epochs(tmp_path, caplog):
    def constant(images, prompts, metadata):
        return [0.5] * len(prompts)

    trainer = DDPOTrainer(PIPELINES["zero_snr"](), constant, ["a", "b"], settings(tmp_path, num_epochs=9, save_freq=1))
    with pytest.raises(RewardsError, match="stopped at epoch 3: nothing was learned 3 times in a row"):
        trainer.train()
    assert sum("nothing is learned" in record.message for record in caplog.records) == 2
    assert [row["step"] for row in read_metrics(tmp_path / "run")] == [1, 2, 3]
    trainer = DDPOTrainer(
        PIPELINES["zero_snr"](), constant, ["a", "b"], settings(tmp_path, num_epochs=2, overwrite=True)
    )
    assert trainer.train()["train/optimizer_steps"] == 0  # two epochs are warned of only


def test_another_process_on_the_folder_is_refused_until_the_run_has_ended(tmp_path):
    trainer = new_trainer(tmp_path, num_epochs=1)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"another process is working on .*run"):
        locked(tmp_path / "run", ".lock")
    held = locked(tmp_path, "other")
    held.release()
    trainer.train()
    held = locked(tmp_path / "run", ".lock")
    for flags in ({"resume": True}, {"overwrite": True}, {}):
        with pytest.raises(InputError, match="another process is working on"):
            new_trainer(tmp_path, num_epochs=2, **flags)
    held.release()
    assert new_trainer(tmp_path, num_epochs=2, resume=True).train()["train/optimizer_steps"] > 0
    assert all(path.exists() for path in before)


def test_one_text_is_not_a_list_of_letters(tmp_path):
    with pytest.raises(InputError, match="a list of texts is needed"):
        DDPOTrainer(PIPELINES["zero_snr"](), redness, "red", settings(tmp_path))


def test_prompts_that_share_a_text_have_statistics_of_their_own(tmp_path):
    """The same text with other metadata is another prompt: half of the pictures are worth 1, half 5."""

    def by_tag(images, prompts, metadata):
        return [row["worth"] for row in metadata]

    twins = [("a red circle", {"worth": 1.0}), ("a red circle", {"worth": 5.0})]
    metrics = DDPOTrainer(PIPELINES["zero_snr"](), by_tag, twins, settings(tmp_path)).train()
    assert metrics["train/zero_std_groups"] == 1.0 and metrics["train/advantage_deviation"] == 0.0


def test_advantages_can_be_divided_by_the_deviation_of_the_epoch(tmp_path):
    def numbered(images, prompts, metadata):
        return np.array([0.0, 2.0, 0.0, 2.0, 0.0, 6.0, 0.0, 6.0]) - 1

    found = {}
    for kind in ("prompt", "epoch"):
        trainer = new_trainer(tmp_path / kind, numbered, advantage_deviation=kind, advantage_epsilon=0.0)
        found[kind] = trainer.train()["train/advantage_deviation"]
    assert found["prompt"] == pytest.approx(1.0)
    assert found["epoch"] == pytest.approx(np.sqrt((1 + 9) / 2) / np.std([0, 2, 0, 6]))


def test_evaluation_keeps_no_trajectory(tmp_path):
    trainer = new_trainer(tmp_path)
    sampler = Sampler(trainer.policy.stepper(3, 1.0), 1.0)
    shape = trainer.policy.latent_shape
    kept = draw(trainer.policy, PROMPTS, sampler, Noise(0, "x", range(4), shape), keep_from=0)
    free = draw(trainer.policy, PROMPTS, sampler, Noise(0, "x", range(4), shape))
    assert free.latents is None and free.log_probs is None
    assert torch.equal(free.final, kept.final) and kept.latents.shape == (4, 4, *shape)


def test_noise_drawn_step_by_step_is_the_noise_drawn_at_once():
    whole = torch.randn(6, 4, 4, 4, generator=torch.Generator().manual_seed(derived_seed(3, "train/0", 7)))
    noise = Noise(3, "train/0", [7], (4, 4, 4))
    assert torch.equal(torch.cat([noise.draw() for _ in range(6)]), whole)


def test_moving_average_is_what_is_evaluated_and_saved(tmp_path):
    options = {"num_epochs": 3, "save_freq": 1, "eval_prompts": ["a red square"]}
    plain = new_trainer(tmp_path / "plain", **options)
    trainer = new_trainer(tmp_path / "a", train_ema_decay=0.5, **options)
    expected, seen = weights(trainer), []
    update = trainer.average.update

    def watched():
        update()
        seen.append(weights(trainer))

    trainer.average.update = watched
    trainer.train()
    plain.train()
    torch.testing.assert_close(weights(plain), weights(trainer), atol=1e-7, rtol=0)  # training itself is the same
    for value in seen:
        expected = 0.5 * expected + 0.5 * value
    with trainer.average.held():
        torch.testing.assert_close(weights(trainer), expected, atol=1e-6, rtol=0)
        averaged = weights(trainer)
    fresh = new_trainer(tmp_path / "b")
    fresh.policy.load(tmp_path / "a" / "run" / "adapter")
    torch.testing.assert_close(weights(fresh), averaged, atol=0, rtol=0)
    key = "eval/rewards/redness/overall/mean"
    assert read_metrics(tmp_path / "a" / "run")[-1][key] != read_metrics(tmp_path / "plain" / "run")[-1][key]
    resumed = new_trainer(tmp_path / "a", resume=True, train_ema_decay=0.5, **(options | {"num_epochs": 4}))
    with resumed.average.held():
        torch.testing.assert_close(weights(resumed), averaged, atol=0, rtol=0)
