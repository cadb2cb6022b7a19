"""`rewards score harmonic|tifa|reward`: scores of the rows of a file, with every part."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rewards.cli.engines import ACTORS, ADDRESS, ENGINE, GPUS

if TYPE_CHECKING:
    from rewards.jobs.score import ScoreSettings

app = typer.Typer(rich_markup_mode=None, help="Score the rows of a JSONL, CSV or Parquet file.", no_args_is_help=True)

_FILE = typer.Argument(
    ..., help="JSONL, CSV, Parquet, or a folder of Dataset.save_to_disk; pictures are paths relative to it, or bytes."
)
_OUT = typer.Option(..., "--out", help="JSON lines to write; a run that was stopped goes on where it stopped.")
_CONFIG = typer.Option(None, help="YAML with settings; a `reward:` block is the same everywhere.")
_JUDGE = typer.Option(None, help="Judge: checkpoint, directory, preset, or http://host:port of `rewards serve`.")
_IMAGE = typer.Option(None, help="Column of the picture or pictures; default: image.")
_DEVICE = typer.Option(None, help="Device; default: the first GPU, else the CPU.")
_DTYPE = typer.Option(None, help="Such as bfloat16.")
_CACHE = typer.Option(None, help="File in which judgments are kept for later runs.")
_BATCH = typer.Option(None, min=1, help="Rows scored at a time; default: 16.")
_OVERRIDES = typer.Argument(None, help="key=value settings, e.g. reward.gamma=0.5 shard_size=64.")
_SHOWN = 5


@app.command()
def harmonic(
    file: Path = _FILE,
    overrides: list[str] = _OVERRIDES,
    out: Path = _OUT,
    config: Path | None = _CONFIG,
    judge: str | None = _JUDGE,
    task: str | None = typer.Option(None, help="captioning, vqa, document or referring; default: captioning."),
    gamma: float | None = typer.Option(None, help="0 to 1; 1 weighs all criteria alike; default: 0.75."),
    explain: bool | None = typer.Option(None, help="Ask the judge for the reason of each criterion's rating."),
    image_column: str | None = _IMAGE,
    text_column: str | None = typer.Option(None, help="Column of the text that is rated; default: text."),
    input_column: str | None = typer.Option(None, help="Column of the question, for tasks with one; default: input."),
    box_column: str | None = typer.Option(None, help="Column of [left, top, right, bottom]; default: box."),
    device: str | None = _DEVICE,
    dtype: str | None = _DTYPE,
    cache: Path | None = _CACHE,
    batch_size: int | None = _BATCH,
    engine: str = ENGINE,
    address: str | None = ADDRESS,
    actors: int | None = ACTORS,
    gpus: float | None = GPUS,
) -> None:
    """HarmonicEval of texts about pictures: overall, each criterion, its deviation and its weight.

    Exit status 3 when rows have no score: their records say why.
    """
    flags = {
        "reward.judge": judge, "reward.task": task, "reward.gamma": gamma, "reward.device": device,
        "reward.dtype": dtype, "reward.cache": cache, "reward.explain": explain, "image_column": image_column,
        "text_column": text_column, "input_column": input_column, "box_column": box_column, "batch_size": batch_size,
    }  # fmt: skip
    _score(file, out, _settings(config, overrides, "harmonic", flags), engine, address, actors, gpus)


@app.command()
def tifa(
    file: Path = _FILE,
    overrides: list[str] = _OVERRIDES,
    out: Path = _OUT,
    config: Path | None = _CONFIG,
    judge: str | None = _JUDGE,
    questions: Path | None = typer.Option(None, help="Question store (SQLite) with the questions of every prompt."),
    answer: str | None = typer.Option(None, help="free_form, or choices (by likelihood)."),
    soft: bool | None = typer.Option(None, help="Score by the probability of the right choice; needs choices."),
    matching: str | None = typer.Option(None, help="code, paper, or official as the released scorer; default: code."),
    sentence_model: str | None = typer.Option(None, help="SBERT checkpoint for the matching; 'none' matches exactly."),
    image_column: str | None = _IMAGE,
    prompt_column: str | None = typer.Option(None, help="Column of the prompt, or of its id; default: prompt."),
    device: str | None = _DEVICE,
    dtype: str | None = _DTYPE,
    cache: Path | None = _CACHE,
    batch_size: int | None = _BATCH,
    engine: str = ENGINE,
    address: str | None = ADDRESS,
    actors: int | None = ACTORS,
    gpus: float | None = GPUS,
) -> None:
    """TIFA of pictures for prompts: the share of questions answered right, and every answer.

    Exit status 3 when rows have no score: their records say why.
    """
    flags = {
        "reward.judge": judge, "reward.questions": questions, "reward.answer": answer, "reward.soft": soft,
        "reward.matching": matching, "reward.sentence_model": sentence_model, "reward.device": device,
        "reward.dtype": dtype, "reward.cache": cache,
        "image_column": image_column, "text_column": prompt_column, "batch_size": batch_size,
    }  # fmt: skip
    _score(file, out, _settings(config, overrides, "tifa", flags), engine, address, actors, gpus)


@app.command()
def reward(
    file: Path = _FILE,
    overrides: list[str] = _OVERRIDES,
    out: Path = _OUT,
    config: Path | None = _CONFIG,
    engine: str = ENGINE,
    address: str | None = ADDRESS,
    actors: int | None = ACTORS,
    gpus: float | None = GPUS,
) -> None:
    """Any reward by its settings: a function of one's own (reward.kind=function reward.function=module:name), several
    combined, or a block from a training's YAML.

    Exit status 3 when rows have no score: their records say why.
    """
    _score(file, out, _settings(config, overrides, None, {}), engine, address, actors, gpus)


def _settings(
    config: Path | None, overrides: list[str] | None, kind: str | None, flags: Mapping[str, object]
) -> ScoreSettings:
    """Settings from a file, with words and flags that win over it."""
    from rewards.jobs.score import ScoreSettings
    from rewards.runs.config import load_config, parse_overrides

    given = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    words = parse_overrides(overrides) | {name: value for name, value in given.items() if value is not None}
    if words.get("reward.sentence_model") == "none":
        words["reward.sentence_model"] = None
    return load_config(ScoreSettings, config, {"reward.kind": kind, **words} if kind is not None else words)


def _score(
    file: Path, out: Path, settings: ScoreSettings, engine: str, address: str | None, actors: int | None,
    gpus: float | None,
) -> None:  # fmt: skip
    from rewards.jobs.engine import Engine
    from rewards.jobs.file_output import make_file, reported_lines
    from rewards.jobs.score import ScoreTask

    report = make_file(file, out, ScoreTask(settings), Engine(engine, address, actors, gpus))
    for line, reason in islice(reported_lines(out), _SHOWN):
        typer.echo(f"{file}, line {line}: {reason}", err=True)
    if report.unscored > _SHOWN:
        typer.echo(f"... and {report.unscored - _SHOWN} more; every record in {out} says why", err=True)
    typer.echo(f"{out}: {report.sentence()}")
    if report.status:
        raise typer.Exit(report.status)
