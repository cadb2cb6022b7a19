"""Held-out evaluation of a model that writes: fixed prompts, fixed noise, any TRL reward functions, a row a prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewards.errors import InputError
from rewards.runs.files import append_line, keep_lines
from rewards.runs.metrics import read_steps
from rewards.trainers.language.trl_rewards import RewardFunction, function_name

Parts = dict[str, list[float | None]]
"""Part of a reward (`overall`, a criterion) -> one value a row, None where it abstained."""


@dataclass
class TextEvaluation:
    """What was written for the held-out prompts and how it was judged.

    Attributes:
        texts: one text a prompt.
        rewards: reward name -> part -> values. The training reward comes first.
        metrics: flat metrics, keys as in `metrics.jsonl`: `eval/rewards/...` for rewards, `eval/audit/...` for audits.
    """

    texts: list[str]
    rewards: dict[str, Parts]
    metrics: dict[str, float]


def judge_texts(
    function: RewardFunction, rows: Sequence[Mapping[str, Any]], texts: Sequence[str], ids: Sequence[Sequence[int]]
) -> tuple[Parts, dict[str, float]]:
    """Call a TRL reward function outside of a trainer.

    Args:
        function: the reward function. What it hands to `log_extra` as `<its name>/<part>` becomes a part.
        rows: dataset rows; their columns go to the function.
        texts: one completion a row.
        ids: token ids of each completion.

    Returns:
        The parts, `overall` first, and the numbers that the function handed to `log_metric`.

    Raises:
        InputError: if the function returns another number of rewards than there are texts.
    """
    name = function_name(function)
    logged: dict[str, float] = {}
    extra: dict[str, list[Any]] = {}
    columns = {key: [row[key] for row in rows] for key in (rows[0] if len(rows) else {}) if key != "prompt"}
    returned = function(
        prompts=[row["prompt"] for row in rows],
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        completion_ids=[list(row) for row in ids],
        trainer_state=None,
        log_metric=logged.__setitem__,
        log_extra=extra.__setitem__,
        **columns,
    )
    if len(returned) != len(texts):
        raise InputError(f"reward function {name!r} returned {len(returned)} rewards for {len(texts)} texts")
    parts: Parts = {"overall": [_finite(value) for value in returned]}
    for column, values in extra.items():
        given = [value for value in values if value is not None]
        if column.startswith(f"{name}/") and given and all(isinstance(value, float | int) for value in given):
            parts[column.removeprefix(f"{name}/")] = [_finite(value) for value in values]
    return parts, logged


def part_metrics(prefix: str, parts: Parts) -> dict[str, float]:
    """Mean, standard error and count of each part over the rows that were judged, and the number that were not.

    Example:
        >>> part_metrics("eval/rewards/R", {"overall": [1.0, 3.0, None]})["eval/rewards/R/overall/mean"]
        2.0
    """
    metrics: dict[str, float] = {}
    for part, values in parts.items():
        judged = np.array([value for value in values if value is not None], dtype=np.float64)
        metrics[f"{prefix}/{part}/count"] = len(judged)
        if len(judged):
            metrics[f"{prefix}/{part}/mean"] = float(judged.mean())
        if len(judged) > 1:
            metrics[f"{prefix}/{part}/standard_error"] = float(judged.std(ddof=1) / math.sqrt(len(judged)))
    metrics[f"{prefix}/abstained"] = sum(value is None for value in parts["overall"])
    return metrics


def common_means(reward: Parts, audit: Parts) -> tuple[float, float]:
    """Means of a reward and of an audit over the texts that both judged; NaN if there is none.

    Example:
        >>> common_means({"overall": [4.0, 2.0]}, {"overall": [3.0, None]})
        (4.0, 3.0)
    """
    pairs = [pair for pair in zip(reward["overall"], audit["overall"]) if None not in pair]
    if not pairs:
        return math.nan, math.nan
    first, second = np.array(pairs, dtype=np.float64).mean(axis=0).tolist()
    return first, second


class TextEvaluationLog:
    """`evaluations.jsonl` in the run folder: every text and score of every evaluation, for paired comparisons.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "evaluations.jsonl"

    def append(self, step: int, evaluation: TextEvaluation) -> None:
        """Write one evaluation; it replaces an earlier one of the same step (a finished run that is resumed)."""
        self.keep_until(step - 1)
        row = {"step": step, "texts": evaluation.texts, "rewards": evaluation.rewards}
        append_line(self.path, row)

    def keep_until(self, step: int) -> None:
        """Drop evaluations after `step`."""
        keep_lines(self.path, lambda row: int(row["step"]) <= step)

    def read(self) -> list[dict[str, Any]]:
        """Rows with `step`, `texts` and `rewards`, oldest first."""
        return read_steps(self.path) if self.path.exists() else []


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
