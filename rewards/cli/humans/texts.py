"""Studies of texts: MMHE, the caption benchmarks, THumB."""

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
    files: list[Path] = typer.Argument(
        ..., help="The published files, annotations first, then captions or votes; or one JSON of the FLEUR repository."
    ),
    scores: list[Path] = typer.Option(
        [], help="JSONL with a `score` a line, in the order of --list (of pairs a, then b), or FLEUR's results (.txt)."
    ),
    references: bool = typer.Option(False, "--references", help="Run BLEU, ROUGE, METEOR and CIDEr."),
    judge: str | None = typer.Option(None, help="Judge for HarmonicEval and its ablations: a name or path."),
    clip: str | None = typer.Option(None, help="CLIP model for CLIPScore."),
    bert: str | None = typer.Option(None, help="Model for BERTScore."),
    images: Path = typer.Option(Path("."), help="Folder of the pictures, for --judge and --clip."),
    listing: Path | None = typer.Option(None, "--list", help="Write what is to be scored, in order, to this JSONL."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples, clustered by picture."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Caption benchmarks: list the captions to be scored, or compare scores with the human judgments."""
    from dataclasses import replace

    from rewards.humans.captions.benchmarks import REFERENCE_NOTE, items_to_score, read_benchmark, scores_once
    from rewards.humans.captions.study import CaptionStudy, split_files

    study = CaptionStudy(benchmark, read_benchmark(benchmark, files), resamples)
    items = items_to_score(study.reading.records)
    if listing is not None:
        rows = ({"image": i.image, "caption": i.text, "references": list(i.references)} for i in items)
        listing.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        typer.echo(f"{len(items)} captions to score written to {listing}", err=True)
    if references or judge is not None or clip is not None or bert is not None:
        runs = battery(judge, clip, bert)
        once, places = scores_once(items)
        for name, found in runs.score(
            "captioning", [replace(i, image=str(images / str(i.image))) for i in once]
        ).items():
            study.add(name, found.overall[places])
        study.notes += [REFERENCE_NOTE, *runs.notes] if references else runs.notes
    columns, fleur = split_files(scores)
    for path in columns:
        study.add_file(path)
    if fleur:
        study.add_fleur(fleur)
    if as_json:
        typer.echo(json.dumps(study.as_dict(), indent=1))
        return
    for note in [*study.reading.notes, *study.notes]:
        typer.echo(f"note: {note}", err=True)
    typer.echo(study.text())


def thumb(
    file: Path = typer.Argument(..., help="THumB's mscoco_THumB-1.0.jsonl."),
    scores: list[Path] = typer.Option([], help="JSONL or CSV with a `score` a line, in the order of the file."),
    references: Path | None = typer.Option(None, help="COCO's captions_val2014.json: run BLEU, ROUGE, METEOR, CIDEr."),
    judge: str | None = typer.Option(None, help="Judge for HarmonicEval and its ablations: a name or path."),
    clip: str | None = typer.Option(None, help="CLIP model for CLIPScore."),
    bert: str | None = typer.Option(None, help="Model for BERTScore, with --references."),
    images: Path = typer.Option(Path("."), help="Folder of the pictures, for --judge and --clip."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples, clustered by picture."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """THumB: metrics against precision, recall, fluency, inclusiveness, conciseness, total; the ranking of systems."""
    from rewards.humans.thumb.records import read_thumb
    from rewards.humans.thumb.scoring import as_items, read_thumb_scores, word_counts
    from rewards.humans.thumb.study import ThumbStudy

    captions = read_thumb(file)
    study = ThumbStudy(captions, resamples)
    columns = {"number of words": word_counts(captions)}
    if references is not None or judge is not None or clip is not None:
        runs = battery(judge, clip, bert)
        columns |= runs.score("captioning", as_items(captions, images, references))
        study.notes += runs.notes
    for name, found in columns.items():
        study.add(name, found)
    for path in scores:
        study.add(path.stem, read_thumb_scores(path))
    typer.echo(json.dumps(study.as_dict(), indent=1) if as_json else study.text())
