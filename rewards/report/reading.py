"""Run folders as columns: a value by key and step, from logs that may have a million lines."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from rewards.errors import InputError
from rewards.report.curves import Series
from rewards.runs.evaluations import EvaluationLog
from rewards.runs.files import read_json
from rewards.runs.folder import list_checkpoints
from rewards.runs.intervals import clustered_error
from rewards.runs.metrics import iterate_steps
from rewards.runs.trl_keys import metric_keys

LARGEST = 1e100
"""Values beyond it are as good as infinite (float32 ends at 3.4e38), and their squares would overflow."""
CHUNK = 10_000
"""Lines that are in memory at once."""
_PART = re.compile(r"(?P<branch>(?:eval/)?(?:rewards|audit))/(?P<reward>[^/]+)/(?P<part>.+)/mean")


class Columns:
    """Values by key, kept in a temporary file: a million lines of 24 keys are 400 MB, of which one column is needed at
    a time.

    Args:
        rows: Flat mappings with a whole number ``step``; values that are no numbers are left out.
    """

    def __init__(self, rows: Iterable[Mapping[str, object]]) -> None:
        self.rows = 0
        self.last_step: int | None = None
        self.times: list[float] = []
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the columns
        lines = iter(rows)
        while chunk := list(islice(lines, CHUNK)):
            self._append(chunk)

    @property
    def keys(self) -> list[str]:
        """Every key that has a number, sorted."""
        return sorted(self._places)

    def column(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps (N,) int64, ascending, and values (N,) float64; the last line of a step counts."""
        parts = []
        for offset, count in self._places.get(key, ()):
            self._file.seek(offset)
            parts.append(np.frombuffer(self._file.read(16 * count)).reshape(2, count))
        if not parts:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        steps, values = np.concatenate(parts, axis=1)
        if (np.diff(steps) <= 0).any():
            # Of equal steps np.unique finds the first, so the lines are turned around.
            steps, first = np.unique(steps[::-1], return_index=True)
            values = values[::-1][first]
        return steps.astype(np.int64), values

    def _append(self, chunk: Sequence[Mapping[str, object]]) -> None:
        self.rows += len(chunk)
        times = [time for row in chunk if isinstance(time := row.get("time"), (int, float))]
        self.times = [*self.times[:1], *times[:1], *times[-1:]]
        steps = np.array([row["step"] for row in chunk], dtype=np.float64)
        for key in set().union(*chunk) - {"step", "time"}:
            values = _numbers([row.get(key) for row in chunk])
            known = np.abs(values) < LARGEST
            if known.any():
                place = self._file.seek(0, 2)
                self._file.write(np.stack([steps[known], values[known]]).tobytes())
                self._places.setdefault(key, []).append((place, int(known.sum())))
                self.last_step = max(int(steps[known].max()), self.last_step or 0)


def _numbers(values: Sequence[object]) -> np.ndarray:
    """As float64; NaN for null and for what is no number."""
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty((0, 0))
    if numbers.ndim == 1:
        return numbers
    return np.array([value if isinstance(value, (int, float)) and abs(value) < LARGEST else np.nan for value in values])


@dataclass
class Run:
    """What a run folder holds.

    Attributes:
        name: Name in legends.
        folder: The folder.
        columns: What was logged.
    """

    name: str
    folder: Path
    columns: Columns
    _cache: dict[str, Series] = field(default_factory=dict, repr=False)
    _errors: dict[str, dict[int, float]] | None = field(default=None, repr=False)

    @property
    def keys(self) -> list[str]:
        """Every key that ever had a value, sorted."""
        return self.columns.keys

    @property
    def last_step(self) -> int | None:
        """The last step with a value, or None."""
        return self.columns.last_step

    @property
    def seconds(self) -> float:
        """From the first line to the last; 0 where no times were logged."""
        return self.columns.times[-1] - self.columns.times[0] if self.columns.times else 0.0

    @property
    def step_name(self) -> str:
        """What a step is: TRL's trainers count optimiser steps, and log the epoch beside; those for models that draw
        count epochs, and log their optimiser steps.
        """
        if self.has("epoch"):
            return "optimiser step"
        return "epoch" if self.has("train/optimizer_steps") else "step"

    def series(self, key: str) -> Series:
        """The finite values of a key, by step (the last line of a step counts); empty for an unknown key."""
        if key in self._cache:
            return self._cache[key]
        steps, values = self.columns.column(key)
        weights = np.ones(len(steps))
        count_key = key.removesuffix("/mean") + "/count"
        if key.endswith("/mean") and count_key in self.columns.keys:
            at, counts = self.columns.column(count_key)
            place = np.searchsorted(at, steps)
            found = (place < len(at)) & (at[np.minimum(place, len(at) - 1)] == steps)
            weights[found] = counts[place[found]]
        known = weights > 0
        steps, values, weights = steps[known], values[known], weights[known]
        weights[~((weights > 1e-6) & (weights < 1e15))] = 1.0  # no number of samples
        series = Series(steps, values, weights)
        if len(series) < CHUNK:
            self._cache[key] = series
        return series

    def errors(self, key: str) -> Mapping[int, float]:
        """Standard errors of a held-out mean by step, clustered: as logged, or else from `evaluations.jsonl`."""
        logged = self.series(key.removesuffix("/mean") + "/standard_error")
        if len(logged):
            return dict(zip(logged.steps.tolist(), logged.values.tolist()))
        if self._errors is None:
            self._errors = _held_out_errors(self.folder)
        return self._errors.get(key, {})

    def has(self, key: str) -> bool:
        """Whether the key ever had a value."""
        return key in self.columns.keys

    def total(self, key: str) -> float:
        """Sum of a key's values over all steps (for counts); 0 where it was never logged."""
        return float(self.series(key).values.sum())

    def rewards(self, branch: str) -> list[str]:
        """Names of the rewards that have curves in a branch: "rewards", "audit", "eval/rewards" or "eval/audit"."""
        return list(dict.fromkeys(match["reward"] for match in self._means(branch)))

    def parts(self, branch: str, reward: str) -> list[str]:
        """Criteria or element types of a reward in a branch, without "overall"."""
        found = [match["part"] for match in self._means(branch) if match["reward"] == reward]
        return [part for part in found if part != "overall"]

    def _means(self, branch: str) -> Iterator[re.Match[str]]:
        matches = (_PART.fullmatch(key) for key in self.keys)
        return (match for match in matches if match and match["branch"] == branch)


def load_run(path: str | Path, name: str | None = None) -> Run:
    """Read a run folder, finished or going on.

    Args:
        path: The folder, or its ``metrics.jsonl``. Without that file, the log that TRL leaves (``trainer_state.json``,
            in the folder or its newest checkpoint) is read.
        name: Name in legends; default: the folder's name.

    Returns:
        The run; without any key where nothing was logged yet.

    Raises:
        InputError: No such folder, or a damaged file.
    """
    folder = Path(path)
    if folder.name == "metrics.jsonl":
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"no run folder {str(path)!r}")
    log = folder / "metrics.jsonl"
    rows = iterate_steps(log) if log.exists() else _left_by_trl(folder)
    return Run(name or folder.resolve().name, folder, Columns(rows))


def _left_by_trl(folder: Path) -> Iterator[Mapping[str, object]]:
    """What a TRL trainer without our callback leaves: the log in the state that its newest checkpoint holds."""
    states = [folder / "trainer_state.json", *(path / "trainer_state.json" for path in list_checkpoints(folder)[::-1])]
    state = next((path for path in states if path.exists()), None)
    kept = read_json(state) if state else {}
    history = kept.get("log_history", []) if isinstance(kept, dict) else []
    if not isinstance(history, list):
        raise InputError(f"{state}: log_history is no list")
    for row in history:
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield {"step": row["step"], **metric_keys({key: value for key, value in row.items() if key != "step"})}


def _held_out_errors(folder: Path) -> dict[str, dict[int, float]]:
    """Key of a held-out mean -> step -> standard error, over clusters of prompts; the gap to the first audit too."""
    errors: dict[str, dict[int, float]] = {}
    for evaluation in EvaluationLog(folder).iterate():
        clusters = [sample.cluster for sample in evaluation.samples]
        columns: dict[str, list[float]] = {}
        for audit in (None, *evaluation.audits()):
            prefix = f"eval/rewards/{evaluation.reward}" if audit is None else f"eval/audit/{audit}"
            judged = [judgment.values() for judgment in evaluation.judgments(audit)]
            for part in dict.fromkeys(part for values in judged for part in values):
                columns[f"{prefix}/{part}/mean"] = [_or_nan(values.get(part)) for values in judged]
        for audit in evaluation.audits()[:1]:
            both = zip(evaluation.judgments(), evaluation.judgments(audit))
            columns["eval/audit/gap"] = [_or_nan(ours.overall) - _or_nan(theirs.overall) for ours, theirs in both]
        for key, values in columns.items():
            if math.isfinite(error := clustered_error(values, clusters)):
                errors.setdefault(key, {})[evaluation.step] = error
    return errors


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def load_runs(paths: Sequence[str | Path]) -> list[Run]:
    """Read several runs; runs whose folders share a name are told apart by their parents' names.

    Raises:
        InputError: No path, or see :func:`load_run`.
    """
    if not paths:
        raise InputError("name at least one run folder")
    runs = [load_run(path) for path in paths]
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            run.name = f"{run.folder.resolve().parent.name}/{run.name}"
    return runs
