"""``metrics.jsonl``: one JSON object a line, written while a run goes and readable at any moment.

A line is ``{"step": int, "time": unix seconds, <flat keys>: number or null}``. A value that does not exist (a mean over
nothing, a NaN) is null, never 0. ``samples.jsonl`` beside it holds pictures or texts that the report shows
(:mod:`rewards.runs.samples`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.runs.files import Row, append_line, keep_lines, numbered_lines


class MetricsLog:
    """Appends lines to a ``metrics.jsonl`` file.

    Each line goes to the file in one write and is flushed to the operating system, so that a killed run leaves whole
    lines and at most one cut-off last line; :func:`read_metrics` skips that one, and the next append starts on a line
    of its own.

    Args:
        path: The file; its folder is made where absent. An existing file is continued.

    Example:
        >>> import tempfile
        >>> log = MetricsLog(Path(tempfile.mkdtemp()) / "metrics.jsonl")
        >>> log.append(0, {"rewards/TIFA/overall/mean": 0.5, "kl": float("nan")})
        >>> [row["rewards/TIFA/overall/mean"] for row in read_metrics(log.path)]
        [0.5]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, step: int, metrics: Mapping[str, object]) -> None:
        """Write one line.

        Args:
            step: The training step (an epoch in DDPO, an optimiser step in GRPO).
            metrics: Flat keys to numbers; None, NaN and infinities become null. Tensors and arrays of one element are
                taken as numbers.

        Raises:
            InputError: A value that is not a number, or a reserved key (``step``, ``time``).
            OSError: The file cannot be written.
        """
        row: dict[str, float | int | None] = {"step": int(step), "time": round(time.time(), 3)}
        for key, value in metrics.items():
            if key in row:
                raise InputError(f"metric {key!r}: the name is reserved")
            row[key] = _number(key, value)
        append_line(self.path, row)

    def keep_until(self, step: int) -> None:
        """Drop the lines after ``step``, so that a resumed run continues one curve instead of repeating a stretch.

        Args:
            step: The last step that stays.
        """
        keep_lines(self.path, lambda row: int(row["step"]) <= step)


def read_metrics(path: str | Path) -> list[Row]:
    """The lines of a ``metrics.jsonl``, oldest first.

    Args:
        path: The file, or the run folder that holds it.

    Returns:
        One dict a line. A cut-off last line (a run that is being written, or was killed) is left out.

    Raises:
        InputError: A damaged line elsewhere, with its number, or a line without an integer ``step``.
        OSError: The file cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "metrics.jsonl"
    return read_steps(path)


def read_steps(path: Path) -> list[Row]:
    """The rows of a growing file of JSON lines in which each has a whole number `step`; see :func:`iterate_steps`."""
    return list(iterate_steps(path))


def iterate_steps(path: Path) -> Iterator[Row]:
    """The same, one row at a time, for files that are larger than the memory.

    Raises:
        InputError: a row without `step`, with its line.
    """
    for number, row in numbered_lines(path, growing=True):
        if not isinstance(row.get("step"), int):
            raise InputError(f"{path}, line {number}: expected an object with a whole number 'step'")
        yield row


def merge_metrics(rows: Sequence[tuple[Mapping[str, float], int]]) -> dict[str, float]:
    """Put the metrics of several calls (batches, processes) together.

    Args:
        rows: (metrics, number of judged samples) a call. Keys ending in ``/count``, ``/abstained`` or ``/unmatched``
            are summed; any other value is averaged, weighted by the ``/count`` beside it where there is one and by the
            number of judged samples elsewhere. Values that are not finite take no part.

    Returns:
        Flat values.

    Example:
        >>> merge_metrics([({"a/mean": 1.0, "a/count": 1}, 4), ({"a/mean": 0.0, "a/count": 3}, 4)])
        {'a/mean': 0.25, 'a/count': 4}
    """
    merged: dict[str, float] = {}
    weights: dict[str, float] = {}
    for metrics, judged in rows:
        for key, value in metrics.items():
            if not math.isfinite(value):
                merged.setdefault(key, math.nan)
                continue
            if key.rsplit("/", 1)[-1] in ("count", "abstained", "unmatched"):
                merged[key] = _plus(merged.get(key), value)
                continue
            weight = metrics.get(key.rsplit("/", 1)[0] + "/count", judged)
            if weight > 0:
                merged[key] = _plus(merged.get(key), value * weight)
                weights[key] = weights.get(key, 0) + weight
            else:
                merged.setdefault(key, math.nan)
    return {key: value / weights[key] if key in weights else value for key, value in merged.items()}


def _number(key: str, value: Any) -> float | int | None:
    if value is None:
        return None
    try:
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, (bool, int)):
            return int(number)
        number = float(number)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"metric {key!r}: expected one number, got {value!r:.80}") from error
    return number if math.isfinite(number) else None


def _plus(total: float | None, value: float) -> float:
    return value if total is None or math.isnan(total) else total + value
