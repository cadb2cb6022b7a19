"""`rewards tifa-bench`: the TIFA benchmark in the official file formats."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rewards.errors import InputError

if TYPE_CHECKING:
    from rewards.tifa.benchmark import Plan
    from rewards.tifa.store.store import QuestionStore


def tifa_bench(
    questions: Path = typer.Option(..., help="An official question file (JSON) or a question store."),
    images: Path = typer.Option(..., help="JSON: prompt id -> picture, or a list of pictures."),
    output: Path = typer.Option(..., help="The result, in the official format; numbers of our own under `summary`."),
    judge: str = typer.Option("blip-large", help="A VQA or vision-language model: preset, checkpoint or server URL."),
    answer: str = typer.Option("free_form", help="free_form: matched to a choice; choices: the most probable one."),
    sentence_model: str | None = typer.Option(None, help="SBERT checkpoint for the matching; 'none' matches exactly."),
    device: str | None = typer.Option(None, help="Where the judge runs; default: the GPU, else the CPU."),
    dtype: str | None = typer.Option(None, help="Such as bfloat16."),
    batch_size: int = typer.Option(8, min=1, help="Pictures in one call of the judge."),
    skip_missing: bool = typer.Option(False, help="Leave out pictures that are missing instead of stopping."),
    plot: Path | None = typer.Option(None, help="Write a picture of the scores (PNG)."),
) -> None:
    """Score pictures on TIFA v1.0 or any questions. A run that was stopped goes on where it was."""
    from rewards.tifa.store.store import QuestionStore

    with tempfile.TemporaryDirectory() as folder:
        if questions.suffix == ".json":
            from rewards.tifa.questions.question import read_questions

            store = QuestionStore(Path(folder) / "questions.sqlite")
            added = store.add(read_questions(questions))
            if added.known:
                typer.echo(f"{added.known} repeated questions count once", err=True)
        else:
            store = QuestionStore(questions, create=False)
        from rewards.tifa.benchmark import plan_benchmark

        plan = plan_benchmark(store, images)
        _report(plan, images, skip_missing)
        result = _run(store, plan, output, judge, answer, sentence_model, device, dtype, batch_size)
        store.close()
    if plot is not None:
        from rewards.tifa.results import plot_summary

        plot_summary(plot, result["summary"])
    _print(result["summary"], output)


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


def _run(
    store: QuestionStore, plan: Plan, output: Path, judge: str, answer: str, sentence_model: str | None,
    device: str | None, dtype: str | None, batch_size: int,
) -> dict[str, Any]:  # fmt: skip
    from tqdm import tqdm

    from rewards.judges.loading import load_judge
    from rewards.tifa import SENTENCE_MODEL
    from rewards.tifa.benchmark import questions_by_id, run_benchmark
    from rewards.tifa.matching import AnswerMatcher
    from rewards.tifa.results import official_result, summary, write_result
    from rewards.tifa.reward import TIFA

    matcher = AnswerMatcher(None if sentence_model == "none" else sentence_model or SENTENCE_MODEL)
    tifa = TIFA(load_judge(judge, device=device, dtype=dtype), store, answer=answer, matcher=matcher)
    output.parent.mkdir(parents=True, exist_ok=True)
    journal = output.with_name(output.name + ".partial.jsonl")
    with tqdm(total=len(plan.pictures), unit=" pictures", dynamic_ncols=True) as bar:
        judged = run_benchmark(tifa, plan.pictures, journal, batch_size, bar.update)
    asked = questions_by_id(store, judged)
    numbers = summary(judged, asked) | {"reward": tifa.identity(), "questions_fingerprint": store.fingerprint()}
    result = official_result(judged, asked) | {"summary": numbers}
    write_result(output, result)
    journal.unlink()
    return result


def _print(numbers: dict[str, Any], output: Path) -> None:
    def line(name: str, row: dict[str, Any], counted: str) -> str:
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
    typer.echo(
        f"{numbers['prompts']} prompts, {numbers['pictures']} pictures, {numbers['unmatched']} unmatched answers, "
        f"{len(numbers['abstained'])} pictures abstained; {output}"
    )
    for row in numbers["abstained"]:
        typer.echo(f"not scored: {row['id']}, {row['image']}: {row['reason']}", err=True)


def _share(value: float | None) -> str:
    return "   -" if value is None else f"{value:.4f}"
