"""Numbers with their intervals as the cells of tables (:mod:`rewards.tables`)."""

from __future__ import annotations

import math

from rewards.runs.intervals import Estimate


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
