"""Studies of texts: MMHE and the caption benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from rewards.cli.humans.shared import battery


def mmhe(
    file: Path = typer.Argument(..., help="MMHE as documented JSON lines, see rewards/humans/mmhe/records.py."),
    scores: list[str] = typer.Option([], help="NAME=FILE.jsonl with id, candidate, overall and criteria; repeatable."),
    judge: str | None = typer.Option(None, help="Judge for HarmonicEval and its ablations: a name or path."),
    clip: str | None = typer.Option(None, help="CLIP model for CLIPScore."),
    bert: str | None = typer.Option(None, help="Model for BERTScore."),
    unit: str = typer.Option(
        "pairs", help="pairs: the chosen one against each other; best: the best against the best."
    ),
    tau: str = typer.Option("b", help="Variant of Kendall's tau by criterion: a, b or c."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Check a file of MMHE and compare metrics with it: the tables 2 and 3 of the paper."""
    from dataclasses import replace

    from rewards.errors import InputError
    from rewards.humans.mmhe import best_of_three as tables
    from rewards.humans.mmhe.records import paper_deviations, validate_mmhe
    from rewards.humans.mmhe.scores import read_scores

    if unit not in ("pairs", "best") or tau not in ("a", "b", "c"):
        raise InputError(f"unit {unit!r} and tau {tau!r}: pairs or best, and a, b or c are needed")
    instances, deviations = validate_mmhe(file)
    for deviation in deviations:
        typer.echo(f"{file}, {deviation}", err=True)
    if deviations or not instances:
        raise InputError(f"{file} has {len(deviations)} deviations and {len(instances)} sound instances")
    named = {}
    for entry in scores:
        name, equals, path = entry.partition("=")
        if not equals:
            raise InputError(f"--scores {entry!r}: NAME=FILE is needed")
        named[name] = read_scores(path, instances)
    notes = paper_deviations(instances)
    if judge is not None or clip is not None or bert is not None:
        from rewards.humans.mmhe.scoring import score_instances

        runs = battery(judge, clip, bert)
        named |= score_instances(runs, [replace(one, image=str(file.parent / one.image)) for one in instances])
        notes += runs.notes
    report = tables.report(instances, named, unit=unit, resamples=resamples)  # type: ignore[arg-type]
    if as_json:
        typer.echo(json.dumps({"file": str(file), "notes": notes, **report.as_dict()}, indent=1))
        return
    without = tables.without_majority(instances)
    typer.echo(f"{len(instances)} instances, {without} of them without a majority for the best candidate.")
    for note in notes:
        typer.echo(f"note: {note}")
    if named:
        typer.echo(f"\n{report.text(f'kendall_tau_{tau}')}")


def captions(
    benchmark: str = typer.Argument(..., help="flickr8k-ex, flickr8k-cf, composite, pascal50s, foil-1 or foil-4."),
    files: list[Path] = typer.Argument(..., help="The published files, annotations first, then captions or votes."),
    scores: list[Path] = typer.Option(
        [], help="JSONL with one `score` a line, in the order of --list; a, then b, of pairs."
    ),
    judge: str | None = typer.Option(None, help="Judge for HarmonicEval and its ablations: a name or path."),
    clip: str | None = typer.Option(None, help="CLIP model for CLIPScore."),
    bert: str | None = typer.Option(None, help="Model for BERTScore."),
    images: Path = typer.Option(Path("."), help="Folder of the pictures, for --judge and --clip."),
    listing: Path | None = typer.Option(None, "--list", help="Write what is to be scored, in order, to this JSONL."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples, clustered by picture."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Caption benchmarks: list the captions to be scored, or compare scores with the human judgments."""
    from rewards.humans.captions.benchmarks import compare, items_to_score, read_benchmark
    from rewards.humans.columns import read_columns

    reading = read_benchmark(benchmark, files)
    for note in reading.notes:
        typer.echo(f"note: {note}", err=True)
    items = items_to_score(reading.records)
    if listing is not None:
        listing.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
        typer.echo(f"{len(items)} captions to score written to {listing}", err=True)
    results = {}
    if judge is not None or clip is not None or bert is not None:
        from rewards.humans.metrics.base import TextItem

        runs = battery(judge, clip, bert)
        texts = [TextItem(str(images / i["image"]), i["caption"], references=tuple(i["references"])) for i in items]
        for name, found in runs.score("captioning", texts).items():
            results[name] = compare(benchmark, reading.records, found.overall, resamples=resamples)
        for note in runs.notes:
            typer.echo(f"note: {note}", err=True)
    for path in scores:
        column = read_columns(path, numbers=["score"])["score"]
        results[path.stem] = compare(benchmark, reading.records, column, resamples=resamples)
    if as_json:
        typer.echo(json.dumps({"benchmark": benchmark, "notes": reading.notes, "results": results}, indent=1))
        return
    for name, result in results.items():
        typer.echo(f"{name}: " + ", ".join(f"{key} {value}" for key, value in result.items()))
