"""The loop of every method for models that draw: draw, score, update; audit, evaluate, stop, resume."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, broadcast_object_list
from diffusers import DiffusionPipeline
from filelock import FileLock
from tqdm.auto import tqdm

from rewards.audit.before import audit_before
from rewards.audit.variants import TrueText
from rewards.errors import InputError, RewardsError
from rewards.functions import RewardLike, as_reward
from rewards.runs.best import BestByAudit
from rewards.runs.config import save_config
from rewards.runs.evaluations import EvaluationLog
from rewards.runs.files import Json
from rewards.runs.folder import RunFolder, begin_run
from rewards.runs.metrics import MetricsLog
from rewards.runs.samples import Phase, SampleLog
from rewards.trainers.audit import AuditGap
from rewards.trainers.diffusion.advantages import PromptStatistics, global_advantages, zero_deviation_groups
from rewards.trainers.diffusion.average import MovingAverage
from rewards.trainers.diffusion.checkpoint import (
    State,
    load_checkpoint,
    read_state,
    save_checkpoint,
)
from rewards.trainers.diffusion.collection import Collector, Drawn
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.describing import (
    CardFacts,
    evaluation_record,
    track_pictures,
    write_drawn,
    write_model_card,
    write_samples,
)
from rewards.trainers.diffusion.evaluation import Evaluation, EvaluationSet, evaluate
from rewards.trainers.diffusion.methods.base import Batch, Method, Tools
from rewards.trainers.diffusion.optimization import Optimization
from rewards.trainers.diffusion.plan import Prompt, RateSchedule, split_prompts
from rewards.trainers.diffusion.policy import new_policy
from rewards.trainers.diffusion.randomness import derived_seed
from rewards.trainers.diffusion.record import Prompts, base_model, identity
from rewards.trainers.diffusion.rollout import Sampler
from rewards.trainers.diffusion.scoring import Judged, batch_metrics, gather
from rewards.trainers.diffusion.stages import Stages
from rewards.trainers.finite import check_finite
from rewards.trainers.idle import IdleRun


class DiffusionTrainer:
    """Trains the denoising network of a text-to-image pipeline on a reward of its pictures.

    Args:
        pipeline: A text-to-image pipeline from diffusers (see :mod:`rewards.trainers.diffusion.policy`). It is changed
            in place (its network gets a LoRA adapter) and can be used as usual afterwards.
        reward: A :class:`~rewards.reward.Reward`, or a function `(images, prompts, metadata) -> rewards` or
            `(rewards, info)`; images are (N, 3, H, W) float32 in [0, 1]. NaN or None is an abstention: the sample takes
            no part.
        prompts: Training prompts, texts or pairs of a text and a mapping that the reward gets as metadata.
        method: How to learn, with its settings; several are stages, one after the other. What concerns the run as a
            whole (folder, seed, adapter, precision, evaluation) is taken from the first.
        eval_prompts: Held-out prompts for evaluations with fixed noise; None for no evaluation.
        eval_reward: What evaluations report; default: `reward`. (Train on `TIFA(soft=True)`, report plain TIFA.)
        audit: A second reward that never trains; its curve is drawn beside the first.
        settings: A dataclass to be written to `config.yaml`; default: the method's settings.

    Raises:
        InputError: Settings, prompts, a pipeline or a folder that cannot be used.
    """

    def __init__(
        self,
        pipeline: DiffusionPipeline,
        reward: RewardLike,
        prompts: Sequence[Prompt],
        method: Method[DiffusionConfig] | Sequence[Method[DiffusionConfig]],
        *,
        eval_prompts: Sequence[Prompt] | None = None,
        eval_reward: RewardLike | None = None,
        audit: RewardLike | None = None,
        settings: object = None,
    ) -> None:
        self.stages = Stages([method] if isinstance(method, Method) else method)
        self.args: DiffusionConfig = self.stages.run_args
        self.reward = as_reward(reward)
        self.eval_reward = self.reward.for_evaluation() if eval_reward is None else as_reward(eval_reward)
        self.audit = None if audit is None else as_reward(audit)
        self.settings = self.args if settings is None else settings
        self.prompts, self.metadata = split_prompts(prompts)
        if not self.prompts:
            raise InputError("prompts is empty; at least one prompt to draw is needed")
        for judged in (self.reward, *([self.audit] if self.audit is not None else [])):
            judged.check_prompts([*self.prompts, *split_prompts(eval_prompts or [])[0]])
        self.accelerator = _accelerator(self.args)
        for stage in self.stages:
            stage.args.samples_per_epoch(self.accelerator.num_processes)
        self._eval_set = self._new_eval_set(eval_prompts)
        if self.args.allow_tf32 and torch.cuda.is_available():
            torch.backends.cuda.matmul.allow_tf32 = True
        torch.manual_seed(derived_seed(self.args.seed, "process", self.accelerator.process_index))
        self._base = base_model(pipeline)
        self.policy = new_policy(pipeline, self.args, self.accelerator.device, any(s.needs_base for s in self.stages))
        self.step = 0
        self.failures = self.scored = 0
        self.audit_gap = AuditGap(self.args.audit_max_gap)
        self.best = BestByAudit()
        self._progress = tqdm(disable=True)
        self._idle = IdleRun(self.args.train_max_idle_epochs, "pictures")
        self._enter_stage(0)
        self.average = MovingAverage(self.policy, self.args.train_ema_decay)
        prompts_of_run = (self.prompts, self.metadata)
        self.collector = Collector(*prompts_of_run, self.reward, self.audit, self.accelerator, self.args)
        self._prepare_folder()

    def _enter_stage(self, step: int) -> None:
        """Make the optimiser, statistics and method of the stage that epoch `step` belongs to."""
        self.method = self.stages.at(step)
        args = self.method.args
        self.optimization = Optimization(self.policy.parameters, self.accelerator, args)
        self.statistics = PromptStatistics(
            args.per_prompt_stat_tracking_buffer_size, args.per_prompt_stat_tracking_min_count
        )
        self.rates = RateSchedule.new(args, args.num_epochs)
        self.method.start(Tools(self.policy, self.optimization, self.accelerator, self.reward))

    # -- the run --------------------------------------------------------------------------------------------------

    def train(self) -> dict[str, float]:
        """Train up to the last epoch, from where the run stands.

        Returns:
            The metrics of the last epoch and evaluation.

        Raises:
            RewardsError: The reward refused its input, too many pictures could not be judged, nothing could be learned
                from them, the audit gap grew beyond its limit, or the model is not finite. Checkpoints and metrics up
                to there stay readable.
        """
        try:
            return self._train()
        finally:
            self._let_go()

    def _train(self) -> dict[str, float]:
        args, main = self.args, self.accelerator.is_main_process
        if main:
            self._begin_files()
        self._start_trackers()
        latest: dict[str, float] = {}
        if self.step == 0:
            latest |= self._evaluate_and_log()
        total = self.stages.num_epochs
        self._progress = tqdm(total=total, initial=self.step, desc=self.method.name, unit="epoch", disable=not main)
        while self.step < total:
            metrics = self._epoch(self.step)
            latest |= metrics
            self.step += 1
            self._log(metrics)
            self._stop_if_failing(metrics)
            self._idle.take(self._learned(metrics), f"epoch {self.step}")
            self.audit_gap.check()
            self._progress.update()
            last = self.step == total
            if last or (args.eval_freq and self.step % args.eval_freq == 0):
                latest |= self._evaluate_and_log()
            if self.stages.at(self.step) is not self.method:
                self._enter_stage(self.step)
            if last or (args.save_freq and self.step % args.save_freq == 0):
                self.save_checkpoint()
        self._progress.close()
        self.save_model()
        self.accelerator.end_training()
        return latest

    def _epoch(self, epoch: int) -> dict[str, float]:
        """Draw, score, normalise, update."""
        args = self.method.args
        self.optimization.begin_epoch(rate := self.rates.at(epoch - self.stages.first_epoch(epoch)))
        self.method.begin_epoch(epoch)
        self._progress.set_postfix_str("drawing")
        drawn = self.collector.epoch(self.method, self.policy, epoch)
        sampled = time.perf_counter()
        judged = gather(drawn.judged, drawn.local, with_details=False)
        rewards, metrics = self._take_scores(judged)
        mean = f"reward {metrics[f'rewards/{self.reward.__name__}/overall/mean']:.3f}"
        self._progress.set_postfix_str(f"{mean}, training")
        self._keep_drawn(epoch, drawn)
        if args.per_prompt_stat_tracking:
            of_all = args.advantage_deviation == "epoch"
            advantages = self.statistics.advantages(drawn.prompt_rows, rewards, args.advantage_epsilon, of_all)
        else:
            advantages = global_advantages(rewards, args.advantage_epsilon)
        metrics["train/zero_std_groups"] = zero_deviation_groups(drawn.prompt_rows, rewards)
        metrics["train/advantage_deviation"] = float(advantages.std())
        self._compared = bool(advantages.any())
        if drawn.audited is not None:
            metrics |= self._take_audit(gather(drawn.audited, drawn.local, with_details=False), rewards)
        rows = [drawn.prompt_rows[index] for index in drawn.local]
        prompts, metadata = [self.prompts[row] for row in rows], [self.metadata[row] for row in rows]
        batch = Batch(epoch, drawn.rollout, prompts, metadata, drawn.local, rewards, advantages)
        metrics |= self.method.update(batch)
        self._progress.set_postfix_str(mean, refresh=False)
        self.average.update()
        metrics |= self.optimization.metrics()
        metrics["train/learning_rate"] = rate
        metrics |= {f"time/{phase}": seconds for phase, seconds in drawn.seconds.items()}
        metrics["time/train"] = time.perf_counter() - sampled
        return metrics

    def _keep_drawn(self, epoch: int, drawn: Drawn) -> None:
        """Keep some pictures of the training where no evaluation does: the first of each of some prompts, as often."""
        args = self.args
        due = epoch == 0 or epoch + 1 == self.stages.num_epochs or (args.eval_freq and epoch % args.eval_freq == 0)
        if self._eval_set is not None or not due or not self.accelerator.is_main_process:
            return
        rows = [drawn.prompt_rows[index] for index in drawn.local]
        chosen = [place for place, row in enumerate(rows) if row not in rows[:place]][: args.num_logged_samples]
        pictures = list(self.policy.pictures(drawn.rollout.final[chosen]).cpu())
        prompts = [self.prompts[rows[place]] for place in chosen]
        write_drawn(self.sample_log, epoch, prompts, pictures, drawn.judged.scores.take(chosen))
        track_pictures(self.accelerator.trackers, epoch + 1, pictures, "training/pictures")

    def _take_scores(self, judged: Judged) -> tuple[np.ndarray, dict[str, float]]:
        """Rewards of all processes in global order, and their metrics."""
        values = judged.scores.overall.float().numpy()
        valid = values[np.isfinite(values)]
        metrics = batch_metrics(self.reward, judged.scores, "rewards")
        metrics["samples/broken_pictures"] = judged.broken
        metrics["samples/failure_rate"] = 1 - len(valid) / len(values)
        self._usual_reason = judged.usual_reason
        self.failures += len(values) - len(valid)
        self.scored += len(values)
        return values, metrics

    def _take_audit(self, audited: Judged, rewards: np.ndarray) -> dict[str, float]:
        assert self.audit is not None
        values = audited.scores.overall.float().numpy()
        metrics = batch_metrics(self.audit, audited.scores, "audit")
        both = np.isfinite(values) & np.isfinite(rewards)
        means = (float(x[both].mean()) if both.any() else math.nan for x in (rewards, values))
        return metrics | {"audit/gap": self.audit_gap.update(*means)}

    def _stop_if_failing(self, metrics: Mapping[str, float]) -> None:
        rate = metrics["samples/failure_rate"]
        if rate > self.args.max_failure_rate:
            reason = f": {self._usual_reason}" if self._usual_reason else ""
            raise RewardsError(
                f"{rate:.0%} of the pictures of epoch {self.step} could not be judged (max_failure_rate "
                f"{self.args.max_failure_rate:.0%}){reason}"
            )

    def _learned(self, metrics: Mapping[str, float]) -> bool:
        """Whether an epoch's pictures taught anything: one was better than another, or the reward's gradient led on."""
        compared = self._compared or not self.method.learns_from_advantages
        stepped = metrics["train/optimizer_steps"] + metrics["train/skipped_steps"] > 0
        return compared and stepped and metrics["train/grad_norm"] != 0

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
            InputError: The trainer has no `eval_prompts`.
            RewardsError: The reward refused its input.
        """
        if self._eval_set is None:
            raise InputError("evaluate() needs a trainer with eval_prompts")
        args = self.args
        sampler = Sampler(
            self.policy.stepper(
                num_steps or args.eval_num_steps or args.sample_num_steps,
                self.stages.at(0).evaluation_noise if eta is None else eta,
            ).to(self.policy.device),
            guidance_scale or args.eval_guidance_scale or args.sample_guidance_scale,
        )
        arguments = (self._eval_set, sampler, self.eval_reward, self.audit, self.accelerator)
        with self.policy.base_model() if base_model else self.average.held():
            return evaluate(self.policy, *arguments)

    def _evaluate_and_log(self) -> dict[str, float]:
        if self._eval_set is None:
            return {}
        evaluation = self.evaluate()
        if self.accelerator.is_main_process:
            last = self.step == self.stages.num_epochs
            phase: Phase = "before" if self.step == 0 else "after" if last else "during"
            self.evaluation_log.append(
                evaluation_record(self.step, self._eval_set, evaluation, self.eval_reward, self.audit)
            )
            write_samples(self.sample_log, self.step, phase, self._eval_set, evaluation)
            track_pictures(self.accelerator.trackers, self.step, evaluation.pictures, "eval/pictures")
            if evaluation.audit is not None and self.best.update(self.step, float(np.nanmean(evaluation.audit))):
                self._save_weights(self.folder.best)
            if self.step == 0 and self.args.audit_before:
                audit_before(self.reward, self._best_drawn(evaluation), self.folder.path, drawn=True)
        self._log(evaluation.metrics)
        return evaluation.metrics

    def _best_drawn(self, evaluation: Evaluation) -> list[TrueText]:
        """The better half of the pictures that an evaluation kept: the nearest to true ones that there are."""
        assert self._eval_set is not None
        scores = np.nan_to_num(evaluation.scores[: len(evaluation.pictures), 0], nan=-np.inf)
        rows = np.argsort(-scores, kind="stable")[: max(2, math.ceil(len(scores) / 2))]
        prompts, metadata = self._eval_set.prompts, self._eval_set.metadata
        return [TrueText(evaluation.pictures[n], prompts[n], None, {"metadata": metadata[n]}) for n in rows]

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

    def _prepare_folder(self) -> None:
        """Refuse, replace or go on with what `output_dir` holds; every process comes to the same decision."""
        self.folder = RunFolder(Path(self.args.output_dir))
        self._lock: FileLock | None = None  # held by the main process until the training has ended
        self.metrics_log, self.sample_log = MetricsLog(self.folder.metrics), SampleLog(self.folder.path)
        self.evaluation_log = EvaluationLog(self.folder.path)
        self.identity = self._new_identity()
        outcome: list[Path | InputError | None] = [None]
        if self.accelerator.is_main_process:
            try:
                self._lock = self.folder.lock()
                flags = {"resume": self.args.resume, "overwrite": self.args.overwrite}
                outcome = [begin_run(self.folder, self.identity, **flags)]  # type: ignore[arg-type]
            except InputError as error:
                self._let_go()
                outcome = [error]
        (checkpoint,) = broadcast_object_list(outcome)
        if isinstance(checkpoint, InputError):
            raise checkpoint
        if checkpoint is not None:
            self._resume(checkpoint)

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _begin_files(self) -> None:
        """Settings, and logs cut back to where the run stands."""
        save_config(self.settings, self.folder.config)
        for log in (self.metrics_log, self.sample_log, self.evaluation_log):
            log.keep_until(self.step if self.step else -1)

    def save_model(self) -> None:
        """Write `adapter/` (for `pipeline.load_lora_weights`, or the network's `from_pretrained`) and the card."""
        if self.accelerator.is_main_process:
            self._save_weights(self.folder.adapter)
            rate = self.failures / self.scored if self.scored else math.nan
            facts = CardFacts(self.step, rate, self.accelerator.num_processes, self.identity)
            write_model_card(self.folder, self.stages, self.policy, facts)
        self.accelerator.wait_for_everyone()

    def _save_weights(self, folder: Path) -> None:
        check_finite({"weights": self.policy.parameters, **self.average.state()})
        with self.average.held():
            self.policy.save(folder)

    def save_checkpoint(self) -> Path:
        """Write `checkpoints/checkpoint-<step>` in the run folder; every process must call this.

        Raises:
            RewardsError: A value in it is not finite.
        """
        state: State = {
            "step": self.step,
            "statistics": self.statistics.state_dict(),
            "rates": [self.rates.epochs, self.rates.start, self.rates.rate],
            "reward": self.reward.state_dict(),
            "audit_first_gap": self.audit_gap.first,
            "counts": [self.failures, self.scored],
            "steps_taken": [self.optimization.taken, self.optimization.skipped_in_a_row],
        }
        limit = self.args.num_checkpoint_limit
        folder = self.folder.checkpoints
        kept = self.method.state() | self.average.state()
        return save_checkpoint(folder, self.policy, self.optimization, kept, state, self.accelerator, limit)

    def _resume(self, checkpoint: Path) -> None:
        state = read_state(checkpoint)
        self.step = int(state["step"])
        self._enter_stage(self.step)
        kept = load_checkpoint(checkpoint, self.policy, self.optimization, self.accelerator)
        self.method.load_state(kept)
        self.average.load_state(kept)
        self.statistics.load_state_dict(state["statistics"])
        epochs, start, rate = state["rates"]
        self.rates = RateSchedule(self.method.args, int(epochs), int(start), rate)
        self.rates.replan(self.step - self.stages.first_epoch(self.step), self.method.args.num_epochs)
        self.audit_gap.first = state["audit_first_gap"]
        self.best.read(self.evaluation_log.iterate())
        self.failures, self.scored = state["counts"]
        self.optimization.taken, self.optimization.skipped_in_a_row = state["steps_taken"]
        self.reward.load_state_dict(state["reward"])

    def _new_identity(self) -> dict[str, Json]:
        rewards = {"reward": self.reward, "eval_reward": self.eval_reward, "audit": self.audit}
        prompts: dict[str, Prompts] = {"train": (self.prompts, self.metadata)}
        if self._eval_set is not None:
            prompts["held_out"] = (self._eval_set.prompts, self._eval_set.metadata)
        return identity(self.stages, rewards, prompts, self.accelerator.num_processes, self._base)

    def _log(self, metrics: Mapping[str, float]) -> None:
        if self.accelerator.is_main_process:
            self.metrics_log.append(self.step, metrics)
        self.accelerator.log({k: v for k, v in metrics.items() if math.isfinite(v)}, step=self.step)

    def _start_trackers(self) -> None:
        if self.args.log_with:
            config = {k: v for k, v in dataclasses.asdict(self.args).items() if isinstance(v, (int, float, str))}
            self.accelerator.init_trackers(self.args.tracker_project_name, config, self.args.tracker_kwargs)


def _accelerator(args: DiffusionConfig) -> Accelerator:
    project = ProjectConfiguration(project_dir=args.output_dir, logging_dir=str(Path(args.output_dir) / "logs"))
    try:
        return Accelerator(log_with=args.log_with, mixed_precision=args.mixed_precision, project_config=project)
    except (ValueError, ImportError) as error:
        raise InputError(f"mixed_precision={args.mixed_precision!r}, log_with={args.log_with!r}: {error}") from error
