"""The held-out prompts of a text trainer, the rewards that judge them, and the audits that never train."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelerate.utils import gather_object

from rewards.runs.metrics import merge_metrics
from rewards.trainers.audit import AuditGap
from rewards.trainers.language.evaluation import Parts, TextEvaluation, common_means, judge_texts, part_metrics
from rewards.trainers.language.generation import generate_texts
from rewards.trainers.language.trl_rewards import RewardFunction, function_name


@dataclass
class HeldOut:
    """What is evaluated on, and by whom.

    Attributes:
        rows: dataset rows with `prompt` and `image` or `images`.
        rewards: TRL reward functions; the first is the training reward.
        audits: functions that never train; the gap between the first reward and each of them is reported.
        max_new_tokens: longest text.
        temperature: of the samples.
        batch_size: texts generated at a time, part of the noise.
        seed: of the noise.
        num_samples: rows kept in `samples.jsonl`.
        max_gap: the run stops when the gap to an audit has grown by more than this since the first evaluation.
    """

    rows: Sequence[Mapping[str, Any]]
    rewards: Sequence[RewardFunction]
    audits: Sequence[RewardFunction] = ()
    max_new_tokens: int = 64
    temperature: float = 1.0
    batch_size: int = 32
    seed: int = 0
    num_samples: int = 8
    max_gap: float | None = None
    gaps: dict[str, AuditGap] = field(init=False)

    def __post_init__(self) -> None:
        self.gaps = {function_name(audit): AuditGap(self.max_gap) for audit in self.audits}

    def evaluate(self, model: Any, processor: Any, process: int = 0, processes: int = 1) -> TextEvaluation:
        """Write and judge a text for every row; each process takes every so-manieth batch.

        Returns:
            The whole evaluation, on every process.
        """
        batches = range(process, math.ceil(len(self.rows) / self.batch_size), processes)
        mine: list[int] = []
        generated = []
        for batch in batches:
            indices = list(range(batch * self.batch_size, min((batch + 1) * self.batch_size, len(self.rows))))
            generated += generate_texts(
                model, processor, [self.rows[index] for index in indices], max_new_tokens=self.max_new_tokens,
                temperature=self.temperature, batch_size=self.batch_size, seed=self.seed, first_batch=batch,
            )  # fmt: skip
            mine += indices
        texts, ids = [item.text for item in generated], [item.ids for item in generated]
        rows = [self.rows[index] for index in mine]
        judged = {
            function_name(function): judge_texts(function, rows, texts, ids)
            for function in (*self.rewards, *self.audits)
            if rows
        }
        return self._merge(gather_object([(mine, texts, judged)]) if processes > 1 else [(mine, texts, judged)])

    def _merge(
        self, shares: Sequence[tuple[list[int], list[str], dict[str, tuple[Parts, dict[str, float]]]]]
    ) -> TextEvaluation:
        texts = [""] * len(self.rows)
        rewards: dict[str, Parts] = {}
        metrics: dict[str, float] = {}
        for indices, written, _ in shares:
            for index, text in zip(indices, written):
                texts[index] = text
        for branch, functions in (("rewards", self.rewards), ("audit", self.audits)):
            for function in functions:
                name = function_name(function)
                parts: Parts = {}
                infos = []
                for indices, _, judged in shares:
                    if name not in judged:
                        continue
                    found, info = judged[name]
                    infos.append((info, sum(value is not None for value in found["overall"])))
                    for part, values in found.items():
                        column = parts.setdefault(part, [None] * len(self.rows))
                        for index, value in zip(indices, values):
                            column[index] = value
                rewards[name] = parts or {"overall": []}
                # What the function itself logged (weights, deviations, rating mass), then the means over all rows.
                metrics |= {f"eval/{branch}/{k.removeprefix('rewards/')}": v for k, v in merge_metrics(infos).items()}
                metrics |= part_metrics(f"eval/{branch}/{name}", rewards[name])
        for place, (name, gap) in enumerate(self.gaps.items()):
            reward, audit = common_means(rewards[function_name(self.rewards[0])], rewards[name])
            metrics[f"eval/audit/{name}/gap"] = gap.update(reward, audit)
            if place == 0:
                metrics["eval/audit/gap"] = metrics[f"eval/audit/{name}/gap"]
        return TextEvaluation(texts, rewards, metrics)

    def restore_gaps(self, first: Mapping[str, Parts]) -> None:
        """Take the first gaps from the first evaluation of a resumed run."""
        for name, gap in self.gaps.items():
            if name in first:
                gap.update(*common_means(first[function_name(self.rewards[0])], first[name]))

    def check_gaps(self) -> None:
        """Stop the run where the gap to an audit has grown too far.

        Raises:
            AuditGapExceeded: the policy gains on its own judge what it does not gain on the audit.
        """
        for gap in self.gaps.values():
            gap.check()
