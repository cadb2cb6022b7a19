"""`rewards humans`: agreement of metrics and rewards with people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rewards.humans.agreement import Agreement
    from rewards.humans.metrics.battery import Battery

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Does a reward agree with people? Meta-evaluation against human judgments.",
)

_SHORT = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "kendall_tau_a": "tau-a",
    "kendall_tau_b": "tau-b",
    "kendall_tau_c": "tau-c",
    "pairwise_accuracy": "pairs",
    "pairwise_accuracy_within": "pairs within group",
}


@app.command()
def tifa(
    file: Path = typer.Argument(..., help="TIFA's human_annotations_with_scores.json."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples, clustered by prompt."),
    seed: int = typer.Option(0, help="Seed of the bootstrap."),
) -> None:
    """TIFA's human study: the paper's Table 2 with every statistic named, by generator and by source."""
    from rewards.humans.tables import percent, text_table, with_interval
    from rewards.humans.tifa_study import METRICS, PAPER_NOTE, read_tifa_study, study_report

    items = read_tifa_study(file)
    report = study_report(items, resamples=resamples, seed=seed)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=1))
        return
    typer.echo(f"{len(items)} pictures, {report.prompts} prompts; x 100, 95% intervals clustered by prompt.")
    typer.echo(f"{PAPER_NOTE}\n")
    typer.echo(_agreement_table({METRICS.get(name, name): result for name, result in report.overall.items()}))
    for title, tables in (("generator", report.by_generator), ("source", report.by_source)):
        header = [f"Pearson / tau-b by {title}", *tables]
        rows = [
            [METRICS.get(name, name)]
            + [
                f"{percent(t[name]['pearson'].value, 1)} / {percent(t[name]['kendall_tau_b'].value, 1)}"
                for t in tables.values()
            ]
            for name in report.overall
        ]
        typer.echo("\n" + text_table(header, rows))
    if report.ceiling:
        from rewards.humans.agreement import Estimate

        between = report.ceiling["between_annotators"]["statistics"]
        cells = ", ".join(
            f"{_SHORT[name]} {with_interval(Estimate(**between[name]))}"
            for name in ("pearson", "spearman", "kendall_tau_b", "kendall_tau_c")
        )
        typer.echo(f"\nOne annotator against the other: {cells}")
        typer.echo(
            f"Reliability of the mean rating {report.ceiling['reliability_mean']:.3f}: "
            f"a perfect metric reaches Pearson {percent(report.ceiling['ceiling_pearson'], 1)}."
        )


@app.command()
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
    from rewards.humans.agreement import agreement as compare
    from rewards.humans.agreement import difference, finite_or_none
    from rewards.humans.columns import read_columns
    from rewards.humans.tables import with_interval

    columns = read_columns(file, numbers=[human, *metric], labels=[group] if group else [])
    groups = columns[group] if group else None
    settings: dict[str, Any] = {"ties": ties, "resamples": resamples, "seed": seed}
    results = {name: compare(columns[name], columns[human], groups, **settings) for name in metric}
    tests = [
        (metric[0], other, difference(columns[metric[0]], columns[other], columns[human], groups, **settings))
        for other in metric[1:]
    ]
    if as_json:
        from dataclasses import asdict

        differences = [finite_or_none({"a": a, "b": b, **asdict(test)}) for a, b, test in tests]
        metrics = {name: result.as_dict() for name, result in results.items()}
        typer.echo(json.dumps({"metrics": metrics, "differences": differences}, indent=1))
        return
    first = next(iter(results.values()))
    typer.echo(f"{first.items} items, {first.clusters} clusters; x 100, {100 * first.confidence:.0f}% intervals.\n")
    typer.echo(_agreement_table(results))
    for name, result in results.items():
        if result.abstained:
            typer.echo(f"{name} abstained on {result.abstained} items, which are left out")
    for a, b, test in tests:
        typer.echo(f"{_SHORT[test.statistic]} of {a} minus {b}: {with_interval(test.estimate)}, p = {test.p_value:.4f}")


@app.command()
def shapes(
    out: Path = typer.Option(Path("runs/humans_shapes"), help="Folder for tables, plots and pictures."),
    judge: str = typer.Option("shapes-rater", help="Judge for HarmonicEval: a name or path for load_judge."),
    instances: int = typer.Option(100, help="Instances of each of the four tasks."),
    seed: int = typer.Option(0, help="Seed of instances and bootstrap."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """A study without humans: in the shapes world the truth rates and chooses. HarmonicEval's tables 2, 3, 5 and 6."""
    from rewards.humans.shapes_study.study import run_study
    from rewards.judges.base import load_judge

    study = run_study(load_judge(judge), out, per_task=instances, seed=seed)
    typer.echo(json.dumps(study.as_dict(), indent=1) if as_json else study.text())
    typer.echo(f"tables, plots and pictures are in {out}", err=True)


@app.command()
def probe(
    judge: str = typer.Option("shapes-rater", help="Judge to probe: a name or path for load_judge."),
    file: Path | None = typer.Option(None, "--mmhe", help="Human ratings (see `mmhe`); default: the shapes study."),
    task: str = typer.Option("captioning", help="Task whose texts are used."),
    instances: int = typer.Option(100, help="Instances of the shapes study, three texts each."),
    paraphrases: Path | None = typer.Option(None, help="JSON: name -> criterion -> template, wordings of your own."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Probe a judge: does its deviation predict its error, do length, order of the scale or wording move it?"""
    from rewards.harmonic.reward import HarmonicEval
    from rewards.humans.probe import probe_judge
    from rewards.humans.texts import human_ratings, instances_for_probe, text_items
    from rewards.judges.base import load_judge

    chosen = instances_for_probe(file, task, instances)
    reward = HarmonicEval(load_judge(judge), task=task)
    own = json.loads(paraphrases.read_text(encoding="utf-8")) if paraphrases is not None else None
    groups = [instance.id for instance in chosen for _ in instance.candidates]
    result = probe_judge(reward, text_items(chosen), human_ratings(chosen), paraphrases=own, groups=groups)
    typer.echo(json.dumps(result.as_dict(), indent=1) if as_json else result.text())


@app.command()
def explain(
    file: Path = typer.Argument(..., help="JSON lines with image, text, and question or box where the task has one."),
    judge: str = typer.Option(..., help="Judge that rates and explains: a name or path for load_judge."),
    task: str = typer.Option("captioning", help="captioning, vqa, document or referring."),
    out: Path = typer.Option(Path("runs/explanations"), help="Folder for explanations.jsonl and explanations.html."),
) -> None:
    """Rate texts, then ask "Why?" for every criterion; the reasons stand beside the scores."""
    from rewards.harmonic.reward import HarmonicEval
    from rewards.humans.explanations import explain_texts, read_items, write_explanations
    from rewards.judges.base import load_judge

    items = read_items(file)
    records = explain_texts(HarmonicEval(load_judge(judge), task=task), items)
    write_explanations(out, items, records)
    typer.echo(f"{len(records)} texts explained in {out}")


def _battery(judge: str | None, clip: str | None, bert: str | None) -> Battery:
    from rewards.humans.metrics.battery import Battery
    from rewards.humans.metrics.clip_score import CLIPScore
    from rewards.judges.base import load_judge

    loaded = load_judge(judge) if judge is not None else None
    return Battery(loaded, CLIPScore(clip) if clip is not None else None, bert)


def _agreement_table(results: dict[str, Agreement]) -> str:
    from rewards.humans.tables import text_table, with_interval

    names = [name for name in _SHORT if any(result[name].value == result[name].value for result in results.values())]
    rows = [[label, *(with_interval(result[name], 2) for name in names)] for label, result in results.items()]
    return text_table(["metric", *(_SHORT[name] for name in names)], rows)


@app.command()
def mmhe(
    file: Path = typer.Argument(..., help="MMHE as documented JSON lines, see rewards/humans/mmhe.py."),
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
    from rewards.humans import best_of_three as tables
    from rewards.humans.candidate_scores import read_scores
    from rewards.humans.mmhe import paper_deviations, validate_mmhe

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
        battery = _battery(judge, clip, bert)
        named |= battery.score_instances([replace(one, image=str(file.parent / one.image)) for one in instances])
        notes += battery.notes
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


@app.command()
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

        battery = _battery(judge, clip, bert)
        texts = [TextItem(str(images / i["image"]), i["caption"], references=tuple(i["references"])) for i in items]
        for name, found in battery.score("captioning", texts).items():
            results[name] = compare(benchmark, reading.records, found.overall, resamples=resamples)
        for note in battery.notes:
            typer.echo(f"note: {note}", err=True)
    for path in scores:
        column = read_columns(path, numbers=["score"])["score"]
        results[path.stem] = compare(benchmark, reading.records, column, resamples=resamples)
    if as_json:
        typer.echo(json.dumps({"benchmark": benchmark, "notes": reading.notes, "results": results}, indent=1))
        return
    for name, result in results.items():
        typer.echo(f"{name}: " + ", ".join(f"{key} {value}" for key, value in result.items()))
