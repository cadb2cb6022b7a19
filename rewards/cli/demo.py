"""`rewards demo`: everything at work, offline, in about ten minutes on two cores."""

from __future__ import annotations

import threading
from importlib import import_module
from pathlib import Path

import typer


def demo(
    out: Path = typer.Option(
        Path("runs/demo"),
        "--out",
        "-o",
        help="Folder for what the demo writes; an earlier demo there is replaced only with --overwrite.",
    ),
    seed: int = typer.Option(0, help="Seed of the training; the held-out prompts stay the same."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace an earlier demo in the folder."),
) -> None:
    """Train a generator with TIFA and a captioner with HarmonicEval in the shapes world, then rerank; ends with a
    table.
    """
    _load()
    from rewards.demo.run import demo_tables, format_tables, run_demo

    summary = run_demo(out, seed, overwrite)
    typer.echo(format_tables(demo_tables(summary)))
    typer.echo(f"\n{summary['seconds'] / 60:.1f} minutes; open {out / 'report.html'}")


def _load() -> None:
    """Import what takes long on a machine that has never done it, with a dot a second; small models need no bars."""
    loaded = threading.Event()

    def dots() -> None:
        while not loaded.wait(1):
            typer.echo(".", nl=False)

    typer.echo("loading ", nl=False)
    threading.Thread(target=dots, daemon=True).start()
    try:
        import rewards.demo.run  # noqa: F401
    finally:
        loaded.set()
    typer.echo()
    for library in ("diffusers", "transformers"):
        import_module(f"{library}.utils.logging").disable_progress_bar()
