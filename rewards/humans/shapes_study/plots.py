"""The study's four tables as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewards.humans.mmhe.best_of_three import SHORT_CRITERIA, Accuracy
from rewards.humans.mmhe.records import CRITERIA, TASKS
from rewards.humans.shapes_study.results import Study
from rewards.humans.statistics.agreement import Agreement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_study(study: Study, folder: Path) -> None:
    """Write `table2.png` (accuracy), `table3.png` (tau by criterion), `table5.png` (ablation), `table6.png` (gamma)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name, table, title in (
        ("table2", study.accuracy, "accuracy by task"),
        ("table5", study.ablation, "ablation"),
    ):
        figure, axis = pyplot.subplots(figsize=(9, 4))
        _bars(axis, table, title)
        _save(figure, folder / f"{name}.png")
    figure, axis = pyplot.subplots(figsize=(10, 0.5 * len(study.criteria) + 2))
    _taus(axis, study.criteria)
    _save(figure, folder / "table3.png")
    figure, axis = pyplot.subplots(figsize=(6, 4))
    _gammas(axis, study.gammas)
    _save(figure, folder / "table6.png")
    pyplot.close("all")


def _bars(axis: Axes, table: Mapping[str, Mapping[str, Accuracy]], title: str) -> None:
    tasks = list(next(iter(table.values())))
    width = 0.8 / len(table)
    for place, (method, row) in enumerate(table.items()):
        estimates = [row[task].estimate for task in tasks]
        values = np.array([100 * estimate.value for estimate in estimates])
        low, high = (np.array([100 * getattr(e, end) for e in estimates]) for end in ("low", "high"))
        positions = np.arange(len(tasks)) + (place - (len(table) - 1) / 2) * width
        axis.bar(positions, values, width, yerr=[values - low, high - values], error_kw={"lw": 0.8}, label=method)
    axis.axhline(50, color="grey", lw=0.8, ls="--")
    axis.set_xticks(range(len(tasks)), [TASKS.get(task, "average") for task in tasks])
    axis.set_ylabel("accuracy (%)")
    axis.set_title(f"{title}; dashed: chance")
    axis.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False)


def _taus(axis: Axes, criteria: Mapping[str, Mapping[str, Mapping[str, Agreement]]]) -> None:
    tasks = list(next(iter(criteria.values())))
    values = np.array(
        [[row[task][c]["kendall_tau_b"].value for task in tasks for c in CRITERIA] for row in criteria.values()]
    )
    shown = axis.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    axis.set_yticks(range(len(criteria)), list(criteria))
    labels = [f"{short}\n{TASKS[task]}" if short == "Clr" else short for task in tasks for short in SHORT_CRITERIA]
    axis.set_xticks(range(len(labels)), labels, fontsize=7)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            axis.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=6)
    axis.set_title("Kendall's tau-b with the true ratings")
    axis.figure.colorbar(shown)


def _gammas(axis: Axes, gammas: Mapping[str, Mapping[str, Accuracy]]) -> None:
    labels = list(gammas)
    for task in next(iter(gammas.values())):
        estimates = [gammas[label][task].estimate for label in labels]
        values = [100 * estimate.value for estimate in estimates]
        average = task == "average"
        axis.plot(labels, values, marker="o", lw=2.5 if average else 1, label=TASKS.get(task, "average"))
        if average:
            low, high = ([100 * getattr(e, end) for e in estimates] for end in ("low", "high"))
            axis.fill_between(labels, low, high, alpha=0.15, color=axis.lines[-1].get_color())
    axis.set_xlabel("gamma (1: uniform, 0: the most certain criterion)")
    axis.set_ylabel("accuracy (%)")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)
