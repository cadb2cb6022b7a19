"""What several commands of `rewards humans` share: the metrics that can be run, and the table of agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewards.humans.metrics.battery import Battery
    from rewards.humans.statistics.agreement import Agreement

SHORT = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "kendall_tau_a": "tau-a",
    "kendall_tau_b": "tau-b",
    "kendall_tau_c": "tau-c",
    "pairwise_accuracy": "pairs",
    "pairwise_accuracy_within": "pairs within group",
}


def battery(judge: str | None, clip: str | None, bert: str | None) -> Battery:
    """The metrics that can be run with what the user named."""
    from rewards.humans.metrics.battery import Battery
    from rewards.humans.metrics.clip_score import CLIPScore
    from rewards.judges.loading import load_judge

    loaded = load_judge(judge) if judge is not None else None
    return Battery(loaded, CLIPScore(clip) if clip is not None else None, bert)


def agreement_table(results: dict[str, Agreement]) -> str:
    """A row a metric, a column a statistic that any of them has, with intervals."""
    from rewards.humans.tables import with_interval
    from rewards.tables import text_table

    names = [name for name in SHORT if any(result[name].value == result[name].value for result in results.values())]
    rows = [[label, *(with_interval(result[name], 2) for name in names)] for label, result in results.items()]
    return text_table(["metric", *(SHORT[name] for name in names)], rows)
