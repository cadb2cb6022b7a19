"""`rewards humans pairs`: a judge as pairwise preference."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def pairs(
    file: Path = typer.Argument(..., help="VL-RewardBench's JSON, or JSONL of the same objects."),
    images: Path = typer.Option(Path("."), help="Folder of the pictures; missing ones are counted and left out."),
    judge: str | None = typer.Option(None, help="Judge: a name or path for load_judge."),
    method: list[str] = typer.Option(
        ["pairwise", "harmonic"], help="With --judge: pairwise (shown both, in each order), harmonic (scored apart)."
    ),
    task: str = typer.Option("vqa", help="HarmonicEval's task; vqa judges a response to a request."),
    reward: list[Path] = typer.Option([], help="YAML with a `reward` block, as in the configs: scored apart."),
    prompt: Path | None = typer.Option(None, help="Pairwise prompt of your own, with {query}, {first} and {second}."),
    resamples: int = typer.Option(2000, help="Bootstrap resamples, clustered by picture."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """A judge as pairwise preference: accuracy by group and macro, position consistency, ties (VL-RewardBench)."""
    from functools import partial

    from rewards.build import build_reward
    from rewards.errors import InputError
    from rewards.humans.metrics.harmonic import harmonic_reward
    from rewards.humans.pairs.preferences import by_prompt, by_reward
    from rewards.humans.pairs.records import describe_pairs, read_pairs
    from rewards.humans.pairs.running import decide, missing_pictures
    from rewards.humans.pairs.settings import PairReward
    from rewards.humans.pairs.study import PairStudy
    from rewards.judges.loading import load_judge
    from rewards.runs.config import load_config

    if unknown := set(method) - {"pairwise", "harmonic"}:
        raise InputError(f"--method {', '.join(sorted(unknown))}: pairwise or harmonic is needed")
    study = PairStudy(read_pairs(file, images), resamples)
    typer.echo(describe_pairs(study.pairs), err=True)
    methods = {}
    if judge is not None:
        loaded = load_judge(judge)
        if "pairwise" in method:
            template = prompt.read_text(encoding="utf-8") if prompt is not None else None
            methods["pairwise prompt"] = partial(by_prompt, loaded, template=template)
        if "harmonic" in method:
            methods["HarmonicEval"] = partial(by_reward, harmonic_reward(loaded, task))
    for path in reward:
        methods[path.stem] = partial(by_reward, build_reward(load_config(PairReward, path).reward))
    if methods:
        missing = missing_pictures(study.pairs)
        if missing:
            first = study.pairs[missing[0]].image
            study.notes.append(f"{len(missing)} of {len(study.pairs)} pictures are missing, the first is {first}")
        for name, prefer in methods.items():
            study.add(name, decide(prefer, study.pairs, missing))
    if as_json:
        typer.echo(json.dumps(study.as_dict(), indent=1))
        return
    for note in study.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(study.text())
