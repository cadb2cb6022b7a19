"""Plain-text tables: one look for every table that `rewards humans` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rewards.runs.intervals import Estimate


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell, the first to the left and the others to the right.

    Example:
        >>> print(text_table(["metric", "tau-b"], [["BLEU", "18.79"], ["METEOR", "27.41"]]))
        metric  tau-b
        ------  -----
        BLEU    18.79
        METEOR  27.41
    """
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *(line(row) for row in rows)])


def percent(value: float, digits: int = 2) -> str:
    """A fraction as a percentage; "-" where it is undefined.

    Example:
        >>> percent(0.59668), percent(float("nan"))
        ('59.67', '-')
    """
    return f"{100 * value:.{digits}f}" if math.isfinite(value) else "-"


def with_interval(estimate: Estimate, digits: int = 1) -> str:
    """A fraction as a percentage with its interval.

    Example:
        >>> with_interval(Estimate(0.5967, 0.54, 0.65))
        '59.7 [54.0, 65.0]'
    """
    if not math.isfinite(estimate.low):
        return percent(estimate.value, digits)
    return f"{percent(estimate.value, digits)} [{percent(estimate.low, digits)}, {percent(estimate.high, digits)}]"


def decimal_with_interval(estimate: Estimate, digits: int = 3) -> str:
    """A fraction as a decimal with its interval, as correlations are printed in DSG's README.

    Example:
        >>> decimal_with_interval(Estimate(0.46300, 0.4, 0.52))
        '0.463 [0.400, 0.520]'
    """
    if not math.isfinite(estimate.value):
        return "-"
    interval = f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]" if math.isfinite(estimate.low) else ""
    return f"{estimate.value:.{digits}f}{interval}"
