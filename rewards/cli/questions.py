"""`rewards questions`: make, check, share and look at the questions of TIFA."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rewards.errors import InputError, RewardsError

if TYPE_CHECKING:
    from rewards.tifa.questions.question import Question
    from rewards.tifa.store.store import QuestionStore

app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Make, check, share and look at the questions of TIFA."
)

_STORE = typer.Argument(..., help="The question store (an SQLite file).", dir_okay=False)
_DEVICE = typer.Option(None, help="Where the model runs; default: the GPU, else the CPU.")
_DTYPE = typer.Option(None, help="Such as bfloat16; default: float32 on the CPU, the checkpoint's own elsewhere.")


@app.command()
def build(
    prompts: str = typer.Argument(
        ..., help="Text (one prompt a line), .jsonl, .json, a data set folder, or - for standard input."
    ),
    store: Path = typer.Option(..., help="The question store; made where absent."),
    model: str = typer.Option(..., help="A chat model of transformers, or the model's name on the server."),
    server: str | None = typer.Option(None, help="URL of an OpenAI-compatible server, such as http://host:8000/v1."),
    revision: str | None = typer.Option(None, help="Branch, tag or commit of the model."),
    batch_size: int = typer.Option(8, min=1, help="Prompts in one call of the model."),
    seed: int = typer.Option(0, help="Of the order of the choices."),
    form: str = typer.Option("tifa", help="tifa: two questions an element; dsg: facts, questions, dependencies."),
    surplus: bool = typer.Option(False, help="Ask further whether there is anything that the prompt does not name."),
    requests_per_minute: int | None = typer.Option(None, help="Most requests to the server."),
    tokens_per_minute: int | None = typer.Option(None, help="Most tokens to and from the server."),
    device: str | None = _DEVICE,
    dtype: str | None = _DTYPE,
) -> None:
    """Write questions for prompts with a language model. A run that was stopped goes on where it was."""
    from rewards.tifa.questions.generation import build_questions
    from rewards.tifa.questions.loading import load_language_model
    from rewards.tifa.questions.prompt_files import read_prompts
    from rewards.tifa.store.store import QuestionStore

    rows = read_prompts(prompts)
    questions = QuestionStore(store)
    writer = load_language_model(
        model,
        server,
        revision=revision,
        concurrency=batch_size,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        device=device,
        dtype=dtype,
    )
    with _progress(len(rows), "prompts") as advance:
        report = build_questions(writer, rows, questions, batch_size, seed, advance, form, surplus)
    for line in report.dropped:
        typer.echo(f"dropped: {line}", err=True)
    typer.echo(
        f"{report.questions} questions for {report.asked} prompts; {len(report.dropped)} lines dropped, "
        f"{report.skipped} prompts done before"
    )
    if report.failed:
        raise RewardsError(f"{len(report.failed)} prompts got no answer, such as {report.failed[0]}; run it again")


@app.command("filter")
def filter_(
    store: Path = _STORE,
    model: str | None = typer.Option(None, help="A T5 checkpoint; default: UnifiedQA v2 large, the paper's."),
    mode: str = typer.Option(
        "paper", help="paper: word F1 > 0.7 for all; code: > 0.6, yes/no exempt; official: as released."
    ),
    threshold: float | None = typer.Option(None, help="Of the word F1, instead of the mode's."),
    ask: bool = typer.Option(True, help="With --no-ask decide anew from the recorded answers."),
    batch_size: int = typer.Option(32, min=1, help="Questions in one call of the model."),
    device: str | None = _DEVICE,
    dtype: str | None = _DTYPE,
) -> None:
    """Drop questions whose answer does not follow from the prompt (TIFA section 3.2). Dropped ones stay in the
    file."""
    questions = _open(store)
    from rewards.tifa.questions.filtering import filter_questions
    from rewards.tifa.questions.unifiedqa import UNIFIEDQA, Encoding, UnifiedQA

    encoding: Encoding = "released" if mode == "official" else "unifiedqa"
    answerer = UnifiedQA(model or UNIFIEDQA, device=device, dtype=dtype, encoding=encoding) if ask else None
    with _progress(sum(1 for _ in questions.everything()), "questions") as advance:
        report = filter_questions(questions, answerer, mode, threshold, batch_size, advance)
    typer.echo(f"{report.kept} questions kept, {report.dropped} dropped; {report.asked} asked about now")


@app.command("import")
def import_(
    files: list[Path] = typer.Argument(
        ..., help="TIFA's JSON, GenEval 2's JSON lines, DSG's CSV, or other question stores."
    ),
    store: Path = typer.Option(..., help="The question store; made where absent."),
    keep: bool = typer.Option(False, help="Where a question differs from a stored one, keep the stored one."),
    skip_bad: bool = typer.Option(False, help="Leave out rows that cannot be scored instead of stopping."),
) -> None:
    """Take questions into a store. Rows are kept without loss: `export` gives them back as they were."""
    from rewards.tifa.store.store import QuestionStore

    fresh = not store.exists()
    # A file that cannot be used must not leave an empty store behind: all are read before the store is made.
    given = [(file, *_importable(file, skip_bad)) for file in files]
    questions = QuestionStore(store)
    try:
        for file, rows, problems in given:
            on_conflict = "keep" if keep else "error"
            if rows is None:
                added = questions.merge(_open(file), on_conflict)
            else:
                added = questions.add(rows, {"source": "import", "file": file.name}, on_conflict)
            typer.echo(
                f"{file}: {added.new} new, {added.known} known, {added.kept} kept as stored, {problems} left out"
            )
    except RewardsError:
        if fresh and not len(questions):
            questions.close()
            for path in store.parent.glob(f"{store.name}*"):
                if path.name.removeprefix(store.name) in ("", "-wal", "-shm", "-lock"):
                    path.unlink(missing_ok=True)
        raise


def _importable(file: Path, skip_bad: bool) -> tuple[list[Question] | None, int]:
    """The questions of an official file, None for a question store; and how many rows are left out."""
    from rewards.tifa.questions.question_files import read_question_file

    with file.open("rb") as stream:
        if stream.read(16) == b"SQLite format 3\0":
            if not len(_open(file)):
                raise InputError(f"{file} holds no questions")
            return None, 0
    rows, problems, warnings = read_question_file(file)
    for line in warnings:
        typer.echo(line, err=True)
    for problem in problems:
        typer.echo(f"left out: {problem}" if skip_bad else problem, err=True)
    if problems and not skip_bad:
        raise InputError(f"{len(problems)} rows of {file} cannot be used; --skip-bad leaves them out")
    if not rows:
        raise InputError(f"{file} holds no questions")
    return rows, len(problems)


@app.command()
def export(
    store: Path = _STORE,
    output: Path = typer.Argument(..., help="The file to write: .json (TIFA), .jsonl (GenEval 2), .csv (DSG)."),
    dropped: bool = typer.Option(False, help="Also the questions that a filter dropped."),
) -> None:
    """Write the questions in one of the official formats."""
    from rewards.tifa.questions.question_files import write_question_file

    chosen = [question for question, kept, _ in _open(store).everything() if kept or dropped]
    write_question_file(output, chosen)
    typer.echo(f"{len(chosen)} questions in {output}")


@app.command()
def show(
    store: Path = _STORE,
    prompt: str = typer.Argument(..., help="A prompt or its id."),
) -> None:
    """Print one prompt's questions with their origin and verdict."""
    questions = _open(store)
    asked = set(_asked(questions, prompt))
    everything = questions.get(prompt, dropped=True)
    typer.echo(f"{everything[0].id}: {everything[0].prompt}")
    for question in everything:
        origin = questions.provenance(question)
        verdict = origin.pop("filter", None)
        mark = " " if question in asked else "x"
        offered = question.choices or (question.answer,)
        choices = " | ".join(f"*{choice}*" if choice == question.answer else choice for choice in offered)
        typer.echo(f"{mark} {question.text}  {choices}  ({question.element_type}: {question.element})")
        made = ", ".join(f"{key} {value}" for key, value in origin.items() if value is not None)
        reason = f"; filter {verdict['mode']}: {verdict['reason'] or 'kept'}" if verdict else ""
        typer.echo(f"    {made}{reason}")
        for parent in question.depends_on:
            typer.echo(f"    depends on: {parent}")


def _asked(store: QuestionStore, prompt: str) -> tuple[Question, ...]:

    try:
        return store.get(prompt)
    except InputError:  # all of them were dropped
        return ()


@app.command()
def stats(store: Path = _STORE, as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Count prompts, questions, element types, positions of the right answer, and print the fingerprint."""
    questions = _open(store)
    types: Counter[str] = Counter()
    positions: Counter[int] = Counter()
    dropped = asked = 0
    for question, kept, _ in questions.everything():
        dropped += not kept
        asked += kept
        if kept:
            types[question.element_type or "other"] += 1
            positions[question.answer_index + 1] += len(question.choices) > 2
    numbers = {
        "prompts": len(questions.prompts()),
        "questions": asked,
        "dropped by a filter": dropped,
        "by element type": dict(types.most_common()),
        "right answer at position (more than two choices)": {str(k): v for k, v in sorted(positions.items()) if v},
        "fingerprint": questions.fingerprint(),
    }
    if as_json:
        typer.echo(json.dumps(numbers, indent=1))
        return
    for name, value in numbers.items():
        typer.echo(f"{name}: {value}" if not isinstance(value, dict) else f"{name}:")
        for key, count in value.items() if isinstance(value, dict) else ():
            typer.echo(f"  {key:<14} {count}")


@app.command()
def check(
    source: Path = typer.Argument(..., help="A question store, or a file of questions."),
    strict: bool = typer.Option(False, help="Exit with an error where something looks wrong."),
) -> None:
    """List questions that look wrong: they give their answer away, have equal choices, or say yes to everything."""
    from rewards.tifa.questions.checking import check_questions
    from rewards.tifa.questions.question_files import FORMS, read_question_file

    if source.suffix in FORMS:
        questions, problems, warnings = read_question_file(source)
        for line in warnings:
            typer.echo(line)
    else:
        questions, problems = list(_open(source)), []
    for problem in problems:
        typer.echo(f"cannot be scored: {problem}")
    found = check_questions(questions)
    for one in found:
        where = ", ".join(str(part) for part in (one.id, one.question) if part is not None)
        typer.echo(f"{one.kind}: {where + ': ' if where else ''}{one.detail}")
    counts = Counter(one.kind for one in found)
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "nothing looks wrong"
    typer.echo(f"{len(questions)} questions; {shown}" + (f"; {len(problems)} cannot be scored" if problems else ""))
    if problems or (strict and found):
        raise RewardsError(f"{len(problems)} rows cannot be scored and {len(found)} things look wrong in {source}")


def _open(path: Path) -> QuestionStore:
    from rewards.tifa.store.store import QuestionStore

    return QuestionStore(path, create=False)


@contextmanager
def _progress(total: int, unit: str) -> Iterator[Callable[[int], object]]:
    from tqdm import tqdm

    with tqdm(total=total, unit=f" {unit}", dynamic_ncols=True) as bar:
        yield bar.update
