"""DDPO (Black et al. 2023) for diffusers text-to-image pipelines: sample, score, normalise a prompt's rewards, update.

TRL removed its ``DDPOTrainer`` in 2025; this one keeps its argument names
(:class:`rewards.trainers.diffusion.config.DDPOConfig`).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, broadcast, gather_object
from tqdm.auto import tqdm

from rewards.errors import InputError, RewardsError
from rewards.runs.config import save_config
from rewards.runs.metrics import MetricsLog
from rewards.runs.samples import Phase, SampleLog
from rewards.trainers.audit import AuditGap
from rewards.trainers.diffusion.advantages import PromptStatistics, global_advantages, zero_deviation_groups
from rewards.trainers.diffusion.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from rewards.trainers.diffusion.config import DDPOConfig
from rewards.trainers.diffusion.describing import reward_record, track_pictures, write_model_card, write_samples
from rewards.trainers.diffusion.evaluation import (
    Evaluation,
    EvaluationLog,
    EvaluationSet,
    evaluate,
)
from rewards.trainers.diffusion.plan import Prompt, learning_rate, prompt_indices, split_prompts
from rewards.trainers.diffusion.policy import DiffusionPolicy, derived_seed
from rewards.trainers.diffusion.sampling import Trajectories, batch_noise, sample
from rewards.trainers.diffusion.scoring import (
    Reward,
    Scored,
    merge_info,
    raise_if_fatal,
    reward_name,
    score_pictures,
)
from rewards.trainers.diffusion.update import PolicyUpdate

__all__ = ["DDPOConfig", "DDPOTrainer"]


class DDPOTrainer:
    """Trains the UNet of a diffusion pipeline on a reward of its pictures.

    Args:
        pipeline: A Stable Diffusion 1.x, 2.x or SDXL pipeline from diffusers. Its scheduler becomes DDIM and its UNet
            gets a LoRA adapter; the pipeline can be used as usual afterwards.
        reward: ``reward(images, prompts, metadata) -> rewards`` or ``(rewards, info)``; images are (N, 3, H, W)
            float32 in [0, 1]. NaN or None is an abstention: the sample takes no part. Flat numbers in ``info`` become
            curves.
        prompts: Training prompts, texts or pairs of a text and a mapping that the reward gets as metadata.
        args: The settings.
        eval_prompts: Held-out prompts for evaluations with fixed noise; None for no evaluation.
        eval_reward: What evaluations report; default: ``reward``. (Train on ``TIFA(soft=True)``, report plain TIFA.)
        audit: A second reward that never trains; its curve is drawn beside the first.

    Raises:
        InputError: Settings, prompts or a pipeline that cannot be used.

    Example:
        >>> from rewards.trainers.diffusion.ddpo import DDPOConfig, DDPOTrainer
        >>> trainer = DDPOTrainer(pipeline, tifa, prompts, DDPOConfig(num_epochs=40))  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
        >>> pipeline.load_lora_weights("runs/ddpo/adapter")  # in another process  # doctest: +SKIP
    """

    def __init__(
        self,
        pipeline: Any,
        reward: Reward,
        prompts: Sequence[Prompt],
        args: DDPOConfig,
        *,
        eval_prompts: Sequence[Prompt] | None = None,
        eval_reward: Reward | None = None,
        audit: Reward | None = None,
    ) -> None:
        self.args = args
        self.reward = reward
        self.eval_reward = reward if eval_reward is None else eval_reward
        self.audit = audit
        self.prompts, self.metadata = split_prompts(prompts)
        if not self.prompts:
            raise InputError("prompts is empty; DDPO needs at least one prompt to draw")
        self.accelerator = _accelerator(args)
        self.samples_per_epoch = args.samples_per_epoch(self.accelerator.num_processes)
        resumed = find_checkpoint(args.resume_from, args.logdir)
        self._check_logdir()
        if args.allow_tf32 and torch.cuda.is_available():
            torch.backends.cuda.matmul.allow_tf32 = True
        torch.manual_seed(derived_seed(args.seed, "process", self.accelerator.process_index))
        self.policy = DiffusionPolicy(pipeline, args, self.accelerator.device)
        self.sampler = self.policy.sampler(args.sample_num_steps, args.sample_eta, args.sample_guidance_scale)
        if not bool((self.sampler.schedule.sigma > 0).any()):
            raise InputError(f"no step of {args.sample_num_steps} is stochastic: take more sample_num_steps")
        self.optimizer = self._new_optimizer()
        self.update = PolicyUpdate(self.policy, self.optimizer, self.accelerator, args, self.sampler)
        self.statistics = PromptStatistics(
            args.per_prompt_stat_tracking_buffer_size, args.per_prompt_stat_tracking_min_count
        )
        self.audit_gap = AuditGap(args.audit_max_gap)
        self._eval_set = self._new_eval_set(eval_prompts)
        self.step = 0
        self.failures = self.scored = 0
        self.metrics_log, self.sample_log = MetricsLog(Path(args.logdir) / "metrics.jsonl"), SampleLog(args.logdir)
        self.evaluation_log = EvaluationLog(args.logdir)
        if resumed is not None:
            self._resume(resumed)
        self._executor = ThreadPoolExecutor(args.max_workers) if args.async_reward_computation else None

    # -- the run --------------------------------------------------------------------------------------------------

    def train(self) -> dict[str, float]:
        """Train up to ``num_epochs`` epochs, from where the run stands.

        Returns:
            The metrics of the last epoch and evaluation.

        Raises:
            RewardsError: The reward refused its input, too many pictures could not be judged, or the audit gap grew
                beyond its limit. Checkpoints and metrics up to there stay readable.
        """
        args, main = self.args, self.accelerator.is_main_process
        if main:
            save_config(args, Path(args.logdir) / "config.yaml")
            for log in (self.metrics_log, self.sample_log, self.evaluation_log):
                log.keep_until(self.step if self.step else -1)
        self._start_trackers()
        latest: dict[str, float] = {}
        if self.step == 0:
            latest |= self._evaluate_and_log()
        progress = tqdm(total=args.num_epochs, initial=self.step, desc="DDPO", unit="epoch", disable=not main)
        while self.step < args.num_epochs:
            metrics = self._epoch(self.step)
            latest |= metrics
            self.step += 1
            self._log(metrics)
            self._stop_if_failing(metrics)
            self.audit_gap.check()
            progress.update()
            progress.set_postfix_str(f"reward {metrics[self._key('overall/mean')]:.3f}")
            last = self.step == args.num_epochs
            if last or (args.eval_freq and self.step % args.eval_freq == 0):
                latest |= self._evaluate_and_log()
            if last or (args.save_freq and self.step % args.save_freq == 0):
                self.save_checkpoint()
        progress.close()
        self.save_model(Path(args.logdir) / "adapter")
        self.accelerator.end_training()
        return latest

    def _epoch(self, epoch: int) -> dict[str, float]:
        """Sample, score, normalise, update."""
        started = time.perf_counter()
        trajectories, scored, audited, rows = self._sample_and_score(epoch)
        sampled = time.perf_counter()
        rewards, metrics = self._gather(scored, f"rewards/{reward_name(self.reward)}")
        keys = [self.prompts[row] for row in rows]
        epsilon = self.args.advantage_epsilon
        if self.args.per_prompt_stat_tracking:
            advantages = self.statistics.advantages(keys, rewards, epsilon)
        else:
            advantages = global_advantages(rewards, epsilon)
        metrics["train/zero_std_groups"] = zero_deviation_groups(keys, rewards)
        metrics["train/advantage_deviation"] = float(advantages.std())
        if audited is not None and self.audit is not None:
            values, extra = self._gather(audited, f"audit/{reward_name(self.audit)}")
            both = np.isfinite(values) & np.isfinite(rewards)
            means = (float(x[both].mean()) if both.any() else math.nan for x in (rewards, values))
            metrics |= extra | {"audit/gap": self.audit_gap.update(*means)}
        rate = learning_rate(self.args, epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        metrics |= self.update.run(trajectories, advantages, epoch)
        metrics["train/learning_rate"] = rate
        metrics["time/sample_and_score"] = sampled - started
        metrics["time/train"] = time.perf_counter() - sampled
        return metrics

    def _sample_and_score(self, epoch: int) -> tuple[Trajectories, Scored, Scored | None, list[int]]:
        """This process's trajectories and scores, and the prompt index of every sample of all processes."""
        args = self.args
        group = args.sample_num_images_per_prompt
        chosen = prompt_indices(len(self.prompts), self.samples_per_epoch // group, epoch, args.seed)
        rows = [row for row in chosen for _ in range(group)]
        share = self.samples_per_epoch // self.accelerator.num_processes
        first = self.accelerator.process_index * share
        parts, scores, audits = [], [], []
        with_audit = self.audit is not None and args.audit_freq > 0 and epoch % args.audit_freq == 0
        for start in range(first, first + share, args.sample_batch_size):
            indices = range(start, start + args.sample_batch_size)
            prompts = [self.prompts[rows[index]] for index in indices]
            metadata = [self.metadata[rows[index]] for index in indices]
            noise = batch_noise(args.seed, f"train/{epoch}", indices, args.sample_num_steps, self.policy.latent_shape)
            part = sample(self.policy, prompts, self.sampler, noise)
            images = self.policy.decode(part.latents[:, -1])
            parts.append(part)
            scores.append(self._submit(self.reward, images, prompts, metadata))
            if with_audit and self.audit is not None:
                audits.append(self._submit(self.audit, images, prompts, metadata))
        scored = Scored.concatenate([score.result() for score in scores])
        audited = Scored.concatenate([score.result() for score in audits]) if with_audit else None
        return Trajectories.concatenate(parts), scored, audited, rows

    def _submit(self, reward: Reward, images: Any, prompts: list[str], metadata: list[Any]) -> Future[Scored]:
        """Score in a worker while the next batch is drawn, or at once."""
        if self._executor is not None:
            return self._executor.submit(score_pictures, reward, images, prompts, metadata)
        done: Future[Scored] = Future()
        done.set_result(score_pictures(reward, images, prompts, metadata))
        return done

    def _gather(self, scored: Scored, prefix: str) -> tuple[np.ndarray, dict[str, float]]:
        """Rewards of all processes in global order, and their metrics."""
        parts: list[Scored] = gather_object([scored])
        raise_if_fatal([(part.error, part.fatal) for part in parts])
        everything = Scored.concatenate(parts)
        branch = prefix.split("/")[0]
        metrics = {
            f"{branch}/{key.removeprefix('rewards/')}": value for key, value in merge_info(everything.info).items()
        }
        values = everything.values
        judged = values[np.isfinite(values)].astype(np.float64)
        metrics |= {
            f"{prefix}/overall/mean": float(judged.mean()) if len(judged) else math.nan,
            f"{prefix}/overall/std": float(judged.std()) if len(judged) else math.nan,
            f"{prefix}/overall/count": len(judged),
            f"{prefix}/abstained": len(values) - len(judged),
        }
        if branch == "rewards":
            metrics["samples/broken_pictures"] = everything.broken
            metrics["samples/failure_rate"] = 1 - len(judged) / len(values)
            self._last_error = everything.error
            self.failures += len(values) - len(judged)
            self.scored += len(values)
        return values, metrics

    def _stop_if_failing(self, metrics: Mapping[str, float]) -> None:
        rate = metrics["samples/failure_rate"]
        if rate > self.args.max_failure_rate:
            reason = f": {self._last_error}" if self._last_error else ""
            raise RewardsError(
                f"{rate:.0%} of the pictures of epoch {self.step} could not be judged (max_failure_rate "
                f"{self.args.max_failure_rate:.0%}){reason}"
            )

    _last_error: str | None = None

    # -- evaluation -------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        *,
        num_steps: int | None = None,
        eta: float | None = None,
        guidance_scale: float | None = None,
        base_model: bool = False,
    ) -> Evaluation:
        """Draw and score the held-out prompts with their fixed noise; every process must call this.

        Args:
            num_steps: Denoising steps; default: as in evaluations of the run. Other samplers are for baselines.
            eta: DDIM's eta, likewise.
            guidance_scale: Guidance, likewise.
            base_model: Use the model as it was before training (the adapter is switched off).

        Returns:
            The scores; nothing is logged.

        Raises:
            InputError: The trainer has no ``eval_prompts``.
            RewardsError: The reward refused its input.
        """
        if self._eval_set is None:
            raise InputError("evaluate() needs a trainer with eval_prompts")
        args = self.args
        sampler = self.policy.sampler(
            _first_given(num_steps, args.eval_num_steps, args.sample_num_steps),
            _first_given(eta, args.eval_eta, args.sample_eta),
            _first_given(guidance_scale, args.eval_guidance_scale, args.sample_guidance_scale),
        )
        arguments = (self._eval_set, sampler, self.eval_reward, self.audit, self.accelerator)
        if not base_model:
            return evaluate(self.policy, *arguments)
        with self.policy.base_model():
            return evaluate(self.policy, *arguments)

    def _evaluate_and_log(self) -> dict[str, float]:
        if self._eval_set is None:
            return {}
        evaluation = self.evaluate()
        if self.accelerator.is_main_process:
            last = self.step == self.args.num_epochs
            phase: Phase = "before" if self.step == 0 else "after" if last else "during"
            self.evaluation_log.append(self.step, evaluation)
            prompts = self._eval_set.prompts[: len(evaluation.pictures)]
            write_samples(self.sample_log, self.step, phase, prompts, evaluation, self.eval_reward)
            track_pictures(self.accelerator.trackers, self.step, evaluation)
        self._log(evaluation.metrics)
        return evaluation.metrics

    def _new_eval_set(self, eval_prompts: Sequence[Prompt] | None) -> EvaluationSet | None:
        if not eval_prompts:
            return None
        args = self.args
        texts, metadata = split_prompts(eval_prompts)
        batch = args.eval_batch_size or args.sample_batch_size
        return EvaluationSet(
            texts, metadata, args.eval_num_images_per_prompt, batch, args.seed, args.num_logged_samples
        )

    # -- files ------------------------------------------------------------------------------------------------------

    def save_model(self, folder: str | Path) -> None:
        """Write the adapter (for ``pipeline.load_lora_weights(folder)``) or the UNet, and a model card."""
        if self.accelerator.is_main_process:
            self.policy.save(folder)
            rate = self.failures / self.scored if self.scored else math.nan
            processes = self.accelerator.num_processes
            write_model_card(Path(folder), self.args, self.policy, self._record(), self.step, rate, processes)
        self.accelerator.wait_for_everyone()

    def save_checkpoint(self) -> Path:
        """Write ``logdir/checkpoints/checkpoint_<step>``; every process must call this."""
        state = {
            "statistics": self.statistics.state_dict(),
            "reward_state": self.reward.state_dict() if hasattr(self.reward, "state_dict") else None,
            "audit_first_gap": self.audit_gap.first,
            "failures": [self.failures, self.scored],
            "record": self._record(),
            "config": dataclasses.asdict(self.args),
        }
        limit = self.args.num_checkpoint_limit
        return save_checkpoint(self.args.logdir, self.step, self.policy, self.optimizer, state, self.accelerator, limit)

    def _resume(self, folder: Path) -> None:
        state = load_checkpoint(folder, self.policy, self.optimizer, self.accelerator)
        now, then = self._record(), state["record"]
        if now.get("questions") != then.get("questions"):
            raise InputError(
                f"{folder}: made with other questions (fingerprint {then.get('questions')}); resume with them"
            )
        self.step = int(state["step"])
        self.statistics.load_state_dict(state["statistics"])
        self.audit_gap.first = state["audit_first_gap"]
        self.failures, self.scored = state["failures"]
        if state["reward_state"] is not None:
            self.reward.load_state_dict(state["reward_state"])  # type: ignore[attr-defined]

    def _record(self) -> dict[str, Any]:
        return reward_record(self.reward, self.audit, self.prompts)

    def _check_logdir(self) -> None:
        if not self.args.resume_from and (Path(self.args.logdir) / "metrics.jsonl").exists():
            raise InputError(
                f"logdir {self.args.logdir!r} already holds a run: take another, or continue it with resume_from='auto'"
            )
        self.accelerator.wait_for_everyone()  # before the main process writes the file that is looked for here

    def _log(self, metrics: Mapping[str, float]) -> None:
        if self.accelerator.is_main_process:
            self.metrics_log.append(self.step, metrics)
        self.accelerator.log({k: v for k, v in metrics.items() if math.isfinite(v)}, step=self.step)

    def _start_trackers(self) -> None:
        if self.args.log_with:
            config = {k: v for k, v in dataclasses.asdict(self.args).items() if isinstance(v, (int, float, str))}
            self.accelerator.init_trackers(self.args.tracker_project_name, config, self.args.tracker_kwargs)

    def _key(self, name: str) -> str:
        return f"rewards/{reward_name(self.reward)}/{name}"

    # -- parts ------------------------------------------------------------------------------------------------------

    def _new_optimizer(self) -> Any:
        args, parameters = self.args, self.policy.parameters
        with torch.no_grad():
            for parameter in parameters if self.accelerator.num_processes > 1 else ():
                broadcast(parameter, from_process=0)
        optimizer = torch.optim.AdamW(
            parameters,
            lr=args.train_learning_rate,
            betas=(args.train_adam_beta1, args.train_adam_beta2),
            weight_decay=args.train_adam_weight_decay,
            eps=args.train_adam_epsilon,
        )
        return self.accelerator.prepare(optimizer)


def _accelerator(args: DDPOConfig) -> Accelerator:
    project = ProjectConfiguration(project_dir=args.logdir, logging_dir=str(Path(args.logdir) / "logs"))
    try:
        return Accelerator(log_with=args.log_with, mixed_precision=args.mixed_precision, project_config=project)
    except (ValueError, ImportError) as error:
        raise InputError(f"mixed_precision={args.mixed_precision!r}, log_with={args.log_with!r}: {error}") from error


def _first_given(*values: Any) -> Any:
    return next(value for value in values if value is not None)
