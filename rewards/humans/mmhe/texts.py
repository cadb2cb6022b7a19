"""Instances as flat lists of texts with ratings; and where the probes take theirs from."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rewards.errors import InputError
from rewards.humans.metrics.base import TextItem
from rewards.humans.mmhe.records import CRITERIA, Instance, read_mmhe


def instances_for_probe(file: Path | None, task: str, count: int) -> list[Instance]:
    """Instances of one task, from a file of MMHE or drawn in the shapes world.

    Raises:
        InputError: the file is broken or holds no instance of the task.
    """
    if file is not None:
        found = [instance for instance in read_mmhe(file) if instance.task == task]
    else:
        from rewards.humans.shapes_study.instances import study_instances

        folder = Path(tempfile.mkdtemp(prefix="rewards-probe-"))
        found = [instance for instance in study_instances(folder, count, tasks=(task,)) if instance.task == task]
    if not found:
        raise InputError(f"there is no instance of task {task!r} to probe with")
    return found


def text_items(instances: Sequence[Instance]) -> list[TextItem]:
    """All candidates of the instances, in order."""
    return [
        TextItem(instance.image, candidate.text, instance.input, instance.box, instance.references)
        for instance in instances
        for candidate in instance.candidates
    ]


def human_ratings(instances: Sequence[Instance]) -> dict[str, list[float]]:
    """Mean rating of each candidate by criterion, in the order of :func:`text_items`."""
    candidates = [candidate for instance in instances for candidate in instance.candidates]
    return {name: [sum(c.ratings[name]) / len(c.ratings[name]) for c in candidates] for name in CRITERIA}
