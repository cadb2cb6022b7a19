"""Scores of the candidates of instances by every metric that can be run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rewards.humans.metrics.base import MetricScores
from rewards.humans.metrics.battery import Battery
from rewards.humans.mmhe.records import CRITERIA, TASKS, Instance
from rewards.humans.mmhe.scores import CandidateScores
from rewards.humans.mmhe.texts import text_items


def score_instances(battery: Battery, instances: Sequence[Instance]) -> dict[str, CandidateScores]:
    """Scores of all candidates of N instances by every metric of the battery that applies to all of their tasks."""
    by_metric: dict[str, list[tuple[list[int], MetricScores]]] = {}
    tasks = [task for task in TASKS if any(instance.task == task for instance in instances)]
    for task in tasks:
        rows = [n for n, instance in enumerate(instances) if instance.task == task]
        for name, scores in battery.score(task, text_items([instances[n] for n in rows])).items():
            by_metric.setdefault(name, []).append((rows, scores))
    return {name: _joined(parts, len(instances)) for name, parts in by_metric.items() if len(parts) == len(tasks)}


def _joined(parts: Sequence[tuple[list[int], MetricScores]], count: int) -> CandidateScores:
    """Scores of candidates in their instances' places."""
    overall = np.full((count, 3), np.nan)
    criteria = np.full((count, 3, len(CRITERIA)), np.nan)
    with_criteria = all(scores.criteria is not None for _, scores in parts)
    for rows, scores in parts:
        overall[rows] = scores.overall.reshape(-1, 3)
        if scores.criteria is not None:
            criteria[rows] = scores.criteria.reshape(-1, 3, len(CRITERIA))
    return CandidateScores(overall, criteria if with_criteria else None)
