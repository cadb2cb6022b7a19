"""A chart as inline SVG for the HTML page: sharp at any size, readable on a phone, values under the pointer."""

from __future__ import annotations

import json
import math
from html import escape

import numpy as np

from rewards.report.charts import Chart, Line
from rewards.report.curves import Smoothed, thin
from rewards.report.frame import Beyond, Frame, value_text

WIDTH, HEIGHT = 420, 244
RIGHT, TOP, BOTTOM = 18, 10, 30
DIGIT = 8.8
"""Width of a digit in the largest text size that report.css sets, so that no label is cut on a phone."""
HOVER_POINTS = 160


def chart_figure(chart: Chart, number: int) -> str:
    """A ``<figure>`` with title, legend and drawing.

    Args:
        chart: With at least one line.
        number: Unique on the page (names the clip path).

    Returns:
        HTML.
    """
    legend = ""
    if len(chart.lines) > 1:
        items = "".join(
            f'<li><i class="key c{line.color % 8}{" dashed" if line.dashed else ""}"></i>{escape(line.label)}</li>'
            for line in chart.lines
        )
        legend = f'<ul class="legend">{items}</ul>'
    note = f"<p>{escape(chart.note)}</p>" if chart.note else ""
    return (
        f'<figure class="chart"><figcaption><h3>{escape(chart.title)}</h3>{note}{legend}</figcaption>'
        f"{_drawing(chart, number)}{_beyond(Frame.of(chart).beyond(chart))}</figure>"
    )


class _Canvas:
    """Maps steps and values to the drawing; the left margin fits the longest label."""

    def __init__(self, chart: Chart) -> None:
        self.frame = Frame.of(chart)
        self.value_ticks = self.frame.value_ticks()
        self.step_ticks = self.frame.step_ticks(chart)
        self.left = 14 + DIGIT * max((len(label) for _, label in self.value_ticks), default=0)

    def x(self, step: float) -> float:
        frame = self.frame
        return self.left + (step - frame.x0) / (frame.x1 - frame.x0) * (WIDTH - self.left - RIGHT)

    def y(self, value: float) -> float:
        frame = self.frame
        return TOP + (frame.y1 - value) / (frame.y1 - frame.y0) * (HEIGHT - TOP - BOTTOM)

    def path(self, steps: np.ndarray, values: np.ndarray) -> str:
        points = (f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in zip(steps.tolist(), values.tolist()))
        return "M" + "L".join(points)

    def area(self, steps: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
        return self.path(steps, high) + self.path(steps[::-1], low[::-1]).replace("M", "L", 1) + "Z"


def _beyond(beyond: Beyond | None) -> str:
    return "" if beyond is None else f'<p class="beyond">{str(beyond).capitalize()}.</p>'


def _drawing(chart: Chart, number: int) -> str:
    canvas = _Canvas(chart)
    lines = "".join(_line(canvas, line) for line in chart.lines)
    labels = ", ".join(line.label for line in chart.lines if line.label)
    title = escape(f"{chart.title}: {labels}" if labels else chart.title)
    # Wider than the axes by a dot's radius, so that dots at the ends are whole.
    clip = f'<clipPath id="clip{number}"><rect x="{canvas.left - 5:.1f}" y="{TOP - 4}" '
    clip += f'width="{WIDTH - canvas.left - RIGHT + 10:.1f}" height="{HEIGHT - TOP - BOTTOM + 8}"/></clipPath>'
    hover = escape(json.dumps([_hover(canvas, line) for line in chart.lines]), quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}" data-lines="{hover}">'
        f'<defs>{clip}</defs>{_axes(canvas)}<g clip-path="url(#clip{number})">{lines}</g>'
        f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" visibility="hidden"/></svg>'
    )


def _axes(canvas: _Canvas) -> str:
    drawn = []
    left = f"{canvas.left:.1f}"
    for value, label in canvas.value_ticks:
        y = canvas.y(value)
        drawn.append(f'<line class="rule" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text x="{canvas.left - 9:.1f}" y="{y + 5:.1f}" text-anchor="end">{label}</text>')
    for step, label in canvas.step_ticks:
        x = min(canvas.x(step), WIDTH - 2 - DIGIT / 2 * len(label))
        drawn.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text>')
    return "".join(drawn)


def _line(canvas: _Canvas, line: Line) -> str:
    kind = f"c{line.color % 8}{' dashed' if line.dashed else ''}"
    steps, values = line.series.steps, line.series.values
    if line.points or len(steps) == 1:
        return _points(canvas, line, kind)
    kept = thin(steps, values)
    if line.smoothed is None:
        return f'<path class="line {kind}" d="{canvas.path(steps[kept], values[kept])}"/>'
    behind = f'<path class="raw {kind}" d="{canvas.path(steps[kept], values[kept])}"/>'
    if line.spread is not None:
        area = canvas.area(line.spread.steps, line.spread.low, line.spread.high)
        behind = f'<path class="spread {kind}" d="{area}"/>'
    mean = line.smoothed
    kept = thin(mean.steps, mean.mean)
    drawn = behind + _band(canvas, mean, kept, kind)
    return drawn + f'<path class="line {kind}" d="{canvas.path(mean.steps[kept], mean.mean[kept])}"/>'


def _band(canvas: _Canvas, mean: Smoothed, kept: np.ndarray, kind: str) -> str:
    kept = kept[np.isfinite(mean.low[kept])]
    if len(kept) < 2:
        return ""
    return f'<path class="band {kind}" d="{canvas.area(mean.steps[kept], mean.low[kept], mean.high[kept])}"/>'


def _points(canvas: _Canvas, line: Line, kind: str) -> str:
    steps, values = line.series.steps, line.series.values
    kept = thin(steps, values)
    drawn = [f'<path class="line {kind}" d="{canvas.path(steps[kept], values[kept])}"/>'] if len(kept) > 1 else []
    for index in kept.tolist():
        x, y = canvas.x(float(steps[index])), canvas.y(float(values[index]))
        error = line.errors[index] if line.errors is not None else math.nan
        if math.isfinite(error):
            top, bottom = canvas.y(float(values[index] + error)), canvas.y(float(values[index] - error))
            drawn.append(f'<path class="error {kind}" d="M{x:.1f},{top:.1f}L{x:.1f},{bottom:.1f}"/>')
        if len(kept) <= 60:
            drawn.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    return "".join(drawn)


def _hover(canvas: _Canvas, line: Line) -> dict[str, object]:
    """What the page's script shows under the pointer."""
    shown = line.smoothed
    steps = line.series.steps if shown is None else shown.steps
    values = line.series.values if shown is None else shown.mean
    kept = thin(steps, values, HOVER_POINTS)
    # Ten times finer than the eye can read off the axis.
    span = (canvas.frame.y1 - canvas.frame.y0) / 10
    rows = [
        [int(s), round(canvas.x(float(s)), 1), value_text(float(v), span)] for s, v in zip(steps[kept], values[kept])
    ]
    return {"label": line.label, "color": line.color % 8, "points": rows}
