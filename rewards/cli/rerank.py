"""`rewards rerank`: rank the candidates in a file, resumable, locally or on a Ray cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rewards.cli.engines import ACTORS, ADDRESS, ENGINE, GPUS
from rewards.jobs.report import REPORTED

if TYPE_CHECKING:
    from rewards.rerank.outputs import Summary


def rerank(
    source: Path = typer.Argument(..., help="JSONL, CSV, Parquet, or a folder of Dataset.save_to_disk."),
    overrides: list[str] = typer.Argument(None, help="key=value settings, e.g. reward.judge=blip-large group_by=id."),
    out: Path = typer.Option(..., help="Folder of the job; an unfinished job in it goes on."),
    judge: str | None = typer.Option(None, help="Judge of the reward: checkpoint, preset or server; as reward.judge=."),
    config: Path | None = typer.Option(None, help="YAML with settings: a `reward:` block as everywhere, columns."),
    top: int | None = typer.Option(None, help="Candidates kept in each ranked row."),
    pairs: bool = typer.Option(False, "--pairs", help="Write best against worst for TRL's DPOTrainer."),
    min_margin: float = typer.Option(0.0, help="Least difference of scores in a pair."),
    sft: bool = typer.Option(False, "--sft", help="Write the best ones for TRL's SFTTrainer."),
    gain: bool = typer.Option(False, "--gain", help="Write the curves of best-of-k, with the audit beside."),
    instruction: str = typer.Option("Describe the image.", help="User's message for rows without prompt or question."),
    engine: str = ENGINE,
    address: str | None = ADDRESS,
    actors: int | None = ACTORS,
    gpus: float | None = GPUS,
) -> None:
    """Rank candidates by a reward: best first, ties by position, abstentions last and marked.

    Exit status 3 when rows were reported in problems.jsonl; all other rows are ranked all the same.
    """
    from rewards.jobs.engine import Engine
    from rewards.rerank.outputs import OutputSettings, write_outputs
    from rewards.rerank.settings import RerankSettings
    from rewards.rerank.task import start_rerank
    from rewards.runs.config import load_config, parse_overrides

    chosen = Engine(engine, address, actors, gpus)
    outputs = OutputSettings(top, pairs, min_margin, sft, gain, instruction)
    given = {"reward": {}} | parse_overrides(overrides) | ({"reward.judge": judge} if judge is not None else {})
    with start_rerank(source, out, load_config(RerankSettings, config, given)) as job:
        chosen.finish(job, "rerank")
        _end(write_outputs(job, outputs), out)


def best_of_n(
    overrides: list[str] = typer.Argument(None, help="key=value settings, e.g. generate.n=16 rerank.reward.gamma=0.5."),
    config: Path | None = typer.Option(None, help="YAML with settings, e.g. configs/best_of_n_shapes.yaml."),
    model: str | None = typer.Option(None, help="Checkpoint that samples the candidates."),
    prompts: str | None = typer.Option(None, help="File of prompts, or shapes for the packaged shapes world."),
    judge: str | None = typer.Option(None, help="Judge that chooses; as rerank.reward.judge=."),
    out: str | None = typer.Option(None, help="Folder of the run; an unfinished run in it goes on."),
    engine: str = ENGINE,
    address: str | None = ADDRESS,
    actors: int | None = ACTORS,
    gpus: float | None = GPUS,
) -> None:
    """Sample n candidates from a vision-language model or a diffusers pipeline, then rank them.

    Candidates are sampled by this process; the engine ranks them. Exit status as of `rewards rerank`.
    """
    from rewards.jobs.engine import Engine
    from rewards.rerank.generate_settings import SHAPES
    from rewards.rerank.run import BestOfNSettings, run_best_of_n
    from rewards.runs.config import load_config, parse_overrides

    chosen = Engine(engine, address, actors, gpus)
    given = {"generate.model": model, "generate.prompts": prompts, "rerank.reward.judge": judge, "out": out}
    words = parse_overrides(overrides) | {key: value for key, value in given.items() if value is not None}
    if config is None and words.get("generate.prompts") == SHAPES:
        pictures = words.get("generate.kind") == "pictures"
        toy = {"reward.kind": "tifa", "reward.judge": "shapes-vqa"} if pictures else {"reward.judge": "shapes-rater"}
        words = {f"rerank.{key}": value for key, value in toy.items()} | words
    settings = load_config(BestOfNSettings, config, {"generate": {}, "rerank": {"reward": {}}, **words})
    _end(run_best_of_n(settings, chosen), Path(settings.out) / "ranking")


def _end(summary: Summary, folder: Path) -> None:
    """Print the counts, and exit with 3 where rows were reported."""
    typer.echo(json.dumps(vars(summary)))
    judged = summary.candidates - summary.abstained
    often = f"; most often: {summary.most_frequent_reason}" if summary.most_frequent_reason else ""
    typer.echo(
        f"{judged} candidates scored, {summary.abstained} abstained, {summary.failed} rows failed{often}", err=True
    )
    typer.echo(f"{summary.ranked} items, best candidate first, in {folder / 'ranked.jsonl'}", err=True)
    if summary.problems:
        from rewards.runs.files import numbered_lines

        problems = folder / "problems.jsonl"
        _, first = next(numbered_lines(problems))
        told = f"{first['file']}, line {first['line']}: {first['reason']}"
        typer.echo(f"{summary.problems} problems are reported in {problems}; the first: {told}", err=True)
        raise typer.Exit(REPORTED)
