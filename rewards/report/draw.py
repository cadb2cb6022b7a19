"""The one chart renderer: matplotlib draws every chart, for the files and, as inline SVG, for the page."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, ScalarFormatter

from rewards.report.charts import Chart, Line, Section
from rewards.report.curves import thin

PALETTE = (
    "#2a63c4", "#d0660f", "#c43c3c", "#5d6573", "#188a5a", "#7b4fc0", "#0e8791", "#8a7413", "#bd4590", "#6b4a2f",
)  # fmt: skip
"""Colours by the index that :mod:`rewards.report.charts` gives them; ``--c0`` to ``--c9`` in report.css."""
INK, MUTED, RULE = "#22252b", "#686e79", "#dfe2e7"
WIDTH, HEIGHT = 5.0, 2.75
"""Inches of a chart. At 72 points an inch a chart of the page is as wide as a phone, and its letters are drawn 1:1."""
BOTTOM, TOP, RIGHT = 0.5, 0.22, 0.16
HOVER_POINTS = 160


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
            figure.savefig(path, dpi=110)
            written.append(path)
    return written


def draw(section: Section) -> Figure:
    """A section's charts on one figure, three a row at most, each with its title and legend."""
    columns = min(3, len(section.charts))
    rows = math.ceil(len(section.charts) / columns)
    head = 0.3 + 0.19 * max(_legend_shape(chart)[1] for chart in section.charts)
    width, height = columns * WIDTH, rows * (HEIGHT + head)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for index, chart in enumerate(section.charts):
        row, column = divmod(index, columns)
        axes = _place(figure, chart, column * WIDTH, height - row * (HEIGHT + head) - head - HEIGHT)
        legend_columns, legend_rows = _legend_shape(chart)
        axes.set_title(chart.title, loc="left", color=INK, fontweight="bold", pad=6 + 14 * legend_rows)
        if legend_rows:
            axes.legend(
                loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderaxespad=0.2, ncols=legend_columns, fontsize=10,
                frameon=False, labelcolor=INK, columnspacing=1.2, labelspacing=0.2, handlelength=1.6, borderpad=0,
            )  # fmt: skip
    return figure


def _legend_shape(chart: Chart) -> tuple[int, int]:
    """Columns and rows of a legend that stands above the curves, where it hides none of them."""
    if len(chart.lines) < 2:
        return 1, 0
    columns = max(1, int(0.85 * WIDTH / (0.5 + 0.08 * max(len(line.label) for line in chart.lines))))
    return columns, math.ceil(len(chart.lines) / columns)


def chart_figure(chart: Chart, number: int) -> str:
    """A ``<figure>`` with title, note and legend in HTML and the drawing as inline SVG.

    Args:
        chart: With at least one line.
        number: Unique on the page; names what the drawing refers to.
    """
    items = ""
    for line in chart.lines:
        kind = f"key c{line.color}{' dashed' if line.dashed else ''}{' dot' if line.points else ''}"
        items += f'<li><i class="{kind}"></i>{escape(line.label)}</li>'
    legend = f'<ul class="legend">{items}</ul>' if len(chart.lines) > 1 else ""
    note = f"<p>{escape(chart.note)}</p>" if chart.note else ""
    return (
        f'<figure class="chart"><figcaption><h3>{escape(chart.title)}</h3>{note}{legend}</figcaption>'
        f"{_inline_svg(chart, number)}</figure>"
    )


def _inline_svg(chart: Chart, number: int) -> str:
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=72, facecolor="none")
    axes = _place(figure, chart, 0, 0)
    text = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": str(number)}):
        figure.savefig(text, format="svg", dpi=72, metadata=nothing)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"|(?<=<g) id="[^"]*"|<!--.*?-->|\s+(?=\n)', "", svg, flags=re.S)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), svg)
    for index, color in enumerate(PALETTE):
        svg = svg.replace(color, f"var(--c{index})")
    for color, name in ((INK, "ink"), (MUTED, "muted"), (RULE, "rule")):
        svg = svg.replace(color, f"var(--{name})")
    labels = ", ".join(line.label for line in chart.lines if line.label)
    title = escape(f"{chart.title}: {labels}" if labels else chart.title, quote=True)
    hover = escape(json.dumps([_hover(axes, line) for line in chart.lines]), quote=True)
    head = f'<svg viewBox="0 0 {72 * WIDTH:g} {72 * HEIGHT:g}" role="img" aria-label="{title}" data-lines="{hover}">'
    y1, y2 = 72 * TOP, 72 * (HEIGHT - BOTTOM)
    cursor = f'<line class="cursor" y1="{y1:g}" y2="{y2:g}" visibility="hidden"/>'
    return head + svg[svg.index(">") + 1 :].replace("</svg>", f"{cursor}</svg>")


def _hover(axes: Axes, line: Line) -> dict[str, object]:
    """What the page's script shows under the pointer: step, place and value of some points."""
    kept = thin(line.values, HOVER_POINTS)
    steps, values = line.steps[kept], line.values[kept]
    places = axes.transData.transform(np.stack([steps, values], axis=1))[:, 0]
    rows = zip(steps.tolist(), places.round(1).tolist(), map(axes.format_ydata, values))
    return {"label": line.label, "color": line.color, "points": [[s, x, v.strip()] for s, x, v in rows]}


def _place(figure: Figure, chart: Chart, x: float, y: float) -> Axes:
    """Axes with the chart drawn, in a box of WIDTH by HEIGHT inches whose lower left corner is at x, y."""
    axes = figure.add_axes((0, 0, 1, 1), facecolor="none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(RULE)
    axes.tick_params(colors=MUTED, labelsize=11, length=3)
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    # Two evaluations are a comparison, not a curve; beside the curve of the training they are dots.
    alone = all(line.points for line in chart.lines)
    for line in chart.lines:
        if line.points or len(line.steps) == 1:
            _draw_points(axes, line, chart, joined=alone and len(line.steps) > 2)
        else:
            _draw_curve(axes, line)
    beyond = _limit(axes, chart)
    axes.set_xlabel(f"{chart.x_label}{beyond}", fontsize=10 if beyond else 11, color=MUTED, labelpad=2)
    axes.set_ylabel(chart.unit, fontsize=11, color=MUTED, labelpad=3)
    # Fixed margins in inches: the layout engines draw everything several times over to find the same ones.
    labels = axes.yaxis.get_major_formatter().format_ticks(axes.get_yticks().tolist())
    left = 0.36 + 0.095 * max((len(label) for label in labels), default=0)
    width, height = figure.get_size_inches()
    box = (x + left, y + BOTTOM, WIDTH - left - RIGHT, HEIGHT - BOTTOM - TOP)
    axes.set_position((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
    return axes


def _limit(axes: Axes, chart: Chart) -> str:
    """Set limits and ticks; returns what lies beyond the limits, in words."""
    x0, x1 = min(line.steps[0] for line in chart.lines), max(line.steps[-1] for line in chart.lines)
    room = 0.02 * (x1 - x0) or 1
    axes.set_xlim(x0 - room, x1 + room)
    low, high = min(line.extent[0] for line in chart.lines), max(line.extent[1] for line in chart.lines)
    # Values that differ by rounding only are drawn as one level.
    same = high - low < 1e-9 * max(abs(low), abs(high)) or high - low < 1e-100
    margin = (abs(high) * 0.1 if abs(high) > 1e-100 else 0.5) if same else (high - low) * 0.08
    y0 = low - margin if chart.low is None else max(low - margin, chart.low - 0.02 * (high - low))
    y1 = high + margin if chart.high is None else min(high + margin, chart.high + 0.02 * (high - low))
    axes.set_ylim(y0, y1)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if x0 == x1:
        axes.set_xticks([x0])
    lowest, highest = min(line.range[0] for line in chart.lines), max(line.range[1] for line in chart.lines)
    return "" if y0 <= lowest and highest <= y1 else f" (values beyond the frame: from {lowest:.3g} to {highest:.3g})"


def _draw_points(axes: Axes, line: Line, chart: Chart, joined: bool) -> None:
    color, values = PALETTE[line.color], line.values
    if line.errors is not None:
        # A mean of shares is a share: the ends of its interval stay within those of the quantity.
        low = np.maximum(values - line.errors, -np.inf if chart.low is None else chart.low)
        high = np.minimum(values + line.errors, np.inf if chart.high is None else chart.high)
        reach = np.nan_to_num(np.maximum([values - low, high - values], 0))
        axes.errorbar(line.steps, values, yerr=reach, fmt="none", ecolor=color, elinewidth=1.2, capsize=3)
    style = ("--" if line.dashed else "-") if joined else "none"
    face = "none" if line.dashed else color
    axes.plot(
        line.steps, values, linestyle=style, color=color, linewidth=1.5, label=line.label, marker="o", markersize=5.5,
        markerfacecolor=face,
    )  # fmt: skip


def _draw_curve(axes: Axes, line: Line) -> None:
    color = PALETTE[line.color]
    if line.spread is not None:
        axes.fill_between(line.spread.steps, line.spread.low, line.spread.high, color=color, alpha=0.25, linewidth=0)
    if line.faint is not None:
        axes.plot(*line.faint, color=color, linewidth=0.9, alpha=0.28)
    if line.interval is not None:
        band = line.interval
        axes.fill_between(band.steps, band.low, band.high, color=color, alpha=0.16, linewidth=0)
    style = "--" if line.dashed else "-"
    axes.plot(line.steps, line.values, style, color=color, linewidth=1.9, label=line.label)
