"""``rewards train CONFIG``: any trainer, from its settings to its summary."""

from __future__ import annotations

import typer

from rewards.cli.configs import find_config, sections
from rewards.errors import InputError


def train(
    config: str = typer.Argument(
        ..., help="A YAML file, or the name of a shipped config (see `rewards configs list`)."
    ),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Settings that win over the file, nested ones by dots: trainer.seed=1."
    ),
) -> None:
    """Train a model that writes (GRPO, RLOO, PPO) or one that draws (DDPO and its kin).

    On several devices: `accelerate launch -m rewards train CONFIG`. A run that was stopped goes on with `resume=true`.
    """
    path = find_config(config)
    keys = sections(path)
    from rewards.runs.config import load_config

    if "policy" in keys:
        from rewards.trainers.language.settings import LanguageRunConfig

        language = load_config(LanguageRunConfig, path, overrides or [])
        # Imported here, so that a mistyped setting is answered at once.
        from rewards.runs.summary import format_summary
        from rewards.trainers.language.run import run_language

        typer.echo(format_summary(run_language(language)))
        out = language.output_dir
    elif "model" in keys:
        from rewards.trainers.diffusion.settings import DiffusionRunConfig

        diffusion = load_config(DiffusionRunConfig, path, overrides or [])
        from rewards.trainers.diffusion.run import run_diffusion
        from rewards.trainers.diffusion.summary import summary_table

        typer.echo(summary_table(run_diffusion(diffusion)))
        out = diffusion.output_dir
    else:
        raise InputError(
            f"{path}: a config to train with has 'policy' (models that write) or 'model' (models that draw); "
            "configs of best-of-n go to `rewards best-of-n --config`"
        )
    typer.echo(f"written to {out}; curves: rewards curves {out}")
