"""`rewards rerank`: rank the candidates in a file, resumable, locally or on a Ray cluster."""

from __future__ import annotations

import json
from pathlib import Path

import typer

PROBLEMS = 3
"""Exit status of a job that finished and reported rows."""

_ENGINE = typer.Option("local", help="local (all devices of this machine) or ray.")
_ADDRESS = typer.Option(None, help="Address of a Ray cluster, e.g. auto or ray://host:10001.")
_ACTORS = typer.Option(None, help="Judges on Ray; default: one a GPU, or without GPUs one a CPU.")
_GPUS = typer.Option(None, help="GPUs of each judge on Ray; default: 1 where there are any.")


def rerank(
    source: Path = typer.Argument(..., help="JSON lines, Parquet, or a folder written by Dataset.save_to_disk."),
    overrides: list[str] = typer.Argument(None, help="key=value settings, e.g. reward.judge=blip-large group_by=id."),
    out: Path = typer.Option(..., help="Folder of the job; an unfinished job in it goes on."),
    config: Path | None = typer.Option(None, help="YAML with settings, e.g. configs/best_of_n_shapes.yaml."),
    top: int | None = typer.Option(None, help="Candidates kept in each ranked row."),
    pairs: bool = typer.Option(False, "--pairs", help="Write best against worst for TRL's DPOTrainer."),
    min_margin: float = typer.Option(0.0, help="Least difference of scores in a pair."),
    sft: bool = typer.Option(False, "--sft", help="Write the best ones for TRL's SFTTrainer."),
    gain: bool = typer.Option(False, "--gain", help="Write the curves of best-of-k, with the audit beside."),
    instruction: str = typer.Option("Describe the image.", help="User's message for rows without prompt or question."),
    engine: str = _ENGINE,
    address: str | None = _ADDRESS,
    actors: int | None = _ACTORS,
    gpus: float | None = _GPUS,
) -> None:
    """Rank candidates by a reward: best first, ties by position, abstentions last and marked.

    Exit status 3 when rows were reported in problems.jsonl; all other rows are ranked all the same.
    """
    from tqdm import tqdm

    from rewards.rerank.engine import Engine
    from rewards.rerank.job import start_job
    from rewards.rerank.outputs import OutputSettings, write_outputs
    from rewards.rerank.settings import RerankSettings
    from rewards.runs.config import load_config

    chosen = Engine(engine, address, actors, gpus)
    outputs = OutputSettings(top, pairs, min_margin, sft, gain, instruction)
    job = start_job(source, out, load_config(RerankSettings, config, overrides or None))
    total, missing = len(list(job.shards())), len(job.missing())
    with tqdm(total=total, initial=total - missing, unit="shard", desc="rerank") as bar:
        chosen.finish(job, on_shard=lambda _: bar.update())
    summary = write_outputs(job, outputs)
    typer.echo(json.dumps(vars(summary)))
    if summary.problems:
        typer.echo(f"{summary.problems} problems are reported in {out / 'problems.jsonl'}", err=True)
        raise typer.Exit(PROBLEMS)


def best_of_n(
    overrides: list[str] = typer.Argument(None, help="key=value settings, e.g. generate.n=16 rerank.reward.gamma=0.5."),
    config: Path | None = typer.Option(None, help="YAML with settings, e.g. configs/best_of_n_shapes.yaml."),
    model: str | None = typer.Option(None, help="Checkpoint that samples the candidates."),
    prompts: str | None = typer.Option(None, help="File of prompts, or shapes."),
    out: str | None = typer.Option(None, help="Folder of the run; an unfinished run in it goes on."),
    engine: str = _ENGINE,
    address: str | None = _ADDRESS,
    actors: int | None = _ACTORS,
    gpus: float | None = _GPUS,
) -> None:
    """Sample n candidates from a vision-language model or a diffusers pipeline, then rank them.

    Candidates are sampled by this process; the engine ranks them. Exit status as of `rewards rerank`.
    """
    from rewards.rerank.engine import Engine
    from rewards.rerank.run import BestOfNSettings, run_best_of_n
    from rewards.runs.config import load_config

    chosen = Engine(engine, address, actors, gpus)
    given = {"generate.model": model, "generate.prompts": prompts, "out": out}
    words = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
    settings = load_config(BestOfNSettings, config, [*(overrides or []), *words])
    summary = run_best_of_n(settings, chosen)
    typer.echo(json.dumps(vars(summary)))
    if summary.problems:
        typer.echo(f"{summary.problems} problems are reported in {settings.out}/ranking/problems.jsonl", err=True)
        raise typer.Exit(PROBLEMS)
