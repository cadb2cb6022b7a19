"""The charts as PNG and SVG files, by matplotlib, without a display."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rewards.report.charts import Chart, Line, Section
from rewards.report.curves import thin
from rewards.report.frame import Frame

PALETTE = ("#2a63c4", "#d0660f", "#188a5a", "#7b4fc0", "#c43c3c", "#0e8791", "#8a7413", "#bd4590")
_WIDTH, _HEIGHT = 3.55, 2.0
"""Inches of a chart's axes."""
_INK, _MUTED, _RULE = "#22252b", "#686e79", "#dfe2e7"


def write_plots(sections: Sequence[Section], folder: str | Path) -> list[Path]:
    """One PNG and one SVG a section.

    Args:
        sections: From :func:`rewards.report.charts.build_sections`.
        folder: Made where absent.

    Returns:
        The files.

    Raises:
        OSError: A file cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for section in sections:
        figure = draw(section)
        for suffix in (".png", ".svg"):
            path = folder / f"{section.slug}{suffix}"
            figure.savefig(path, dpi=130)
            written.append(path)
    return written


def draw(section: Section) -> Figure:
    """A section's charts on one figure, three a row at most."""
    columns = min(3, len(section.charts))
    rows = math.ceil(len(section.charts) / columns)
    labels = (label for chart in section.charts for _, label in Frame.of(chart).value_ticks())
    left = 0.3 + 0.075 * max(map(len, labels), default=0)
    head = 0.36 + 0.15 * max(_legend_size(chart)[1] for chart in section.charts)
    # Fixed margins in inches: the layout engines draw everything several times over to find the same ones.
    width, height = columns * (left + _WIDTH + 0.25), rows * (head + _HEIGHT + 0.5)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for index, chart in enumerate(section.charts):
        row, column = divmod(index, columns)
        x, y = column * (left + _WIDTH + 0.25) + left, height - (row + 1) * (head + _HEIGHT + 0.5) + 0.5
        _draw_chart(figure.add_axes((x / width, y / height, _WIDTH / width, _HEIGHT / height)), chart)
    return figure


def _legend_size(chart: Chart) -> tuple[int, int]:
    """Columns and rows of a legend that stands above the curves, where it hides none of them."""
    if len(chart.lines) < 2:
        return 1, 0
    columns = max(1, int(_WIDTH / (0.42 + 0.056 * max(len(line.label) for line in chart.lines))))
    return columns, math.ceil(len(chart.lines) / columns)


def _draw_chart(axes: Axes, chart: Chart) -> None:
    frame = Frame.of(chart)
    columns, rows = _legend_size(chart)
    axes.set_title(chart.title, loc="left", fontsize=10.5, color=_INK, fontweight="bold", pad=6 + 10.3 * rows)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_RULE)
    axes.tick_params(colors=_MUTED, labelsize=8.5, length=3)
    axes.grid(axis="y", color=_RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    for line in chart.lines:
        _draw_line(axes, line)
    room = 0.02 * (frame.x1 - frame.x0)
    axes.set_xlim(frame.x0 - room, frame.x1 + room)
    axes.set_ylim(frame.y0, frame.y1)
    for ticks, place in ((frame.step_ticks(chart), axes.set_xticks), (frame.value_ticks(), axes.set_yticks)):
        place([value for value, _ in ticks], [label for _, label in ticks])
    beyond = frame.beyond(chart)
    axes.set_xlabel(
        "step" if beyond is None else f"step ({beyond})", fontsize=8.5 if beyond is None else 7, color=_MUTED
    )
    if rows:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderaxespad=0.2, ncols=columns, fontsize=8, frameon=False,
            labelcolor=_INK, columnspacing=1.2, labelspacing=0.2, handlelength=1.6, borderpad=0,
        )  # fmt: skip


def _draw_line(axes: Axes, line: Line) -> None:
    color = PALETTE[line.color % len(PALETTE)]
    style = "--" if line.dashed else "-"
    steps, values = line.series.steps, line.series.values
    if line.points or len(steps) == 1:
        if line.errors is not None:
            axes.errorbar(steps, values, yerr=line.errors, fmt="none", ecolor=color, elinewidth=1, capsize=2.5)
        axes.plot(steps, values, style, marker="o", markersize=4, color=color, linewidth=1.4, label=line.label)
        return
    kept = thin(steps, values)
    if line.smoothed is None:
        axes.plot(steps[kept], values[kept], style, color=color, linewidth=1.5, label=line.label)
        return
    if line.spread is None:
        axes.plot(steps[kept], values[kept], color=color, linewidth=0.8, alpha=0.25)
    else:
        axes.fill_between(line.spread.steps, line.spread.low, line.spread.high, color=color, alpha=0.15, linewidth=0)
    mean = line.smoothed
    kept = thin(mean.steps, mean.mean)
    axes.fill_between(mean.steps[kept], mean.low[kept], mean.high[kept], color=color, alpha=0.15, linewidth=0)
    axes.plot(mean.steps[kept], mean.mean[kept], style, color=color, linewidth=1.7, label=line.label)
