"""What the judges of a server do, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rewards.judges.batching import Counts


def exposition(judges: Mapping[str, Counts]) -> str:
    """The counts of some judges in Prometheus' text format, with a label `judge`.

    Example:
        >>> print(exposition({"rater": Counts(rows=7)}).splitlines()[2])
        rewards_judge_rows_total{judge="rater"} 7
    """
    every = list(judges.items())
    families: list[tuple[str, str, str, list[tuple[str, float]]]] = [
        ("rows_total", "counter", "Rows judged.", [(_label(judge=name), one.rows) for name, one in every]),
        ("batches_total", "counter", "Batches judged.", [(_label(judge=name), one.batches) for name, one in every]),
        (
            "calls_total", "counter", "Calls by how they ended.",
            [(_label(judge=name, outcome=how), count) for name, one in every for how, count in one.calls.items()],
        ),
        (
            "seconds_total", "counter", "Seconds by phase.",
            [(_label(judge=name, phase=what), spent) for name, one in every for what, spent in one.seconds.items()],
        ),
        ("queue_rows", "gauge", "Rows that wait.", [(_label(judge=name), one.waiting) for name, one in every]),
        (
            "queue_rows_max", "gauge", "The most rows that ever waited.",
            [(_label(judge=name), one.largest_queue) for name, one in every],
        ),
    ]  # fmt: skip
    lines = []
    for name, kind, what, values in families:
        lines += [f"# HELP rewards_judge_{name} {what}", f"# TYPE rewards_judge_{name} {kind}"]
        lines += [f"rewards_judge_{name}{labels} {value:.15g}" for labels, value in values]
    lines += ["# HELP rewards_judge_batch_rows Rows of a batch.", "# TYPE rewards_judge_batch_rows histogram"]
    lines += [line for name, one in every for line in _histogram(name, one)]
    return "\n".join(lines) + "\n"


def _histogram(name: str, one: Counts) -> Iterator[str]:
    seen = 0
    for size, count in sorted(one.sizes.items()):
        seen += count
        yield f"rewards_judge_batch_rows_bucket{_label(judge=name, le=str(size))} {seen}"
    yield f"rewards_judge_batch_rows_bucket{_label(judge=name, le='+Inf')} {seen}"
    yield f"rewards_judge_batch_rows_sum{_label(judge=name)} {one.rows}"
    yield f"rewards_judge_batch_rows_count{_label(judge=name)} {seen}"


def _label(**labels: str) -> str:
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
