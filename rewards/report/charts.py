"""Which charts a report has; the page draws them as inline SVG, matplotlib as PNG and SVG files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rewards.report.curves import (
    Run,
    Series,
    Smoothed,
    Spread,
    default_window,
    first_present,
    smooth,
    spread,
)

LONG = 2000
"""Points above which single values would only be a smear: the band in which nine of ten lie is drawn instead."""

FEW_POINTS = "Faint: each step. Line: running mean with its 95% interval."
MANY_POINTS = "Line: running mean. Shaded: where nine of ten values lie."


@dataclass
class Line:
    """One curve.

    Attributes:
        label: Legend.
        color: Index into the palette.
        series: Values.
        smoothed: Drawn over the faint values, or None to draw the values themselves.
        spread: Drawn instead of the faint values where they are too many, or None.
        errors: Half widths of 95% intervals, (N,), or None. Given, or with ``points``, the values are drawn as dots.
        points: Draw a dot at each value (few, far apart: evaluations).
        dashed: A second curve of the same colour.
    """

    label: str
    color: int
    series: Series
    smoothed: Smoothed | None = None
    spread: Spread | None = None
    errors: np.ndarray | None = None
    points: bool = False
    dashed: bool = False


@dataclass
class Chart:
    """One chart: a title, what it says, and its lines."""

    title: str
    note: str
    lines: list[Line]


@dataclass
class Section:
    """Charts under one heading; ``slug`` names the files."""

    slug: str
    title: str
    charts: list[Chart] = field(default_factory=list)


HEALTH: list[tuple[str, str, tuple[str, ...]]] = [
    ("KL to the base model", "How far the policy has moved from where it began.", ("train/kl", "kl")),
    ("Approximate KL of the update", "How far one epoch's updates move the policy.", ("train/approx_kl",)),
    (
        "Importance ratio",
        "Mean of new over old probability; 1 before the first update.",
        ("train/ratio", "ratio/mean", "ppo/ratio_mean"),
    ),
    (
        "Clip fraction",
        "Share of the importance ratios outside the clip range.",
        ("train/clip_fraction", "clip_ratio/region_mean", "clip_fraction"),
    ),
    (
        "Groups without spread",
        "Share of prompts whose samples all score the same: they teach nothing.",
        ("train/zero_std_groups", "frac_reward_zero_std"),
    ),
    ("Loss", "The policy's loss. It need not fall.", ("train/loss", "loss")),
    ("Value loss", "The value head's loss.", ("ppo/value_loss",)),
    ("Explained variance", "Share of the returns' variance that the value head foresees.", ("ppo/explained_variance",)),
    ("Gradient norm", "Before clipping.", ("train/grad_norm", "grad_norm")),
    ("Entropy", "Of the policy's next-token distribution.", ("entropy",)),
    ("Completion length", "Mean length in tokens.", ("completions/mean_length",)),
    ("Learning rate", "", ("train/learning_rate", "learning_rate")),
]


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
        Section("training", "Training", _health_charts(runs, window)),
    ]
    for section in sections:
        section.charts = [chart for chart in section.charts if chart.lines]
    return [section for section in sections if section.charts]


def curve(run: Run, key: str, label: str, color: int, window: int | None, dashed: bool = False) -> list[Line]:
    """A training curve: faint values under their running mean; no line where there is no value."""
    series = run.series(key)
    if not len(series):
        return []
    span = default_window(len(series)) if window is None else window
    if span <= 2:
        return [Line(label, color, series, dashed=dashed)]
    band = spread(series) if len(series) > LONG else None
    return [Line(label, color, series, smooth(series, span), band, dashed=dashed)]


def dots(run: Run, key: str, label: str, color: int, dashed: bool = False) -> list[Line]:
    """Evaluations: a dot with its 95% interval where a standard error was logged."""
    series = run.series(key)
    if not len(series):
        return []
    error = run.series(key.removesuffix("/mean") + "/standard_error")
    known = {step: value for step, value in zip(error.steps.tolist(), error.values.tolist()) if value >= 0}
    errors = np.array([1.96 * known.get(step, np.nan) for step in series.steps.tolist()]) if known else None
    return [Line(label, color, series, errors=errors, points=True, dashed=dashed)]


def _names(runs: Sequence[Run], branch: str) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.rewards(branch)))


def _label(runs: Sequence[Run], run: Run, label: str) -> str:
    """The label alone for one run, the run's name (and the label, where it adds something) for several."""
    if len(runs) == 1:
        return label
    return run.name if label in ("", "reward") else f"{run.name} · {label}"


def _reward_charts(runs: Sequence[Run], window: int | None) -> list[Chart]:
    held_out, training = [], []
    for name in _names(runs, "eval/rewards"):
        chart = Chart(f"{name}, held-out", "The same prompts each time; bars are 95% intervals.", [])
        for index, run in enumerate(runs):
            chart.lines += dots(run, f"eval/rewards/{name}/overall/mean", _label(runs, run, "reward"), index)
            for audit in run.rewards("eval/audit"):
                color = 1 if len(runs) == 1 else index
                label = _label(runs, run, f"{audit} (audit)")
                chart.lines += dots(run, f"eval/audit/{audit}/overall/mean", label, color, dashed=len(runs) > 1)
        held_out.append(chart)
    for name in _names(runs, "rewards"):
        chart = Chart(f"{name}, training samples", "", [])
        for index, run in enumerate(runs):
            chart.lines += curve(run, f"rewards/{name}/overall/mean", _label(runs, run, "reward"), index, window)
            for audit in run.rewards("audit"):
                color = 1 if len(runs) == 1 else index
                label = _label(runs, run, f"{audit} (audit)")
                chart.lines += curve(run, f"audit/{audit}/overall/mean", label, color, window, dashed=len(runs) > 1)
        if any(line.smoothed is not None for line in chart.lines):
            chart.note = MANY_POINTS if any(line.spread is not None for line in chart.lines) else FEW_POINTS
        training.append(chart)
    gap = Chart("Gap between reward and audit", "It grows when the policy games its judge.", [])
    for index, run in enumerate(runs):
        gap.lines += curve(run, "audit/gap", _label(runs, run, "training"), index, window)
        gap.lines += dots(run, "eval/audit/gap", _label(runs, run, "held-out"), 1 if len(runs) == 1 else index, True)
    return [*held_out, *training, gap]


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
        chart = Chart(part, _part_note(runs, name, part), [])
        for index, run in enumerate(runs):
            label = "held-out" if len(runs) == 1 else run.name
            held_out = dots(run, f"eval/rewards/{name}/{part}/mean", label, index)
            if len(runs) == 1:
                chart.lines += curve(run, f"rewards/{name}/{part}/mean", "training", 2, window)
                chart.lines += held_out
                for audit in run.rewards("eval/audit"):
                    chart.lines += dots(run, f"eval/audit/{audit}/{part}/mean", f"{audit} (audit)", 1)
            else:
                training = curve(run, f"rewards/{name}/{part}/mean", run.name, index, window)
                chart.lines += held_out or training
        charts.append(chart)
    return charts


def _part_note(runs: Sequence[Run], name: str, part: str) -> str:
    """The reward, and how many values are behind a single run's curves."""
    if len(runs) > 1:
        held_out = any(len(run.series(f"eval/rewards/{name}/{part}/mean")) for run in runs)
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
        for kind, note in (
            ("weight", "Share of each criterion in the overall score."),
            ("deviation", "How unsure the judge is of its rating."),
        ):
            if len(runs) == 1:
                lines = [
                    line
                    for index, part in enumerate(parts)
                    for line in curve(runs[0], f"rewards/{name}/{part}/{kind}", part, index, window)
                ]
                charts.append(Chart(f"{name}: {kind}", note, lines))
                continue
            for part in parts:
                key = f"rewards/{name}/{part}/{kind}"
                lines = [line for i, run in enumerate(runs) for line in curve(run, key, run.name, i, window)]
                charts.append(Chart(f"{part}: {kind}", note, lines))
    return charts


def _health_charts(runs: Sequence[Run], window: int | None) -> list[Chart]:
    charts = []
    for name in _names(runs, "rewards"):
        abstained = Chart(f"{name}: abstentions", "Samples that could not be judged; they take no part.", [])
        spread = Chart(f"{name}: spread of the reward", "Standard deviation over an epoch's samples.", [])
        for index, run in enumerate(runs):
            label = _label(runs, run, "")
            abstained.lines += curve(run, f"rewards/{name}/abstained", label, index, window)
            spread.lines += curve(run, f"rewards/{name}/overall/std", label, index, window)
        charts += [abstained, spread]
    for title, note, keys in HEALTH:
        chart = Chart(title, note, [])
        for index, run in enumerate(runs):
            key = first_present(run, keys)
            if key is not None:
                # A learning rate is set, not measured: there is nothing to smooth.
                span = 1 if title == "Learning rate" else window
                chart.lines += curve(run, key, _label(runs, run, ""), index, span)
        charts.append(chart)
    return charts
