"""The options that say where a job is done."""

from __future__ import annotations

import typer

ENGINE = typer.Option("local", help="local (all devices of this machine) or ray.")
ADDRESS = typer.Option(None, help="Address of a Ray cluster, e.g. auto or ray://host:10001.")
ACTORS = typer.Option(None, help="Judges on Ray; default: one a GPU, or without GPUs one a CPU.")
GPUS = typer.Option(None, help="GPUs of each judge on Ray; default: 1 where there are any.")
