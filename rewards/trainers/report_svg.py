"""A chart as inline SVG for the HTML page: sharp at any size, readable on a phone, values under the pointer."""

from __future__ import annotations

import json
import math
from html import escape

import numpy as np

from rewards.trainers.curves import thin
from rewards.trainers.report_charts import Chart, Line

WIDTH, HEIGHT = 420, 236
LEFT, RIGHT, TOP, BOTTOM = 54, 10, 10, 26
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
        f"{_drawing(chart, number)}</figure>"
    )


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round values that divide [low, high] into about ``wanted`` steps of 1, 2 or 5 times a power of ten.

    Example:
        >>> ticks(0.0, 1.0)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        >>> ticks(0, 40)
        [0, 10, 20, 30, 40]
    """
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 5) if raw <= m * power * 1.0001), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(index * step, digits) if digits else round(index * step) for index in range(first, last + 1)]


def tick_labels(values: list[float]) -> list[str]:
    """The ticks as texts with the same decimals, enough to tell them apart.

    Example:
        >>> tick_labels([0.995, 1.0, 1.005])
        ['0.995', '1.000', '1.005']
    """
    size = max((abs(value) for value in values), default=0.0)
    if size >= 10_000 or size < 0.001:
        return [number_text(value) for value in values]
    digits = max((len(f"{value:.9f}".rstrip("0").partition(".")[2]) for value in values), default=0)
    return [f"{value:.{digits}f}" for value in values]


def number_text(value: float) -> str:
    """A number short enough for an axis or a tooltip.

    Example:
        >>> [number_text(x) for x in (0.25, 12000, 0.00015, 3.0, 0.61234)]
        ['0.25', '12k', '1.5e-4', '3', '0.612']
    """
    size = abs(value)
    if size and size < 0.001:
        return f"{value:.1e}".replace("e-0", "e-")
    if size >= 10_000:
        return f"{value / 1000:.4g}k"
    return f"{value:.3g}" if size < 100 else f"{value:.4g}"


class _Frame:
    """Maps steps and values to the drawing."""

    def __init__(self, chart: Chart) -> None:
        steps = np.concatenate([line.series.steps for line in chart.lines]).astype(float)
        self.x0, self.x1 = float(steps.min()), float(steps.max())
        if self.x0 == self.x1:
            self.x0, self.x1 = self.x0 - 1, self.x1 + 1
        bounds = np.concatenate([_extent(line) for line in chart.lines])
        low, high = float(bounds.min()), float(bounds.max())
        margin = (high - low) * 0.08 or abs(high) * 0.1 or 0.5
        self.y0, self.y1 = low - margin, high + margin
        if low >= 0 > self.y0:
            self.y0 = 0.0

    def x(self, step: float) -> float:
        return LEFT + (step - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (self.y1 - value) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def path(self, steps: np.ndarray, values: np.ndarray) -> str:
        points = (f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in zip(steps.tolist(), values.tolist()))
        return "M" + "L".join(points)


def _extent(line: Line) -> np.ndarray:
    """Lowest and highest value to show; single spikes of long noisy curves may leave the frame."""
    values = line.series.values
    if line.errors is not None:
        reach = np.nan_to_num(line.errors)
        return np.array([(values - reach).min(), (values + reach).max()])
    if line.smoothed is None or len(values) < 50:
        return np.array([values.min(), values.max()])
    spread = np.percentile(values, [1, 99])
    return np.array([min(spread[0], line.smoothed.mean.min()), max(spread[1], line.smoothed.mean.max())])


def _drawing(chart: Chart, number: int) -> str:
    frame = _Frame(chart)
    lines = "".join(_line(frame, line) for line in chart.lines)
    title = escape(f"{chart.title}: {', '.join(line.label for line in chart.lines)}")
    clip = f'<clipPath id="clip{number}"><rect x="{LEFT}" y="{TOP - 4}" width="{WIDTH - LEFT - RIGHT + 6}" '
    clip += f'height="{HEIGHT - TOP - BOTTOM + 8}"/></clipPath>'
    hover = escape(json.dumps([_hover(frame, line) for line in chart.lines]), quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}" data-lines="{hover}">'
        f'<defs>{clip}</defs>{_axes(frame)}<g clip-path="url(#clip{number})">{lines}</g>'
        f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" visibility="hidden"/></svg>'
    )


def _axes(frame: _Frame) -> str:
    drawn = []
    values = ticks(frame.y0, frame.y1)
    for value, label in zip(values, tick_labels(values)):
        y = frame.y(value)
        drawn.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for step in ticks(frame.x0, frame.x1):
        if step == int(step):
            x, anchor = frame.x(step), "end" if frame.x(step) > WIDTH - 24 else "middle"
            label = number_text(int(step))
            drawn.append(f'<text x="{min(x, WIDTH - 4):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{label}</text>')
    return "".join(drawn)


def _line(frame: _Frame, line: Line) -> str:
    kind = f"c{line.color % 8}{' dashed' if line.dashed else ''}"
    steps, values = line.series.steps, line.series.values
    if line.points or len(steps) == 1:
        return _points(frame, line, kind)
    kept = thin(steps, values)
    if line.smoothed is None:
        return f'<path class="line {kind}" d="{frame.path(steps[kept], values[kept])}"/>'
    raw = f'<path class="raw {kind}" d="{frame.path(steps[kept], values[kept])}"/>'
    mean = line.smoothed
    kept = thin(mean.steps, mean.mean)
    return (
        raw
        + _band(frame, line, kept, kind)
        + (f'<path class="line {kind}" d="{frame.path(mean.steps[kept], mean.mean[kept])}"/>')
    )


def _band(frame: _Frame, line: Line, kept: np.ndarray, kind: str) -> str:
    mean = line.smoothed
    assert mean is not None
    kept = kept[np.isfinite(mean.low[kept])]
    if len(kept) < 2:
        return ""
    there = frame.path(mean.steps[kept], mean.high[kept])
    back = frame.path(mean.steps[kept][::-1], mean.low[kept][::-1]).replace("M", "L", 1)
    return f'<path class="band {kind}" d="{there}{back}Z"/>'


def _points(frame: _Frame, line: Line, kind: str) -> str:
    steps, values = line.series.steps, line.series.values
    kept = thin(steps, values)
    drawn = [f'<path class="line {kind}" d="{frame.path(steps[kept], values[kept])}"/>'] if len(kept) > 1 else []
    for index in kept.tolist():
        x, y = frame.x(float(steps[index])), frame.y(float(values[index]))
        error = line.errors[index] if line.errors is not None else math.nan
        if math.isfinite(error):
            top, bottom = frame.y(float(values[index] + error)), frame.y(float(values[index] - error))
            drawn.append(f'<path class="error {kind}" d="M{x:.1f},{top:.1f}L{x:.1f},{bottom:.1f}"/>')
        if len(kept) <= 60:
            drawn.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    return "".join(drawn)


def _hover(frame: _Frame, line: Line) -> dict[str, object]:
    """What the page's script shows under the pointer."""
    shown = line.smoothed
    steps = line.series.steps if shown is None else shown.steps
    values = line.series.values if shown is None else shown.mean
    kept = thin(steps, values, HOVER_POINTS)
    rows = [[int(s), round(frame.x(float(s)), 1), number_text(float(v))] for s, v in zip(steps[kept], values[kept])]
    return {"label": line.label, "color": line.color % 8, "points": rows}
