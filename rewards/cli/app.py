"""The root command: only the wiring of the rooms' commands."""

from __future__ import annotations

import typer

from rewards import __version__
from rewards.cli.audit import app as audit
from rewards.cli.check import check
from rewards.cli.configs import app as configs
from rewards.cli.curves import curves
from rewards.cli.demo import demo
from rewards.cli.humans import app as humans
from rewards.cli.questions import app as questions
from rewards.cli.rerank import best_of_n, rerank
from rewards.cli.score import app as score
from rewards.cli.serve import serve
from rewards.cli.tifa_bench import tifa_bench
from rewards.cli.train import train

app = typer.Typer(
    rich_markup_mode=None,
    name="rewards",
    help="Readable rewards for fine-tuning generators: HarmonicEval and TIFA.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(train)
app.command()(check)
app.command()(curves)
app.command()(rerank)
app.command("best-of-n")(best_of_n)
app.command("tifa-bench")(tifa_bench)
app.command()(serve)
app.add_typer(score, name="score")
app.add_typer(questions, name="questions")
app.add_typer(humans, name="humans")
app.add_typer(audit, name="audit")
app.add_typer(configs, name="configs")


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass
