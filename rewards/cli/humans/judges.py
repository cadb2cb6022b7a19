"""Studies of a judge: the shapes study, probes, explanations."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def shapes(
    out: Path = typer.Option(Path("runs/humans_shapes"), help="Folder for tables, plots and pictures."),
    judge: str = typer.Option("shapes-rater", help="Judge for HarmonicEval: a name or path for load_judge."),
    instances: int = typer.Option(100, help="Instances of each of the four tasks."),
    seed: int = typer.Option(0, help="Seed of instances and bootstrap."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """A study without humans: in the shapes world the truth rates and chooses. HarmonicEval's tables 2, 3, 5 and 6."""
    from rewards.humans.shapes_study.study import run_study
    from rewards.judges.loading import load_judge

    study = run_study(load_judge(judge), out, per_task=instances, seed=seed)
    typer.echo(json.dumps(study.as_dict(), indent=1) if as_json else study.text())
    typer.echo(f"tables, plots and pictures are in {out}", err=True)


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
    from rewards.humans.mmhe.texts import human_ratings, instances_for_probe, text_items
    from rewards.humans.probe import probe_judge
    from rewards.judges.loading import load_judge

    chosen = instances_for_probe(file, task, instances)
    reward = HarmonicEval(load_judge(judge), task=task)
    own = json.loads(paraphrases.read_text(encoding="utf-8")) if paraphrases is not None else None
    groups = [instance.id for instance in chosen for _ in instance.candidates]
    result = probe_judge(reward, text_items(chosen), human_ratings(chosen), paraphrases=own, groups=groups)
    typer.echo(json.dumps(result.as_dict(), indent=1) if as_json else result.text())


def explain(
    file: Path = typer.Argument(..., help="JSON lines with image, text, and question or box where the task has one."),
    judge: str = typer.Option(..., help="Judge that rates and explains: a name or path for load_judge."),
    task: str = typer.Option("captioning", help="captioning, vqa, document or referring."),
    out: Path = typer.Option(Path("runs/explanations"), help="Folder for explanations.jsonl and explanations.html."),
) -> None:
    """Rate texts, then ask "Why?" for every criterion; the reasons stand beside the scores."""
    from rewards.harmonic.reward import HarmonicEval
    from rewards.humans.explanations import explain_texts, read_items, write_explanations
    from rewards.judges.loading import load_judge

    items = read_items(file)
    records = explain_texts(HarmonicEval(load_judge(judge), task=task, explain=True), items)
    write_explanations(out, items, records)
    typer.echo(f"{len(records)} texts explained in {out}")
