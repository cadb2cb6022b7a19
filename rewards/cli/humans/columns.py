"""`rewards humans agreement`: columns of a table of your own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import typer

from rewards.cli.humans.shared import SHORT, agreement_table


def agreement(
    file: Path = typer.Argument(..., help="JSONL or CSV with one item a row."),
    metric: list[str] = typer.Option(..., help="Column of a metric; repeat to compare several."),
    human: str = typer.Option("human", help="Column of the human score."),
    group: str | None = typer.Option(None, help="Column whose equal values are resampled together, e.g. the prompt."),
    ties: str = typer.Option("half", help="What a tie counts in pairwise accuracy: half, wrong, drop or equal."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples."),
    seed: int = typer.Option(0, help="Seed of the bootstrap."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Agreement of columns of scores with a column of human scores; the first metric is tested against the others."""
    from functools import partial

    from rewards.errors import InputError
    from rewards.humans.columns import read_columns
    from rewards.humans.statistics.agreement import agreement as compare
    from rewards.humans.statistics.agreement import difference
    from rewards.humans.statistics.named import TIE_RULES, TieRule
    from rewards.humans.tables import with_interval
    from rewards.runs.files import finite_or_none

    if ties not in TIE_RULES:
        raise InputError(f"--ties {ties}: one of {', '.join(TIE_RULES)} is needed")
    columns, labels = read_columns(file, numbers=[human, *metric], labels=[group] if group else [])
    groups = labels[group] if group else None
    how = partial(compare, ties=cast(TieRule, ties), resamples=resamples, seed=seed)
    test = partial(difference, ties=cast(TieRule, ties), resamples=resamples, seed=seed)
    results = {name: how(columns[name], columns[human], groups) for name in metric}
    tests = [
        (metric[0], other, test(columns[metric[0]], columns[other], columns[human], groups)) for other in metric[1:]
    ]
    if as_json:
        from dataclasses import asdict

        differences = [finite_or_none({"a": a, "b": b, **asdict(found)}) for a, b, found in tests]
        metrics = {name: result.as_dict() for name, result in results.items()}
        typer.echo(json.dumps({"metrics": metrics, "differences": differences}, indent=1))
        return
    first = next(iter(results.values()))
    typer.echo(f"{first.items} items, {first.clusters} clusters; x 100, {100 * first.confidence:.0f}% intervals.\n")
    typer.echo(agreement_table(results))
    for name, result in results.items():
        if result.abstained:
            typer.echo(f"{name} abstained on {result.abstained} items, which are left out")
    for a, b, found in tests:
        typer.echo(
            f"{SHORT[found.statistic]} of {a} minus {b}: {with_interval(found.estimate)}, p = {found.p_value:.4f}"
        )
