"""`rewards score harmonic|tifa`: scores of the rows of a file, with every part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rewards.harmonic.reward import HarmonicEval
    from rewards.judges.base import Judge

app = typer.Typer(rich_markup_mode=None, help="Score the rows of a JSONL, CSV or Parquet file.", no_args_is_help=True)

_FILE = typer.Argument(..., help="JSONL, CSV or Parquet file; pictures are paths relative to it, or bytes.")
_OUT = typer.Option(..., "--out", help="JSON lines to write; a run that was stopped goes on where it stopped.")
_JUDGE_HELP = "Judge: name, directory, preset, or http://host:port of `rewards serve`."
_DEVICE = typer.Option(None, help="Device; default: the first GPU, else the CPU.")
_DTYPE = typer.Option(None, help="Such as bfloat16.")
_CACHE = typer.Option(None, help="File in which judgments are kept for later runs.")
_BATCH = typer.Option(16, min=1, help="Rows scored at a time.")


@app.command()
def harmonic(
    file: Path = _FILE,
    out: Path = _OUT,
    judge: str = typer.Option(..., help=_JUDGE_HELP),
    task: str = typer.Option("captioning", help="captioning, vqa, document or referring."),
    gamma: float = typer.Option(0.75, help="0 to 1; 1 weighs all criteria alike."),
    explain: bool = typer.Option(False, help="Ask the judge for the reason of each criterion's rating."),
    image_column: str = typer.Option("image", help="Column of the picture or pictures."),
    text_column: str = typer.Option("text", help="Column of the text that is rated."),
    input_column: str = typer.Option("input", help="Column of the question, for the tasks that have one."),
    box_column: str = typer.Option("box", help="Column of [left, top, right, bottom] in pixels, for referring."),
    device: str | None = _DEVICE,
    dtype: str | None = _DTYPE,
    cache: Path | None = _CACHE,
    batch_size: int = _BATCH,
) -> None:
    """HarmonicEval of texts about pictures: overall, each criterion, its deviation and its weight."""
    from rewards import score_files
    from rewards.harmonic.reward import HarmonicEval

    total = sum(1 for _ in score_files.read_rows(file))
    loaded = _judge(judge, device, dtype, cache)
    reward = HarmonicEval(loaded, task=task, gamma=gamma)
    settings = {**reward.identity(), "explain": explain, "file": score_files.file_hash(file)}

    def score(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        images, problems = _pictures(rows, image_column, file.parent)
        texts = [None if row.get(text_column) is None else str(row[text_column]) for row in rows]
        texts = [None if problem else text for text, problem in zip(texts, problems)]
        inputs = [row.get(input_column) for row in rows] if reward.takes_input else None
        boxes = [_box(row.get(box_column)) for row in rows] if reward.task.needs_box else None
        scores = reward.score(images, texts, inputs=inputs, boxes=boxes)
        records = scores.records()
        for at, record in enumerate(records):
            if problems[at]:
                record["abstained"] = problems[at]
            probabilities = zip(scores.criterion_names, scores.probabilities[at].tolist())
            record["probabilities"] = {name: [_number(p) for p in values] for name, values in probabilities}
            record["id"] = rows[at].get("id")
        if explain:
            _explain(reward, records, images, texts, inputs)
        return records

    new = score_files.run(score_files.read_rows(file), out, settings, score, batch_size, total)
    typer.echo(f"{out}: {new} of {total} rows scored now")


@app.command()
def tifa(
    file: Path = _FILE,
    out: Path = _OUT,
    judge: str = typer.Option(..., help=_JUDGE_HELP),
    questions: Path = typer.Option(..., help="Question store (SQLite) with the questions of every prompt."),
    answer: str = typer.Option("free_form", help="free_form, or choices (by likelihood)."),
    soft: bool = typer.Option(False, help="Score by the probability of the right choice; needs --answer choices."),
    sentence_model: str | None = typer.Option(None, help="SBERT checkpoint for the matching; 'none' matches exactly."),
    image_column: str = typer.Option("image", help="Column of the picture."),
    prompt_column: str = typer.Option("prompt", help="Column of the prompt, or of its id in the store."),
    device: str | None = _DEVICE,
    dtype: str | None = _DTYPE,
    cache: Path | None = _CACHE,
    batch_size: int = _BATCH,
) -> None:
    """TIFA of pictures for prompts: the share of questions answered right, and every answer."""
    from rewards import score_files
    from rewards.errors import InputError
    from rewards.tifa import SENTENCE_MODEL
    from rewards.tifa.matching import AnswerMatcher
    from rewards.tifa.reward import TIFA
    from rewards.tifa.store.store import QuestionStore

    prompts: list[str | int] = []
    for row in score_files.read_rows(file):
        prompt = row.get(prompt_column)
        if not isinstance(prompt, (str, int)) or prompt == "":
            raise InputError(f"{file}, row {len(prompts)} has no prompt in column {prompt_column!r}")
        prompts.append(prompt)
    store = QuestionStore(questions, create=False)
    store.prepare(prompts)  # a prompt without questions is named before the judge is loaded
    matcher = AnswerMatcher(None if sentence_model == "none" else sentence_model or SENTENCE_MODEL)
    reward = TIFA(_judge(judge, device, dtype, cache), store, answer=answer, soft=soft, matcher=matcher)
    fingerprint = store.fingerprint(prompts)
    settings = {**reward.identity(), "questions": fingerprint, "file": score_files.file_hash(file)}

    def score(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        images, problems = _pictures(rows, image_column, file.parent)
        scores = reward.score(images, [row[prompt_column] for row in rows])
        records = []
        for at, row in enumerate(rows):
            answers = [
                {
                    "question": found.question.text,
                    "element": found.question.element,
                    "element_type": found.question.element_type,
                    "answer": found.question.answer,
                    "free_form": found.free_form,
                    "choice": found.choice,
                    "how": found.how,
                    "right": found.right,
                    "score": _number(found.score),
                }
                for found in scores.answers
                if found.image == at
            ]
            reason = problems[at] or scores.reasons[at]
            overall = _number(scores.overall[at].item())
            records.append({"overall": overall, "answers": answers, "abstained": reason, "id": row.get("id")})
        return records

    new = score_files.run(score_files.read_rows(file), out, settings, score, batch_size, len(prompts))
    typer.echo(f"{out}: {new} of {len(prompts)} rows scored now")


def _judge(name: str, device: str | None, dtype: str | None, cache: Path | None) -> Judge:
    from rewards.judges.loading import load_judge

    loaded = load_judge(name, device=device, dtype=dtype)
    if cache is None:
        return loaded
    from rewards.judges.cache import CachedJudge

    return CachedJudge(loaded, cache)


def _pictures(rows: Sequence[dict[str, Any]], column: str, folder: Path) -> tuple[list[Any], list[str | None]]:
    """Each row's picture, and why a row has none (then it is given bytes that no judge can read, and abstains)."""
    from rewards.errors import InputError
    from rewards.score_files import picture_of

    images: list[Any] = []
    problems: list[str | None] = []
    for row in rows:
        try:
            images.append(picture_of(row, column, folder))
            problems.append(None)
        except InputError as error:
            images.append(b"")
            problems.append(str(error))
    return images, problems


def _box(value: Any) -> Any:
    """A box of a row: a list, or the JSON of one (a CSV cell)."""
    import json

    from rewards.errors import InputError

    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise InputError(f"{value!r} is not a box [left, top, right, bottom]") from error


def _explain(
    reward: HarmonicEval,
    records: list[dict[str, Any]],
    images: Sequence[Any],
    texts: Sequence[str | None],
    inputs: Sequence[Any] | None,
) -> None:
    """Add the judge's reason for the likeliest rating of each criterion to the records of rows that were rated."""
    from rewards.harmonic.criteria import render

    asked = []
    for at, record in enumerate(records):
        record["explanations"] = dict.fromkeys(reward.prompts)
        for name, template in reward.prompts.items():
            probabilities = record["probabilities"][name]
            if record["overall"] is not None and None not in probabilities:
                rating = reward.ratings[max(range(len(probabilities)), key=probabilities.__getitem__)]
                prompt = render(template, texts[at] or "", inputs[at] if inputs else None)
                asked.append((record, name, images[at], prompt, f"{rating:g}"))
    reasons = reward.judge.explain([row[2] for row in asked], [row[3] for row in asked], [row[4] for row in asked])
    for (record, name, *_), reason in zip(asked, reasons):
        record["explanations"][name] = reason


def _number(value: float) -> float | None:
    return None if value != value else value
