"""Gain curves as files: `gain.json` and `gain.png`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rewards.rerank.gain import GainCurves, gain_curves
from rewards.rerank.records import read_ranked_row
from rewards.runs.files import Row


def write_gain(folder: Path, rows: Iterable[Row]) -> GainCurves:
    """Curves of a job's ranked rows, with the audit's beside where there is one.

    Args:
        folder: where `gain.json` and `gain.png` go.
        rows: ranked rows; rows with fewer candidates than two are left out.
    """
    kept = [row for row in rows if len(row["candidates"]) > 1]
    rankings = [read_ranked_row(row) for row in kept]
    audited = bool(kept) and "audit" in kept[0]["candidates"][0]
    held_out = {"audit": [read_ranked_row(row, audit=True) for row in kept]} if audited else None
    curves = gain_curves(rankings, held_out)
    (folder / "gain.json").write_text(json.dumps(curves.as_dict(), indent=1) + "\n", encoding="utf-8")
    plot_gain(curves, folder / "gain.png")
    return curves


def plot_gain(curves: GainCurves, path: Path, labels: dict[str, str] | None = None) -> None:
    """Left: gain over one draw by the judge (and the audit, its score of the same choices); right: by part.

    Args:
        curves: from :func:`rewards.rerank.gain_curves`.
        path: the PNG file.
        labels: name of a curve -> its label.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = labels or {"overall": "judge (chooses)", "audit": "held-out (of the judge's choice)"}
    wholes = [name for name in curves.curves if name in labels]
    parts = [name for name in curves.curves if name not in labels and "/" not in name]
    figure, axes = pyplot.subplots(1, 2 if parts else 1, figsize=(10 if parts else 5.5, 4), squeeze=False)
    for name in wholes:
        points = curves.gains[name]
        line = axes[0, 0].plot(curves.k, [point.value for point in points], marker="o", ms=3, label=labels[name])
        low, high = [point.low for point in points], [point.high for point in points]
        axes[0, 0].fill_between(curves.k, low, high, alpha=0.2, color=line[0].get_color())
    axes[0, 0].set_title(f"gain over one draw, {curves.items} items")
    for name in parts:
        axes[0, 1].plot(curves.k, [point.value for point in curves.gains[name]], marker="o", ms=3, label=name)
    if parts:
        axes[0, 1].set_title("by part, in the judge's scores")
    for axis in axes[0]:
        axis.set_xlabel("k of best-of-k")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
