"""Figures of a table of samples with their intervals, for the benchmarks: clusters of samples are drawn again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Rows = Mapping[str, np.ndarray]
"""Columns of one value a sample."""


def intervals(
    figures: Mapping[str, Callable[[Rows], float]], rows: Rows, clusters: Sequence[str], draws: int = 1000
) -> dict[str, list[float]]:
    """Every figure with its 95% interval.

    Args:
        figures: from the rows to a number, by name. All are taken of the same draws, so that a difference may be one.
        rows: columns of N values.
        clusters: N names; samples of one name are not independent.
        draws: of the bootstrap, from seed 0.

    Returns:
        Value, low and high by name.
    """
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(np.array(clusters) == name) for name in dict.fromkeys(clusters)]
    drawn: dict[str, list[float]] = {name: [] for name in figures}
    for _ in range(draws):
        chosen = np.concatenate([members[at] for at in rng.integers(len(members), size=len(members))])
        again = {name: values[chosen] for name, values in rows.items()}
        for name, figure in figures.items():
            drawn[name].append(float(figure(again)))
    return {
        name: [float(figure(rows)), *np.percentile(drawn[name], (2.5, 97.5)).tolist()]
        for name, figure in figures.items()
    }
