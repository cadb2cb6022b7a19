"""Evaluation of a TRL trainer on held-out prompts: before the first step, every so many steps, and at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.models import unwrap_model_for_generation

from rewards.runs.best import BestByAudit
from rewards.runs.evaluations import Evaluation, EvaluationLog
from rewards.runs.folder import RunFolder
from rewards.runs.samples import Phase, SampleLog
from rewards.trainers.audit import AuditGap
from rewards.trainers.language.curves import last_kept
from rewards.trainers.language.data import row_pictures
from rewards.trainers.language.held_out import HeldOut, Judged, common_means
from rewards.trl_inputs import prompt_text


class HeldOutCallback(TrainerCallback):
    """Evaluates before the first step, every so many steps, and at the end.

    Call :meth:`attach` with the trainer before training: the policy must be unwrapped for generation.

    Args:
        held_out: prompts and rewards.
        folder: the run folder; gets lines in `metrics.jsonl` (through the trainer's log), `samples.jsonl` and
            `evaluations.jsonl`.
        every: optimiser steps between evaluations; 0 for only before and after.
        num_samples: texts kept in `samples.jsonl` with their pictures at each evaluation, and as many of those that the
            reward scores most above the first audit.
        max_gap: the run stops when the gap to an audit has grown by more than this since the first evaluation.

    Where there is an audit, `best/` in the folder holds the policy as the first one liked it best.
    """

    def __init__(
        self,
        held_out: HeldOut,
        folder: str | Path,
        *,
        every: int = 0,
        num_samples: int = 8,
        max_gap: float | None = None,
    ) -> None:
        self.held_out = held_out
        self.every = every
        self.num_samples = num_samples
        self.samples = SampleLog(folder)
        self.evaluations = EvaluationLog(folder)
        self.gaps = {audit.__name__: AuditGap(max_gap) for audit in held_out.audits}
        self.best = BestByAudit()
        self.best_folder = RunFolder(Path(folder)).best
        self.trainer: Any = None

    def attach(self, trainer: Any) -> None:
        """Tell the callback which trainer it belongs to."""
        self.trainer = trainer
        trainer.callback_handler.callbacks.insert(0, _LastEvaluation(self))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Evaluate at step 0; a resumed run takes the first gaps from its first evaluation."""
        if state.is_world_process_zero:
            self.samples.keep_until(last_kept(state))
            self.evaluations.keep_until(last_kept(state))
        if state.global_step == 0:
            self.evaluate("before", state)
        elif evaluated := self.evaluations.read():
            self.restore_gaps(evaluated[0])
            self.best.read(evaluated)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Evaluate every so many steps."""
        if self.every and state.global_step % self.every == 0 and state.global_step < state.max_steps:
            self.evaluate("during", state)

    def evaluate(self, phase: Phase, state: TrainerState) -> None:
        """Evaluate now, on every process; what was found is logged as any other log line.

        Raises:
            AuditGapExceeded: the policy gains on its own judge what it does not gain on an audit.
        """
        trainer = self.trainer
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
            judged = self.held_out.evaluate(
                model, trainer.processing_class, trainer.accelerator.process_index, trainer.accelerator.num_processes
            )
        if state.is_world_process_zero:
            self.evaluations.append(self.held_out.as_evaluation(state.global_step, judged))
            self._keep_samples(phase, state.global_step, judged)
        # Trackers and metrics.jsonl hear of it as of any log line; trainer.log() would close TRL's averaging window.
        logs = {f"eval_{key.removeprefix('eval/')}": value for key, value in judged.metrics.items()}
        due = trainer.control.should_log  # the handler takes any log line for the one that was due
        trainer.callback_handler.on_log(trainer.args, state, trainer.control, logs)
        trainer.control.should_log = due
        self._keep_best(state.global_step, judged)
        self.check_gaps(judged)

    def check_gaps(self, judged: Judged) -> None:
        """Follow the gap to every audit.

        Raises:
            AuditGapExceeded: one has grown too far.
        """
        for name, scores in judged.audits.items():
            self.gaps[name].update(*common_means(judged.scores, scores))
        for gap in self.gaps.values():
            gap.check()

    def _keep_best(self, step: int, judged: Judged) -> None:
        """Save the policy where the first audit likes it best so far; every process must call this."""
        audit = next(iter(judged.audits.values()), None)
        if audit is not None and self.best.update(step, float(audit.overall.double().nanmean())):
            self.trainer.save_model(str(self.best_folder))
            (self.best_folder / "training_args.bin").unlink(missing_ok=True)  # a pickle of what config.yaml says

    def restore_gaps(self, first: Evaluation) -> None:
        """Take the first gaps from the first evaluation of a resumed run."""
        for name, gap in self.gaps.items():
            pairs = [
                (reward.overall, audit.overall)
                for reward, audit in zip(first.judgments(), first.judgments(name), strict=True)
                if reward.overall is not None and audit.overall is not None
            ]
            gap.update(*(math.fsum(column) / len(pairs) for column in zip(*pairs)) if pairs else (math.nan, math.nan))

    def _keep_samples(self, phase: Phase, step: int, judged: Judged) -> None:
        records = judged.scores.records()
        audits = {name: scores.records() for name, scores in judged.audits.items()}
        kept = dict.fromkeys([*range(len(judged.texts))[: self.num_samples], *most_overrated(judged, self.num_samples)])
        for index in kept:
            row: Mapping[str, Any] = self.held_out.rows[index]
            record = records[index]
            pictures = row_pictures(row)
            judges = {self.held_out.reward.__name__: record, **{name: rows[index] for name, rows in audits.items()}}
            self.samples.append(
                step,
                phase,
                prompt=prompt_text(row["prompt"]) or "",
                image=pictures[0] if pictures else None,
                text=judged.texts[index],
                score=record["overall"],
                parts=record["parts"],
                details=[{"judge": name, "overall": of["overall"], **of["parts"]} for name, of in judges.items()],
                index=index,
            )


def most_overrated(judged: Judged, count: int) -> list[int]:
    """Places of the texts that the reward scores most above the first audit, at most `count`; none without an audit."""
    if not judged.audits:
        return []
    apart = (judged.scores.overall - next(iter(judged.audits.values())).overall).tolist()
    above = [place for place, gap in enumerate(apart) if gap > 0]  # not where one of them abstained
    return sorted(above, key=lambda place: -apart[place])[:count]


class _LastEvaluation(TrainerCallback):
    """Comes before the trackers, which close their run at the end of training: a later log line would open another."""

    def __init__(self, held_out: HeldOutCallback) -> None:
        self.held_out = held_out

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self.held_out.evaluate("after", state)
