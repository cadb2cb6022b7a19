"""`rewards audit text`: what a policy would find out about a reward."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(rich_markup_mode=None, help="What would a policy find out about a reward?", no_args_is_help=True)


@app.callback()
def _audits() -> None:
    pass


@app.command()
def text(
    judge: str | None = typer.Argument(None, help="Judge of HarmonicEval; or name the reward by --config."),
    overrides: list[str] = typer.Argument(None, help="key=value settings of the reward, e.g. gamma=0.5."),
    data: Path = typer.Option(..., help="JSONL, CSV, Parquet or dataset folder: image, text (true), and cluster."),
    config: Path | None = typer.Option(None, help="YAML with the reward; a `reward:` block is the same everywhere."),
    limit: int | None = typer.Option(None, min=2, help="Rows taken from the start of the file."),
    per_kind: int = typer.Option(1, min=1, help="False texts of each kind a row."),
    seed: int = typer.Option(0, help="Chooses among the places where a detail can be changed."),
    out: Path | None = typer.Option(None, help="Write the findings as JSON."),
    fail_above: float | None = typer.Option(None, help="Exit 1 where a kind is accepted more often than this share."),
) -> None:
    """True texts against texts with one false detail, against empty gains, and on pictures that show nothing.

    Accepted: the variant scores at least as high as the truth.
    """
    from rewards.audit.data import read_true_texts
    from rewards.audit.findings import BOUND
    from rewards.audit.texts import audit_texts
    from rewards.build import RewardSettings, build_reward
    from rewards.runs.config import load_config, parse_overrides
    from rewards.runs.files import write_json

    words = ({} if judge is None else {"judge": judge}) | parse_overrides(overrides)
    rows = read_true_texts(data, limit)
    reward = build_reward(load_config(RewardSettings, config, words, block="reward"))
    found = audit_texts(reward, rows, per_kind=per_kind, seed=seed)
    if out is not None:
        write_json(out, found.record())
    bound = BOUND if fail_above is None else fail_above
    typer.echo(found.table().text())
    typer.echo(found.verdict(bound))
    if fail_above is not None and found.unsafe(fail_above):
        raise typer.Exit(1)
