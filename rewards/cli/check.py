"""``rewards check CONFIG``: what a run will need, before it begins and without a GPU."""

from __future__ import annotations

import typer

from rewards.cli.configs import find_config, sections
from rewards.errors import InputError


def check(
    config: str = typer.Argument(..., help="A config of `rewards train`: a file, or the name of a shipped one."),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings that win over the file."),
    memory: str | None = typer.Option(None, help="Memory of the GPU, such as 24GiB: says what to change."),
    gpu: str = typer.Option("a100", help="For the time: h200, h100, a100, l40s, rtx4090 or t4."),
) -> None:
    """Memory by phase, work, tokens and what is missing, from shapes alone: no weights are loaded.

    Exits with status 1 where the run does not fit into `--memory`, or a part of it could not be checked.
    """
    path = find_config(config)
    keys = sections(path)
    from rewards.preflight.report import read_memory
    from rewards.runs.config import load_config

    size = None if memory is None else read_memory(memory)
    if "policy" in keys:
        from rewards.preflight.checking import check_writing
        from rewards.trainers.language.settings import LanguageRunConfig

        report = check_writing(load_config(LanguageRunConfig, path, overrides or []), path.name)
    elif "model" in keys:
        from rewards.preflight.checking import check_drawing
        from rewards.trainers.diffusion.settings import DiffusionRunConfig

        report = check_drawing(load_config(DiffusionRunConfig, path, overrides or []), path.name)
    else:
        raise InputError(f"{path}: a config to check has 'policy' or 'model', as those of `rewards train`")
    typer.echo(report.text(size, gpu))
    if report.failed or (size is not None and report.peak > size):
        raise typer.Exit(1)
