"""How much a run gained on held-out prompts, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.report.curves import Run
from rewards.runs.paired_gain import paired_gain


@dataclass
class Gain:
    """First and last held-out mean, and the change with half its 95% interval (NaN where unknown)."""

    before: float
    after: float
    half: float


def held_out_gain(run: Run, branch: str, reward: str, part: str = "overall") -> Gain | None:
    """How a held-out mean changed from the first evaluation to the last.

    The interval of the overall change is paired by prompt where ``evaluations.jsonl`` holds the scores, and from the
    two standard errors otherwise.

    Returns:
        None with fewer than two evaluations.
    """
    series = run.series(f"eval/{branch}/{reward}/{part}/mean")
    if len(series) < 2:
        return None
    before, after = float(series.values[0]), float(series.values[-1])
    errors = run.series(f"eval/{branch}/{reward}/{part}/standard_error").values
    half = 1.96 * math.hypot(errors[0], errors[-1]) if len(errors) >= 2 else math.nan
    paired = _paired_half([_scores(row, branch, reward, part) for row in run.evaluations])
    return Gain(before, after, half if math.isnan(paired) else paired)


def _scores(row: Mapping[str, Any], branch: str, reward: str, part: str) -> Any:
    """One evaluation's scores, a row a prompt: by reward and part (text), or overall alone (pictures)."""
    by_reward = row.get("rewards")
    if isinstance(by_reward, Mapping):
        return by_reward.get(reward, {}).get(part)
    return row.get("scores" if branch == "rewards" else "audit") if part == "overall" else None


def _paired_half(evaluations: Sequence[Any]) -> float:
    """Half the 95% interval of the mean change over prompts from the first evaluation to the last; NaN if unknown."""
    known = [scores for scores in evaluations if scores]
    if len(known) < 2:
        return math.nan
    try:
        gain = paired_gain(known[0], known[-1])
    except ValueError:  # other prompts, or another number of pictures a prompt
        return math.nan
    return (gain.high - gain.low) / 2
