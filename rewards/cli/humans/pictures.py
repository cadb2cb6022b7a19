"""Studies of pictures: TIFA's, DSG's, GenEval's."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from rewards.cli.humans.shared import SHORT, agreement_table


def tifa(
    file: Path = typer.Argument(..., help="TIFA's human_annotations_with_scores.json."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples, clustered by prompt."),
    seed: int = typer.Option(0, help="Seed of the bootstrap."),
) -> None:
    """TIFA's human study: the paper's Table 2 with every statistic named, by generator and by source."""
    from rewards.humans.tables import percent, with_interval
    from rewards.humans.tifa_study import METRICS, PAPER_NOTE, read_tifa_study, study_report
    from rewards.tables import text_table

    items = read_tifa_study(file)
    report = study_report(items, resamples=resamples, seed=seed)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=1))
        return
    typer.echo(f"{len(items)} pictures, {report.prompts} prompts; x 100, 95% intervals clustered by prompt.")
    typer.echo(f"{PAPER_NOTE}\n")
    typer.echo(agreement_table({METRICS.get(name, name): result for name, result in report.overall.items()}))
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
    if report.ceiling is not None:
        between = report.ceiling.between_annotators
        cells = ", ".join(
            f"{SHORT[name]} {with_interval(between[name])}"
            for name in ("pearson", "spearman", "kendall_tau_b", "kendall_tau_c")
        )
        typer.echo(f"\nOne annotator against the other: {cells}")
        typer.echo(
            f"Reliability of the mean rating {report.ceiling.reliability_mean:.3f}: "
            f"a perfect metric reaches Pearson {percent(report.ceiling.ceiling_pearson, 1)}."
        )


def dsg(
    answers: Path = typer.Argument(..., help="CSV: t2i_model, item_id, question_id, dependency_id, answer."),
    ratings: Path = typer.Option(..., help="CSV of Likert ratings: t2i_model, item_id, answer."),
    dependencies: bool = typer.Option(True, help="Whether a question counts 0 when a parent is not answered yes."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples, clustered by prompt."),
    seed: int = typer.Option(0, help="Seed of the bootstrap."),
) -> None:
    """DSG's human study: VQA answers against Likert ratings, with and without dependencies, every variant named."""
    from rewards.humans.dsg.answers import read_answers, read_ratings
    from rewards.humans.dsg.study import dsg_study

    study = dsg_study(
        read_answers(answers), read_ratings(ratings), dependencies=dependencies, resamples=resamples, seed=seed
    )
    typer.echo(json.dumps(study.as_dict(), indent=1) if as_json else study.text())


def geneval(
    files: list[Path] = typer.Argument(..., help="GenEval's annotations_<generator>.csv, one or several."),
    metadata: Path = typer.Option(..., help="GenEval's evaluation_metadata.jsonl."),
    answers: list[Path] = typer.Option(
        [], help="A judge's answers: generator, index, question, answer (JSONL or CSV)."
    ),
    judge: str | None = typer.Option(None, help="Judge that chooses: a name or path for load_judge."),
    images: Path = typer.Option(Path("."), help="Folder of GenEval's pictures (clip/00220/samples/...), for --judge."),
    listing: Path | None = typer.Option(None, "--list", help="Write the questions, to be answered, to this JSONL."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples, clustered by prompt."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """GenEval's human answers by skill: people against people, and judges against people (leave one out)."""
    from rewards.humans.geneval.annotations import read_annotations, read_metadata
    from rewards.humans.geneval.questions import ask, listed, prompt_of, questions_of, read_judge_answers
    from rewards.humans.geneval.study import GenevalStudy
    from rewards.runs.files import write_lines

    prompts = read_metadata(metadata)
    readings = [read_annotations(file) for file in files]
    pictures = [picture for found, _ in readings for picture in found]
    questions = [question for picture in pictures for question in questions_of(picture, prompt_of(picture, prompts))]
    if listing is not None:
        write_lines(listing, [listed(question) for question in questions])
        typer.echo(f"{len(questions)} questions written to {listing}", err=True)
    study = GenevalStudy(questions, resamples, notes=[note for _, notes in readings for note in notes])
    for path in answers:
        study.add(path.stem, read_judge_answers(path, questions))
    if judge is not None:
        from rewards.judges.loading import load_judge

        study.add(judge, ask(load_judge(judge), questions, images))
    typer.echo(json.dumps(study.as_dict(), indent=1) if as_json else study.text())
