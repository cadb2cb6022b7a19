"""The root command: only the wiring of the rooms' commands."""

from __future__ import annotations

import typer

from rewards import __version__

app = typer.Typer(
    name="rewards",
    help="Readable rewards for fine-tuning generators: HarmonicEval and TIFA.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass
