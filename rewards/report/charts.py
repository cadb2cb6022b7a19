"""Which charts a report has, and what a curve is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rewards.report.curves import Band, Series, default_window, smooth, spread, thin
from rewards.report.reading import Run
from rewards.runs.glossary import METRICS

LONG = 2000
"""Points above which single values would only be a smear: the band in which nine of ten lie is drawn instead."""

FEW_POINTS = "Faint: each step. Line: running mean with its 95% interval."
MANY_POINTS = "Line: running mean. Dark band: where nine of ten values lie."

JUDGE, AUDIT, GAP, POLICY = 0, 1, 2, 3
"""Colours with one meaning on the whole page; those that follow tell criteria apart."""
PARTS = (4, 5, 6, 7, 8, 9)
RUNS = (0, 1, 4, 5, 6, 7, 8, 9)
"""Where several runs are compared, a colour is a run."""


@dataclass
class Line:
    """One curve, already thinned to what can be seen.

    Attributes:
        label: Legend.
        color: Index into the palette.
        steps, values: What is drawn: the running mean of a curve, or the values themselves. (N,)
        interval: The running mean's 95% interval, or None.
        faint: The single values behind a running mean: steps and values, or None.
        spread: Drawn instead of the faint values where they are too many, or None.
        errors: Half widths of the values' 95% intervals, (N,), or None.
        points: A dot at each value: evaluations, few and far apart.
        dashed: A second curve of the same colour.
        extent: Lowest and highest value that the chart should show.
        range: Lowest and highest value that there is.
    """

    label: str
    color: int
    steps: np.ndarray
    values: np.ndarray
    interval: Band | None = None
    faint: tuple[np.ndarray, np.ndarray] | None = None
    spread: Band | None = None
    errors: np.ndarray | None = None
    points: bool = False
    dashed: bool = False
    extent: tuple[float, float] = (0.0, 1.0)
    range: tuple[float, float] = (0.0, 1.0)


@dataclass
class Chart:
    """One chart: a title, what it says, its lines, the names of its axes, and the ends of its quantity."""

    title: str
    note: str
    lines: list[Line] = field(default_factory=list)
    unit: str = ""
    low: float | None = None
    high: float | None = None
    x_label: str = "step"


@dataclass
class Section:
    """Charts under one heading; ``slug`` names the files."""

    slug: str
    title: str
    charts: list[Chart] = field(default_factory=list)


def build_sections(runs: Sequence[Run], window: int | None = None) -> list[Section]:
    """All charts that the runs have data for.

    Args:
        runs: One or more, with rewards in common; each gets a colour when there are several.
        window: Points of the smoothing window; None takes a tenth of each curve.

    Returns:
        Sections without empty charts; empty sections are left out.
    """
    sections = [
        Section("reward", "Reward", _reward_charts(runs, window)),
        Section("parts", "By criterion and element type", _part_charts(runs, window)),
        Section("weights", "Weights and deviations", _weight_charts(runs, window)),
        Section("training", "Training", _training_charts(runs, window)),
    ]
    names = {run.step_name for run in runs}
    for section in sections:
        section.charts = [chart for chart in section.charts if chart.lines]
        for chart in section.charts:
            chart.x_label = names.copy().pop() if len(names) == 1 else "step"
    return [section for section in sections if section.charts]


def curve(series: Series, label: str, color: int, window: int | None = None, dashed: bool = False) -> list[Line]:
    """A training curve: faint values under their running mean; no line where there is no value."""
    if not len(series):
        return []
    everything = (float(series.values.min()), float(series.values.max()))
    span = default_window(len(series)) if window is None else window
    if span <= 2:
        kept = thin(series.values)
        steps, values = series.steps[kept], series.values[kept]
        return [Line(label, color, steps, values, dashed=dashed, extent=everything, range=everything)]
    mean = smooth(series, span)
    kept = thin(mean.mean)
    band = Band(*(values[kept][np.isfinite(mean.low[kept])] for values in (mean.steps, mean.low, mean.high)))
    line = Line(label, color, mean.steps[kept], mean.mean[kept], band, dashed=dashed, range=everything)
    if len(series) > LONG:
        line.spread = spread(series)
        low, high = line.spread.low.min(), line.spread.high.max()
    else:
        some = thin(series.values)
        line.faint = series.steps[some], series.values[some]
        low, high = _usual(series.values)
    line.extent = (float(min(low, mean.mean.min())), float(max(high, mean.mean.max())))
    return [line]


def _usual(values: np.ndarray) -> tuple[float, float]:
    """Ends of the values; of a long noisy curve, spikes that would flatten the rest leave the frame."""
    everything = (float(values.min()), float(values.max()))
    if len(values) < 50:
        return everything
    low, high = np.percentile(values, [1, 99]).tolist()
    return (low, high) if everything[1] - everything[0] > 3 * (high - low) else everything


def dots(run: Run, key: str, label: str, color: int, dashed: bool = False) -> list[Line]:
    """Evaluations: a dot with its 95% interval where a standard error is known."""
    series = run.series(key)
    if not len(series):
        return []
    known = {step: error for step, error in run.errors(key).items() if error >= 0}
    errors = np.array([1.96 * known.get(step, np.nan) for step in series.steps.tolist()]) if known else None
    reach = np.zeros(len(series)) if errors is None else np.nan_to_num(errors)
    extent = (float((series.values - reach).min()), float((series.values + reach).max()))
    kept = thin(series.values)
    errors = errors if errors is None else errors[kept]
    return [
        Line(label, color, series.steps[kept], series.values[kept], errors=errors, points=True, dashed=dashed,
             extent=extent, range=(float(series.values.min()), float(series.values.max())))
    ]  # fmt: skip


def scale(runs: Sequence[Run], name: str) -> tuple[str, float | None, float | None]:
    """Name and ends of a reward's scale, as far as its values tell: shares from 0 to 1, or ratings from 1 to 5."""
    branches = ("rewards", "eval/rewards", "audit", "eval/audit")
    ranges = [
        (values.min(), values.max())
        for run in runs
        for branch in branches
        for part in ("overall", *run.parts(branch, name))
        if len(values := run.series(f"{branch}/{name}/{part}/mean").values)
    ]
    low, high = min((r[0] for r in ranges), default=0.0), max((r[1] for r in ranges), default=0.0)
    if any(run.has(f"{branch}/{name}/rating_mass") for run in runs for branch in branches) and 1 <= low <= high <= 5:
        return "rating (1 to 5)", 1.0, 5.0
    return ("score (0 to 1)", 0.0, 1.0) if 0 <= low <= high <= 1 else ("score", None, None)


def _names(runs: Sequence[Run], branch: str) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.rewards(branch)))


def _label(runs: Sequence[Run], run: Run, label: str) -> str:
    """The label alone for one run, the run's name (and the label, where it adds something) for several."""
    if len(runs) == 1:
        return label
    return run.name if label in ("", "judge") else f"{run.name} · {label}"


def _color(runs: Sequence[Run], index: int, meaning: int) -> int:
    return meaning if len(runs) == 1 else RUNS[index % len(RUNS)]


def _reward_charts(runs: Sequence[Run], window: int | None) -> list[Chart]:
    held_out, training = [], []
    for name in _names(runs, "eval/rewards"):
        chart = Chart(
            f"{name}, held-out", "The same prompts each time; bars are 95% intervals.", [], *scale(runs, name)
        )
        for index, run in enumerate(runs):
            color = _color(runs, index, JUDGE)
            chart.lines += dots(run, f"eval/rewards/{name}/overall/mean", _label(runs, run, "judge"), color)
            for number, audit in enumerate(run.rewards("eval/audit")):
                label = _label(runs, run, f"{audit} (audit)")
                color = _color(runs, index, AUDIT)
                dashed = len(runs) > 1 or number > 0
                chart.lines += dots(run, f"eval/audit/{audit}/overall/mean", label, color, dashed)
        held_out.append(chart)
    for name in _names(runs, "rewards"):
        chart = Chart(f"{name}, training samples", "", [], *scale(runs, name))
        for index, run in enumerate(runs):
            series, color = run.series(f"rewards/{name}/overall/mean"), _color(runs, index, JUDGE)
            chart.lines += curve(series, _label(runs, run, "judge"), color, window)
            for audit in run.rewards("audit"):
                series, color = run.series(f"audit/{audit}/overall/mean"), _color(runs, index, AUDIT)
                chart.lines += curve(series, _label(runs, run, f"{audit} (audit)"), color, window, len(runs) > 1)
        training.append(chart)
    charts = [*_optimised(runs, window), *held_out, *training, _gap_chart(runs, window), _surplus_chart(runs, window)]
    for chart in charts:
        if not chart.note and any(line.interval is not None for line in chart.lines):
            chart.note = MANY_POINTS if any(line.spread is not None for line in chart.lines) else FEW_POINTS
    return charts


def _optimised(runs: Sequence[Run], window: int | None) -> list[Chart]:
    """TRL's weighted sum, where it is not simply the one reward there is."""
    chart = Chart("Reward that is optimised", "TRL's weighted sum of the rewards below.", [], "weighted sum")
    for index, run in enumerate(runs):
        total, names = run.series("train/reward"), run.rewards("rewards")
        alone = run.series(f"rewards/{names[0]}/overall/mean") if len(names) == 1 else None
        if alone is not None and len(alone) == len(total) and np.allclose(alone.values, total.values, rtol=1e-3):
            continue
        chart.lines += curve(total, _label(runs, run, "judge"), _color(runs, index, JUDGE), window)
    return [chart]


def _gap_chart(runs: Sequence[Run], window: int | None) -> Chart:
    chart = Chart("Gap between judge and audit", "It grows when the policy games its judge.", [], "judge − audit")
    for index, run in enumerate(runs):
        color = _color(runs, index, GAP)
        chart.lines += curve(run.series("audit/gap"), _label(runs, run, "training"), color, window)
        chart.lines += dots(run, "eval/audit/gap", _label(runs, run, "held-out"), color)
    return chart


def _surplus_chart(runs: Sequence[Run], window: int | None) -> Chart:
    chart = Chart(
        "Pictures with surplus objects",
        "Objects that nobody asked for, by the audit.",
        [],
        "share of pictures",
        0.0,
        1.0,
    )
    for index, run in enumerate(runs):
        color = _color(runs, index, AUDIT)
        for audit in run.rewards("eval/audit"):
            chart.lines += curve(run.series(f"audit/{audit}/surplus"), _label(runs, run, "training"), color, window)
            chart.lines += dots(run, f"eval/audit/{audit}/surplus", _label(runs, run, "held-out"), color)
    return chart


def _part_charts(runs: Sequence[Run], window: int | None) -> list[Chart]:
    charts = []
    found = [
        (name, part)
        for branch in ("rewards", "eval/rewards")
        for run in runs
        for name in run.rewards(branch)
        for part in run.parts(branch, name)
    ]
    for name, part in dict.fromkeys(found):
        chart = Chart(part, _part_note(runs, name, part), [], *scale(runs, name))
        for index, run in enumerate(runs):
            color = _color(runs, index, JUDGE)
            label = "judge, held-out" if len(runs) == 1 else run.name
            held_out = dots(run, f"eval/rewards/{name}/{part}/mean", label, color)
            training = run.series(f"rewards/{name}/{part}/mean")
            if len(runs) == 1:
                chart.lines += [*curve(training, "judge, training", color, window), *held_out]
                for number, audit in enumerate(run.rewards("eval/audit")):
                    key = f"eval/audit/{audit}/{part}/mean"
                    chart.lines += dots(run, key, f"{audit} (audit)", AUDIT, number > 0)
            else:
                chart.lines += held_out or curve(training, run.name, color, window)
        charts.append(chart)
    return charts


def _part_note(runs: Sequence[Run], name: str, part: str) -> str:
    """The reward, and how many values are behind a single run's curves."""
    if len(runs) > 1:
        held_out = any(run.has(f"eval/rewards/{name}/{part}/mean") for run in runs)
        return f"{name}, {'held-out' if held_out else 'training'}"
    training = runs[0].total(f"rewards/{name}/{part}/count")
    held_out_counts = runs[0].series(f"eval/rewards/{name}/{part}/count").values
    counts = [f"{training:,.0f} in training"] if training else []
    counts += [f"{held_out_counts[-1]:,.0f} held-out"] if len(held_out_counts) else []
    return f"{name}: {', '.join(counts)}" if counts else name


def _weight_charts(runs: Sequence[Run], window: int | None) -> list[Chart]:
    charts = []
    for name in _names(runs, "rewards"):
        parts = list(dict.fromkeys(part for run in runs for part in run.parts("rewards", name)))
        for kind, note, high in (
            ("weight", "Share of each criterion in the overall score.", 1.0),
            ("deviation", "How unsure the judge is of its rating.", None),
        ):
            one = Chart(f"{name}: {kind}", note, [], kind, 0.0, high)
            for index, part in enumerate(parts):
                several = Chart(f"{part}: {kind}", note, [], kind, 0.0, high)
                for place, run in enumerate(runs):
                    series = run.series(f"rewards/{name}/{part}/{kind}")
                    if len(runs) == 1:
                        one.lines += curve(series, part, PARTS[index % len(PARTS)], window)
                    else:
                        several.lines += curve(series, run.name, RUNS[place % len(RUNS)], window)
                charts.append(several)
            charts.append(one)
    return charts


def _training_charts(runs: Sequence[Run], window: int | None) -> list[Chart]:
    charts = []
    for metric in METRICS:
        if not metric.title:
            continue
        for name in _names(runs, "rewards") if "<reward>" in metric.key else [""]:
            key = metric.key.replace("<reward>", name)
            title = f"{name}: {metric.title.lower()}" if name else metric.title
            chart = Chart(title, metric.meaning, [], metric.unit, metric.low, metric.high)
            # A learning rate is set, not measured: there is nothing to smooth.
            span = 1 if key == "train/learning_rate" else window
            for index, run in enumerate(runs):
                color = _color(runs, index, POLICY)
                chart.lines += curve(run.series(key), _label(runs, run, ""), color, span)
            charts.append(chart)
    return charts
