"""The axes of a chart, the same on the page and in the files: limits, round ticks, and what lies beyond the limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rewards.report.charts import Chart, Line


@dataclass(frozen=True)
class Beyond:
    """Values outside the limits: their share of all values, and the lowest and highest value there is."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        share = "under 0.1%" if self.share < 0.001 else f"{self.share:.1%}"
        low, high = (value_text(value, self.high - self.low) for value in (self.low, self.high))
        return f"{share} of the values lie outside: they go from {low} to {high}"


@dataclass(frozen=True)
class Frame:
    """Limits of a chart: ``x0`` to ``x1`` in steps, ``y0`` to ``y1`` in values."""

    x0: float
    x1: float
    y0: float
    y1: float

    @staticmethod
    def of(chart: Chart) -> Frame:
        """Limits around all lines of a chart that has at least one."""
        steps = np.concatenate([line.series.steps for line in chart.lines]).astype(float)
        x0, x1 = float(steps.min()), float(steps.max())
        if x0 == x1:
            x0, x1 = x0 - 1, x1 + 1
        bounds = np.concatenate([_extent(line) for line in chart.lines])
        low, high = float(bounds.min()), float(bounds.max())
        # Values that differ by rounding only are drawn as one level.
        if high - low < 1e-9 * max(abs(low), abs(high)) or high - low < 1e-100:
            margin = abs(high) * 0.1 if abs(high) > 1e-100 else 0.5
        else:
            margin = (high - low) * 0.08
        y0, y1 = low - margin, high + margin
        return Frame(x0, x1, 0.0 if low >= 0 > y0 else y0, y1)

    def step_ticks(self, chart: Chart) -> list[tuple[float, str]]:
        """Whole steps with their labels; a single step stands alone."""
        steps = {int(line.series.steps[0]) for line in chart.lines} | {int(li.series.steps[-1]) for li in chart.lines}
        found = [steps.pop()] if len(steps) == 1 else [int(s) for s in ticks(self.x0, self.x1) if s == int(s)]
        return [(step, number_text(step)) for step in found]

    def value_ticks(self) -> list[tuple[float, str]]:
        """Round values with their labels."""
        values = ticks(self.y0, self.y1)
        return list(zip(values, tick_labels(values)))

    def beyond(self, chart: Chart) -> Beyond | None:
        """What the limits leave out (see :func:`_extent`), or None."""
        values = np.concatenate([line.series.values for line in chart.lines])
        outside = (values < self.y0) | (values > self.y1)
        return Beyond(float(outside.mean()), float(values.min()), float(values.max())) if outside.any() else None


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
        >>> tick_labels([0, 0.0001, 0.0002]), tick_labels([9.5e-5, 1e-4, 1.05e-4]), tick_labels([0, 50000])
        (['0', '1e-4', '2e-4'], ['9.50e-5', '1.00e-4', '1.05e-4'], ['0k', '50k'])
    """
    size = max((abs(value) for value in values), default=0.0)
    if size and (size < 0.001 or size >= 1e9):
        digits = next((d for d in range(6) if all(_exactly(f"{value:.{d}e}", value) for value in values)), 6)
        return [_short_exponent(f"{value:.{digits}e}") if value else "0" for value in values]
    unit, suffix = (1e6, "M") if size >= 1e6 else (1e3, "k") if size >= 10_000 else (1, "")
    scaled = [value / unit for value in values]
    digits = max((len(f"{value:.9f}".rstrip("0").partition(".")[2]) for value in scaled), default=0)
    return [f"{value:.{digits}f}{suffix}" for value in scaled]


def number_text(value: float) -> str:
    """A number short enough for an axis or a tooltip.

    Example:
        >>> [number_text(x) for x in (0.25, 12000, 2500000, 0.00015, 3.0, 0.61234)]
        ['0.25', '12k', '2.5M', '1.5e-4', '3', '0.612']
    """
    size = abs(value)
    if size and (size < 0.001 or size >= 1e9):
        return _short_exponent(f"{value:.1e}")
    if size >= 1e6:
        return f"{value / 1e6:.4g}M"
    if size >= 10_000:
        return f"{value / 1000:.4g}k"
    return f"{value:.3g}" if size < 100 else f"{value:.4g}"


def value_text(value: float, span: float) -> str:
    """A value with as many decimals as tell it apart from others within ``span``, the height of its chart.

    Example:
        >>> value_text(0.9999512, 0.0002), value_text(0.61234, 0.3), value_text(1.234e-5, 1e-4), value_text(64, 64)
        ('0.99995', '0.61', '1.2e-5', '64')
    """
    if abs(value) >= 10_000 or span <= 0 or (span < 0.001 and abs(value) < 0.001):
        return number_text(value)
    return f"{value:.{max(0, 1 - math.floor(math.log10(span)))}f}"


def _exactly(text: str, value: float) -> bool:
    return math.isclose(float(text), value, rel_tol=1e-9)


def _short_exponent(text: str) -> str:
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _extent(line: Line) -> np.ndarray:
    """Lowest and highest value to show; of a long noisy curve, spikes that would flatten the rest leave the frame."""
    values = line.series.values
    if line.errors is not None:
        reach = np.nan_to_num(line.errors)
        return np.array([(values - reach).min(), (values + reach).max()])
    everything = np.array([values.min(), values.max()])
    if line.smoothed is None or len(values) < 50:
        return everything
    mean = line.smoothed.mean
    if line.spread is not None:
        return np.array([min(line.spread.low.min(), mean.min()), max(line.spread.high.max(), mean.max())])
    usual = np.percentile(values, [1, 99])
    usual = np.array([min(usual[0], mean.min()), max(usual[1], mean.max())])
    return usual if np.ptp(everything) > 3 * np.ptp(usual) else everything
