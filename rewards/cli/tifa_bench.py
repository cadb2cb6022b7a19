"""`rewards tifa-bench`: the TIFA benchmark in the official file formats."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rewards.cli.engines import ACTORS, ADDRESS, ENGINE, GPUS
from rewards.errors import InputError
from rewards.jobs.report import REPORTED, Report
from rewards.runs.files import Row

if TYPE_CHECKING:
    from rewards.tifa.benchmark import Plan
    from rewards.tifa.store.store import QuestionStore


def tifa_bench(
    overrides: list[str] = typer.Argument(None, help="key=value settings, e.g. reward.soft=true shard_size=16."),
    questions: Path | None = typer.Option(
        None, help="TIFA's JSON, GenEval 2's JSON lines, DSG's CSV, or a question store."
    ),
    images: Path = typer.Option(..., help="JSON: prompt id -> picture, or a list of pictures."),
    output: Path = typer.Option(..., help="The result, in the official format; numbers of our own under `summary`."),
    config: Path | None = typer.Option(None, help="YAML with settings; a `reward:` block is the same everywhere."),
    judge: str | None = typer.Option(
        None, help="A VQA or vision-language model: preset, checkpoint or server URL; default: blip-large."
    ),
    answer: str | None = typer.Option(None, help="free_form: matched to a choice; choices: the most probable one."),
    matching: str | None = typer.Option(None, help="code, paper, or official as the released scorer; default: code."),
    sentence_model: str | None = typer.Option(None, help="SBERT checkpoint for the matching; 'none' matches exactly."),
    device: str | None = typer.Option(None, help="Where the judge runs; default: the GPU, else the CPU."),
    dtype: str | None = typer.Option(None, help="Such as bfloat16."),
    batch_size: int | None = typer.Option(None, min=1, help="Pictures in one call of the judge; default: 8."),
    skip_missing: bool = typer.Option(False, help="Leave out pictures that are missing instead of stopping."),
    report: str | None = typer.Option(None, help="geneval2: Soft-TIFA by skill and by atomicity (reward.soft=mass)."),
    plot: Path | None = typer.Option(None, help="Write a picture of the scores (PNG)."),
    engine: str = ENGINE,
    address: str | None = ADDRESS,
    actors: int | None = ACTORS,
    gpus: float | None = GPUS,
) -> None:
    """Score pictures on TIFA v1.0 or any questions. A run that was stopped goes on where it was.

    Exit status 3 when pictures could not be judged; they are named.
    """
    from rewards.jobs.engine import Engine
    from rewards.jobs.tifa_bench import TifaBenchSettings, TifaBenchTask, refuse_foreign, run_benchmark
    from rewards.runs.config import load_config, parse_overrides
    from rewards.tifa.benchmark import plan_benchmark

    chosen = Engine(engine, address, actors, gpus)
    flags = {
        "reward.judge": judge, "reward.answer": answer, "reward.sentence_model": sentence_model,
        "reward.matching": matching,
        "reward.device": device, "reward.dtype": dtype, "batch_size": batch_size,
        "reward.questions": None if questions is None else str(questions),
    }  # fmt: skip
    words = parse_overrides(overrides) | {name: value for name, value in flags.items() if value is not None}
    if words.get("reward.sentence_model") == "none":
        words["reward.sentence_model"] = None
    if report not in (None, "geneval2"):
        raise InputError(f"--report is {report!r}; expected geneval2")
    if report is not None and config is None:
        words = {"reward.soft": "mass"} | words
    if config is None:
        words = {"reward.kind": "tifa", "reward.judge": "blip-large"} | words
    settings = load_config(TifaBenchSettings, config, words)
    if settings.reward.questions is None:
        raise InputError("no questions are named: give --questions, an official question file or a question store")
    given = Path(settings.reward.questions)
    refuse_foreign(output, [given, images])
    with tempfile.TemporaryDirectory() as folder:
        store = _store(given, Path(folder))
        plan = plan_benchmark(store, images)
        store.close()
        _report(plan, images, skip_missing)
        read = [given, images, *(picture.path for picture in plan.pictures)]
        if plot is not None and plot.exists() and any(plot.samefile(path) for path in read):
            raise InputError(f"{plot} is an input; choose another plot")
        output.parent.mkdir(parents=True, exist_ok=True)
        asked = replace(settings, reward=replace(settings.reward, questions=str(store.path)))
        task = TifaBenchTask(asked, images.parent)
        result = run_benchmark(task, plan, output, chosen, keep_questions=store.path != given)
    if plot is not None:
        from rewards.tifa.results import plot_summary

        plot_summary(plot, result["summary"])
    _print(result["summary"], output)
    if report is not None:
        _print_geneval2(result["summary"])
    if result["summary"]["abstained"]:
        raise typer.Exit(REPORTED)


def _store(questions: Path, folder: Path) -> QuestionStore:
    """The store that the path names, or one in `folder` of an official file."""
    from rewards.tifa.questions.question_files import FORMS, read_question_file
    from rewards.tifa.store.store import QuestionStore

    if questions.suffix not in FORMS:
        return QuestionStore(questions, create=False)
    store = QuestionStore(folder / "questions.sqlite")
    rows, problems, warnings = read_question_file(questions)
    for warning in warnings:
        typer.echo(warning, err=True)
    if problems:
        more = f" (and {len(problems) - 1} more rows)" if len(problems) > 1 else ""
        raise InputError(problems[0] + more)
    added = store.add(rows)
    if added.known:
        typer.echo(f"{added.known} repeated questions count once", err=True)
    return store


def _report(plan: Plan, images: Path, skip_missing: bool) -> None:
    """Say what is missing before anything is loaded."""
    for line in plan.missing:
        typer.echo(f"missing picture: {line}", err=True)
    for title, ids in (
        ("ids without a picture", plan.without_pictures),
        ("pictures without questions", plan.without_questions),
    ):
        if ids:
            typer.echo(f"{len(ids)} {title}: {', '.join(ids[:5])}{', ...' if len(ids) > 5 else ''}", err=True)
    lacking = len(plan.missing) + len(plan.without_pictures)
    if lacking and not skip_missing:
        raise InputError(f"{lacking} pictures are missing in {images} (listed above); --skip-missing leaves them out")
    if not plan.pictures:
        raise InputError(f"{images} names no picture that exists and has questions")


def _print(numbers: Row, output: Path) -> None:
    def line(name: str, row: Mapping[str, float], counted: str) -> str:
        return f"  {name:<14} {_share(row['mean'])}  {row[counted]} {counted}"

    for name, title in (("macro", "TIFA (mean over prompts)"), ("pooled", "accuracy (over all questions)")):
        low, high = numbers[name]["interval"]
        typer.echo(
            f"{title}: {_share(numbers[name]['mean'])}  [{_share(low)}, {_share(high)}] 95%, clustered by prompt"
        )
    for key, title, counted in (
        ("by_element_type", "by element type (pooled)", "questions"),
        ("by_source", "by source (macro)", "prompts"),
        ("by_entities", "by number of entities (macro)", "prompts"),
    ):
        typer.echo("\n".join([title, *(line(name, row, counted) for name, row in numbers[key].items())]))
    report = Report()
    for row in numbers["abstained"]:
        typer.echo(f"not scored: {row['id']}, {row['image']}: {row['reason']}", err=True)
        report.add(None, row["reason"])
    often = f"; most often: {report.most_frequent}" if report.reasons else ""
    typer.echo(
        f"{numbers['prompts']} prompts, {numbers['pictures']} pictures scored, {report.abstained} pictures abstained, "
        f"{numbers['unmatched']} unmatched answers{often}; {output}"
    )


def _print_geneval2(numbers: Row) -> None:
    found = numbers.get("geneval2")
    if found is None:
        raise InputError("the questions have no atomicity (`atom_count`): they are not of GenEval 2's form")
    typer.echo(f"Soft-TIFA AM {_percent(found['arithmetic'])}  GM {_percent(found['geometric'])}")
    for key, title, counted in (
        ("by_skill", "by skill (Soft-TIFA AM)", "questions"),
        ("by_atomicity", "by atomicity (Soft-TIFA GM)", "pictures"),
    ):
        typer.echo(title)
        for name, row in found[key].items():
            typer.echo(f"  {name:<14} {_percent(row['mean'])}  {row[counted]} {counted}")


def _percent(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.2f}"


def _share(value: float | None) -> str:
    return "   -" if value is None else f"{value:.4f}"
