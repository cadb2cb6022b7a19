"""The charts as PNG and SVG files, by matplotlib, without a display."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rewards.trainers.curves import thin
from rewards.trainers.report_charts import Chart, Line, Section

PALETTE = ("#2a63c4", "#d0660f", "#188a5a", "#7b4fc0", "#c43c3c", "#0e8791", "#8a7413", "#bd4590")
_INK, _MUTED, _RULE = "#22252b", "#686e79", "#dfe2e7"


def write_plots(sections: Sequence[Section], folder: str | Path) -> list[Path]:
    """One PNG and one SVG a section.

    Args:
        sections: From :func:`rewards.trainers.report_charts.build_sections`.
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
    width, height = 4.4 * columns, 2.9 * rows
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    # Fixed margins in inches: the layout engines draw everything several times over to find the same ones.
    figure.subplots_adjust(0.62 / width, 0.5 / height, 1 - 0.15 / width, 1 - 0.35 / height, 0.24, 0.42)
    for index, chart in enumerate(section.charts):
        _draw_chart(figure.add_subplot(rows, columns, index + 1), chart)
    return figure


def _draw_chart(axes: Axes, chart: Chart) -> None:
    axes.set_title(chart.title, loc="left", fontsize=10.5, color=_INK, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_RULE)
    axes.tick_params(colors=_MUTED, labelsize=8.5, length=3)
    axes.grid(axis="y", color=_RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.locator_params(axis="both", nbins=5)
    axes.margins(x=0.03, y=0.1)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_xlabel("step", fontsize=8.5, color=_MUTED)
    for line in chart.lines:
        _draw_line(axes, line)
    if len(chart.lines) > 1:
        axes.legend(fontsize=8, frameon=False, labelcolor=_INK)


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
    axes.plot(steps[kept], values[kept], color=color, linewidth=0.8, alpha=0.25)
    mean = line.smoothed
    kept = thin(mean.steps, mean.mean)
    axes.fill_between(mean.steps[kept], mean.low[kept], mean.high[kept], color=color, alpha=0.15, linewidth=0)
    axes.plot(mean.steps[kept], mean.mean[kept], style, color=color, linewidth=1.7, label=line.label)
