"""`rewards audit`: what a policy would find out about a reward, and what one has found out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rewards.errors import InputError

if TYPE_CHECKING:
    from rewards.audit.findings import Findings
    from rewards.audit.variants import TrueText
    from rewards.build import RewardSettings
    from rewards.reward import Reward
    from rewards.tifa.questions.language_model import LanguageModel

app = typer.Typer(rich_markup_mode=None, help="What would a policy find out about a reward?", no_args_is_help=True)

_JUDGE = typer.Argument(None, help="The judge; or name the reward by --config.")
_OVERRIDES = typer.Argument(None, help="key=value settings of the reward, e.g. gamma=0.5 or soft=true.")
_TEXTS = typer.Option(..., help="JSONL, CSV, Parquet or dataset folder: image, text (true of it), and cluster.")
_PICTURES = typer.Option(..., help="JSONL, CSV, Parquet or dataset folder: image, prompt (that it shows), and cluster.")
_CONFIG = typer.Option(None, help="YAML with the reward; a `reward:` block is the same everywhere.")
_SECOND = typer.Option(
    None,
    help="Who knows better: another judge for the same reward, or package.module:name of a reward or function. What it "
    "does not score lower than the truth takes no part.",
)
_LIMIT = typer.Option(None, min=2, help="Rows taken from the start of the file.")
_SEED = typer.Option(0, help="Of all choices: places, other rows, objects.")
_OUT = typer.Option(None, help="Write the findings as JSON, for `rewards audit compare`.")
_PAGE = typer.Option(None, help="Write one HTML page with the worst pairs to look at.")
_WRITER = typer.Option(None, help="A chat model of transformers, or the model's name on the server.")
_SERVER = typer.Option(None, help="URL of an OpenAI-compatible server, such as http://host:8000/v1.")
_FAIL = typer.Option(None, min=0, max=1, help="Exit 1 where a kind is accepted more often than this share.")


@app.command()
def text(
    judge: str | None = _JUDGE,
    overrides: list[str] = _OVERRIDES,
    data: Path = _TEXTS,
    config: Path | None = _CONFIG,
    second: str | None = _SECOND,
    limit: int | None = _LIMIT,
    per_kind: int = typer.Option(1, min=1, help="False texts of each kind a row."),
    seed: int = _SEED,
    language_model: str | None = _WRITER,
    server: str | None = _SERVER,
    out: Path | None = _OUT,
    page: Path | None = _PAGE,
    fail_above: float | None = _FAIL,
) -> None:
    """True texts against texts with one false detail, against empty gains, and on pictures that show nothing.

    Accepted: the variant scores at least as high as the truth. A language model adds false texts of its own.
    """
    from rewards.audit.language import written_edits
    from rewards.audit.texts import audit_texts

    reward, other, rows = _opened(judge, overrides, data, config, second, limit)
    writer = _writer(language_model, server)
    edits = None if writer is None else written_edits(writer, [row.text for row in rows])
    found = audit_texts(reward, rows, second=other, edits=edits, per_kind=per_kind, seed=seed)
    _report(found, out, page, fail_above)


@app.command()
def picture(
    judge: str | None = _JUDGE,
    overrides: list[str] = _OVERRIDES,
    data: Path = _PICTURES,
    questions: Path | None = typer.Option(None, help="Question store for TIFA; without one VQAScore is audited."),
    config: Path | None = _CONFIG,
    second: str | None = _SECOND,
    limit: int | None = _LIMIT,
    seed: int = _SEED,
    language_model: str | None = _WRITER,
    server: str | None = _SERVER,
    out: Path | None = _OUT,
    page: Path | None = _PAGE,
    fail_above: float | None = _FAIL,
) -> None:
    """Pictures that show their prompts against pictures that show less, nothing, or too much.

    Beside the kinds: what is scored with a blank picture, by element type, and what remains above that; with a
    language model also how many questions it answers right without any picture.
    """
    from rewards.audit.language import guessed_without_picture
    from rewards.audit.pictures import audit_pictures
    from rewards.tifa.store.store import QuestionStore

    if language_model is not None and questions is None:
        raise InputError("--language-model answers the questions of a store; name it by --questions")

    kind = {} if config else {"kind": "tifa", "questions": str(questions)} if questions else {"kind": "vqascore"}
    reward, other, rows = _opened(judge, overrides, data, config, second, limit, kind)
    writer = _writer(language_model, server)
    found = audit_pictures(reward, rows, second=other, seed=seed)
    if writer is not None:
        asked = QuestionStore(str(questions), create=False).prepare([row.text for row in rows])
        typer.echo(guessed_without_picture(writer, rows, asked, found).text() + "\n")
    _report(found, out, page, fail_above)


@app.command()
def search(
    judge: str | None = _JUDGE,
    overrides: list[str] = _OVERRIDES,
    data: Path = _TEXTS,
    questions: Path | None = typer.Option(None, help="Question store of a soft TIFA: pictures by its gradient."),
    config: Path | None = _CONFIG,
    second: str | None = _SECOND,
    limit: int = typer.Option(16, min=2, help="Rows taken from the start of the file."),
    budget: int = typer.Option(200, min=1, help="Texts that the judge is asked about, a row and a method."),
    sampler: str | None = typer.Option(None, help="A model that writes, for best-of-n: a checkpoint's name or folder."),
    seed: int = _SEED,
    out: Path | None = _OUT,
    page: Path | None = _PAGE,
) -> None:
    """A policy without training: hill climbing over edits of texts, best-of-n, or the gradient to a picture's pixels.

    Prints what was found, with its score beside the truth's; by --second only what it finds worse than the truth.
    """
    from rewards.audit.search import reached_table, search_pictures, search_texts

    kind = {"kind": "tifa", "questions": str(questions), "soft": True} if questions else {}
    reward, other, rows = _opened(judge, overrides, data, config, second, limit, kind)
    if reward.judges == "pictures":
        typer.echo(reached_table(search_pictures(reward, rows, second=other, seed=seed)).text())
        return
    samples = None if sampler is None else _sampler(sampler, rows, seed)
    found = search_texts(reward, rows, sampler=samples, second=other, budget=budget, seed=seed)
    _report(found, out, page, None)
    for example in (example for finding in found.findings for example in finding.examples):
        typer.echo(f"{-example.drop:+.3f}  {example.truth}  ->  {example.variant}")


@app.command()
def compare(
    first: Path = typer.Argument(..., help="JSON of an audit (--out)."),
    second: Path = typer.Argument(..., help="JSON of another audit of the same pairs."),
) -> None:
    """Two judges, or one in two settings, on the same pairs: accepted shares and their difference, paired."""
    from rewards.audit.comparison import compare_audits

    typer.echo(compare_audits(first, second).text())


@app.command()
def run(
    folder: Path = typer.Argument(..., help="Run folder, with evaluations.jsonl."),
    overrides: list[str] = typer.Argument(None, help="key=value settings of the second judge's reward."),
    second: str | None = typer.Option(
        None, help="Judge of HarmonicEval, or package.module:name; not needed where the run's rows carry their truth."
    ),
) -> None:
    """Which kinds of false detail became more frequent between the first and the last evaluation of a run.

    Texts: by the truth where the held-out rows carry scenes, else by a second judge. Pictures: by the answers of the
    run's own audit.
    """
    from rewards.audit.runs import answers_of_pictures, change_table, claims_of_texts, doubts_of_texts
    from rewards.runs.config import load_config, parse_overrides
    from rewards.runs.evaluations import EvaluationLog
    from rewards.runs.folder import RunFolder

    ends = EvaluationLog(folder).ends()
    if len(ends) < 2:
        raise InputError(f"{folder}: {len(ends)} evaluations in evaluations.jsonl; a first and a last are compared")
    if ends[0].samples[0].text is None:
        details = [answers_of_pictures(end) for end in ends]
    else:
        from rewards.build import RewardSettings
        from rewards.trainers.language.data import load_prompts, row_pictures
        from rewards.trainers.language.settings import LanguageRunConfig

        settings = load_config(LanguageRunConfig, RunFolder(folder).config).data
        rows = load_prompts(settings, settings.held_out)
        if second is None and "scene" in rows.column_names:
            details = [claims_of_texts(end, rows["scene"]) for end in ends]
        elif second is None:
            raise InputError("the held-out rows carry no scene: name a judge who knows better by --second")
        else:
            values = {"judge": second, **parse_overrides(overrides)}
            judge = _second(second, load_config(RewardSettings, None, values))
            details = [doubts_of_texts(end, [row_pictures(row)[0] for row in rows], judge) for end in ends]
    typer.echo(change_table(ends[0], ends[1], details[0], details[1]).text())


def _opened(
    judge: str | None,
    overrides: list[str] | None,
    data: Path,
    config: Path | None,
    second: str | None,
    limit: int | None,
    kind: Mapping[str, object] | None = None,
) -> tuple[Reward, Reward | None, list[TrueText]]:
    """The reward, the second judge and the rows; whatever is mistyped is answered before a model is loaded."""
    from rewards.audit.data import read_true_texts
    from rewards.build import RewardSettings, build_reward
    from rewards.runs.config import load_config, parse_overrides

    words = dict(kind or {}) | ({} if judge is None else {"judge": judge}) | parse_overrides(overrides)
    settings = load_config(RewardSettings, config, words, block="reward")
    rows = read_true_texts(data, limit)
    return build_reward(settings), None if second is None else _second(second, settings), rows


def _writer(name: str | None, server: str | None) -> LanguageModel | None:
    from rewards.tifa.questions.loading import load_language_model

    if name is None and server is not None:
        raise InputError("--server needs the name of its model: --language-model")
    return None if name is None else load_language_model(name, server)


def _second(name: str, settings: RewardSettings) -> Reward:
    from rewards.build import RewardSettings, build_reward

    if re.fullmatch(r"[\w.]+:\w+", name):
        return build_reward(RewardSettings(kind="function", function=name))
    return build_reward(replace(settings, judge=name, soft=False) if settings.soft else replace(settings, judge=name))


def _sampler(name: str, rows: list[TrueText], seed: int) -> Any:
    from rewards.rerank.generate_settings import GenerateSettings
    from rewards.rerank.sample_texts import text_sampler

    sample = text_sampler(GenerateSettings(prompts="", model=name), name)
    asked = [{"image": row.image, **row.columns} for row in rows]
    return lambda number: sample(asked, [seed + 1000 * number + row for row in range(len(rows))])


def _report(found: Findings, out: Path | None, page: Path | None, fail_above: float | None) -> None:
    from rewards.audit.findings import BOUND
    from rewards.audit.page import write_audit

    bound = BOUND if fail_above is None else fail_above
    write_audit(found, page, out, bound)
    typer.echo(found.table().text())
    if (prior := found.prior()) is not None:
        typer.echo("\n" + prior.text())
    typer.echo("\n" + found.verdict(bound))
    if fail_above is not None and found.unsafe(fail_above):
        raise typer.Exit(1)
