"""A metric's scores of the candidates, as JSON lines beside the instances."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards.errors import InputError
from rewards.humans.mmhe.records import CANDIDATES, CRITERIA, Instance


@dataclass(frozen=True)
class CandidateScores:
    """What a metric says: `overall` (N, 3) float64, and `criteria` (N, 3, 5) for a metric that scores criteria.

    NaN marks a candidate on which the metric abstained.
    """

    overall: NDArray[Any]
    criteria: NDArray[Any] | None = None


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
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
                n, k = position[str(row["id"])], int(row["candidate"])
            except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                raise InputError(f"{where}: needs JSON with a known id and a candidate index ({error!r})") from error
            if not 0 <= k < CANDIDATES or seen[n, k]:
                raise InputError(f"{where}: candidate {k} of {row['id']!r} is out of range or scored twice")
            seen[n, k] = True
            overall[n, k] = _number(row.get("overall"), where)
            if row.get("criteria") is not None:
                with_criteria += 1
                criteria[n, k] = [_number(row["criteria"].get(name), where) for name in CRITERIA]
    if not seen.all():
        n, k = map(int, np.argwhere(~seen)[0])
        raise InputError(
            f"{path}: candidate {k} of {instances[n].id!r} and {int((~seen).sum()) - 1} others have no score"
        )
    if with_criteria not in (0, seen.size):
        raise InputError(f"{path}: {with_criteria} of {seen.size} lines have criteria; all or none are needed")
    return CandidateScores(overall, criteria if with_criteria else None)


def _number(value: Any, where: str) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {value!r} is not a number")
    return float(value)
