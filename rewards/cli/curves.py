"""``rewards curves RUN [RUN ...]``: plots and one HTML page from run folders."""

from __future__ import annotations

from pathlib import Path

import typer


def curves(
    runs: list[Path] = typer.Argument(
        ..., help="Run folders, finished or going on: with metrics.jsonl, or with what TRL leaves (trainer_state.json)."
    ),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder for the files [default: the run's own folder]."),
    title: str | None = typer.Option(None, help="Heading of the page [default: the runs' names]."),
    smooth: int | None = typer.Option(
        None, min=1, help="Points in the smoothing window [default: a tenth of a curve]."
    ),
) -> None:
    """Draw a run's curves, or compare several: report.html (self-contained), curves/*.png and curves/*.svg.

    Exit status 1 says that nothing was found to draw in any of them.
    """
    from rewards.report.page import write_report

    report = write_report(runs, out, title=title, window=smooth)
    for name in report.empty:
        typer.echo(f"{name}: nothing has been logged yet (no values in metrics.jsonl or trainer_state.json)", err=True)
    typer.echo(f"{report.page}")
    for plot in report.plots:
        typer.echo(f"{plot}")
    if len(report.empty) == len(runs):
        raise typer.Exit(1)
