"""A metric's scores of the candidates, as JSON lines beside the instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewards.errors import InputError
from rewards.humans.files import number
from rewards.humans.mmhe.records import CANDIDATES, CRITERIA, Instance
from rewards.humans.statistics.pair_counts import Array
from rewards.runs.files import numbered_lines


@dataclass(frozen=True)
class CandidateScores:
    """What a metric says: `overall` (N, 3) float64, and `criteria` (N, 3, 5) for a metric that scores criteria.

    NaN marks a candidate on which the metric abstained.
    """

    overall: Array
    criteria: Array | None = None


def read_scores(path: str | Path, instances: Sequence[Instance]) -> CandidateScores:
    """Read `{"id": ..., "candidate": 0, "overall": 3.2, "criteria": {"correctness": 4.1, ...}}` lines.

    `overall` is null where the metric abstained; `criteria` is given on every line or on none.

    Raises:
        InputError: an unknown id or candidate, a repeated one, a missing one, or something that is not a number; with
            the line.
    """
    position = {instance.id: n for n, instance in enumerate(instances)}
    overall = np.full((len(instances), CANDIDATES), np.nan)
    criteria = np.full((len(instances), CANDIDATES, len(CRITERIA)), np.nan)
    seen = np.zeros(overall.shape, dtype=bool)
    with_criteria = 0
    for line, row in numbered_lines(path):
        where = f"{path}, line {line}"
        n, k = position.get(str(row.get("id"))), row.get("candidate")
        if n is None or not isinstance(k, int) or isinstance(k, bool):
            raise InputError(f"{where}: needs a known id and a candidate index, not {row.get('id')!r} and {k!r}")
        if not 0 <= k < CANDIDATES or seen[n, k]:
            raise InputError(f"{where}: candidate {k} of {row['id']!r} is out of range or scored twice")
        seen[n, k] = True
        overall[n, k] = number(row.get("overall"), where)
        of_criteria = row.get("criteria")
        if isinstance(of_criteria, dict):
            with_criteria += 1
            criteria[n, k] = [number(of_criteria.get(name), where) for name in CRITERIA]
    if not seen.all():
        n, k = map(int, np.argwhere(~seen)[0])
        raise InputError(
            f"{path}: candidate {k} of {instances[n].id!r} and {int((~seen).sum()) - 1} others have no score"
        )
    if with_criteria not in (0, seen.size):
        raise InputError(f"{path}: {with_criteria} of {seen.size} lines have criteria; all or none are needed")
    return CandidateScores(overall, criteria if with_criteria else None)
