"""``summary.json``: what a run gained on its held-out prompts, by part, for the reward and every audit.

Scores are paired by prompt and sample (the noise is the same before and after), means are over prompts, and intervals
treat clusters (prompts of one meaning) as independent, not prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rewards.errors import InputError
from rewards.runs.evaluations import Evaluation, HeldOutSample, Judgment
from rewards.runs.files import Json, Row, finite_or_none
from rewards.runs.intervals import mean_interval
from rewards.tables import text_table


@dataclass(frozen=True)
class Gain:
    """How one part changed.

    Attributes:
        before, after: Means over prompts that were judged then; NaN for none.
        gain, low, high: Mean change over prompts judged both times, and its 95% interval over clusters; NaN where it
            does not exist.
        count: Prompts judged both times.
        clusters: Independent groups among them.
    """

    before: float
    after: float
    gain: float
    low: float
    high: float
    count: int
    clusters: int


def summarize(evaluations: Sequence[Evaluation]) -> dict[str, Json]:
    """First against last evaluation.

    Args:
        evaluations: From :meth:`rewards.runs.evaluations.EvaluationLog.read`.

    Returns:
        `steps` (of the two evaluations, or none), `prompts`, `clusters` (of the last), `reward` and `audits`: name ->
        part -> the fields of :class:`Gain`; numbers that do not exist are None.

    Raises:
        InputError: The two evaluations are of other prompts.
    """
    if not evaluations:
        return {"steps": [], "prompts": 0, "clusters": 0, "reward": {}, "audits": {}}
    first, last = evaluations[0], evaluations[-1]
    audits = [name for name in last.audits() if name in first.audits()]
    summary = {
        "steps": [first.step, last.step],
        "prompts": len({sample.index for sample in last.samples}),
        "clusters": len({sample.cluster for sample in last.samples}),
        "reward": {last.reward: _rows(gains(first, last))},
        "audits": {name: _rows(gains(first, last, name)) for name in audits},
    }
    return dict(finite_or_none(summary))


def gains(first: Evaluation, last: Evaluation, audit: str | None = None) -> dict[str, Gain]:
    """The change of overall and of every part that was judged in both evaluations.

    Args:
        first, last: Of the same prompts with the same noise.
        audit: Name of an audit; None for the training reward.

    Raises:
        InputError: They are of other prompts.
    """
    old, new = _by_place(first, audit), _by_place(last, audit)
    if {place: sample.id for place, (sample, _) in old.items()} != {p: s.id for p, (s, _) in new.items()}:
        raise InputError(f"the evaluations at steps {first.step} and {last.step} are not of the same prompts")
    names = [dict.fromkeys(name for _, judgment in of.values() for name in judgment.values()) for of in (old, new)]
    return {name: _gain(old, new, name) for name in names[1] if name in names[0]}


def gap_growth(first: Evaluation, last: Evaluation, audit: str) -> Gain:
    """How far the reward's overall score moved away from an audit's on the samples that both judged.

    Returns:
        `before` and `after` are the mean gaps (reward - audit), `gain` is what it grew by.
    """
    return _gain(_gaps(first, audit), _gaps(last, audit), "overall")


def format_summary(summary: Row) -> str:
    """The summary as a table for people.

    Example:
        >>> gain = {"before": 3.0, "after": 3.5, "gain": 0.5, "low": 0.4, "high": 0.6, "count": 8, "clusters": 8}
        >>> rows = {"HarmonicEval": {"overall": gain}}
        >>> print(format_summary({"steps": [0, 9], "clusters": 8, "reward": rows, "audits": {}}))
        held-out prompts, step 0 -> 9  before  after    gain      95% interval  prompts
        -----------------------------  ------  -----  ------  ----------------  -------
        HarmonicEval overall            3.000  3.500  +0.500  [+0.400, +0.600]        8
    """
    if not summary["steps"]:
        return "no evaluation was made"
    first, last = summary["steps"]
    header = (f"held-out prompts, step {first} -> {last}", "before", "after", "gain", "95% interval", "prompts")
    rows = [
        (f"{name} {part}", _plain(row["before"]), _plain(row["after"]), _signed(row["gain"]),
         f"[{_signed(row['low'])}, {_signed(row['high'])}]", str(row["count"]))
        for name, parts in (summary["reward"] | summary["audits"]).items()
        for part, row in parts.items()
    ]  # fmt: skip
    return text_table(header, rows)


_Placed = dict[tuple[int, int], tuple[HeldOutSample, Judgment]]


def _by_place(evaluation: Evaluation, audit: str | None) -> _Placed:
    judgments = evaluation.judgments(audit)
    return {(s.index, s.sample): (s, judgment) for s, judgment in zip(evaluation.samples, judgments, strict=True)}


def _gaps(evaluation: Evaluation, audit: str) -> _Placed:
    gaps = {}
    for place, (sample, reward) in _by_place(evaluation, None).items():
        other = sample.audits.get(audit, Judgment(None)).overall
        both = reward.overall is not None and other is not None
        gaps[place] = (sample, Judgment(_number(reward.overall) - _number(other) if both else None))
    return gaps


def _gain(old: _Placed, new: _Placed, part: str) -> Gain:
    differences: dict[int, list[float]] = {}
    clusters: dict[int, str] = {}
    for place, (sample, judgment) in new.items():
        change = _number(judgment.values().get(part)) - _number(old[place][1].values().get(part))
        if math.isfinite(change):
            differences.setdefault(sample.index, []).append(change)
            clusters[sample.index] = sample.cluster
    found = mean_interval([_mean(values) for values in differences.values()], list(clusters.values()))
    before, after = (_mean_over_prompts(of, part) for of in (old, new))
    return Gain(before, after, found.value, found.low, found.high, len(differences), len(set(clusters.values())))


def _mean_over_prompts(samples: _Placed, part: str) -> float:
    by_prompt: dict[int, list[float]] = {}
    for sample, judgment in samples.values():
        value = _number(judgment.values().get(part))
        if math.isfinite(value):
            by_prompt.setdefault(sample.index, []).append(value)
    return _mean([_mean(values) for values in by_prompt.values()])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _rows(found: Mapping[str, Gain]) -> dict[str, dict[str, Json]]:
    return {part: dict(vars(gain)) for part, gain in found.items()}


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"
