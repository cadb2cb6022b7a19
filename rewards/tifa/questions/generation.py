"""Prompt -> question-answer tuples, by a language model: in one call a prompt (TIFA §3.1), or in DSG's three steps.

Questions are made once and stored; a run that is killed goes on where it stopped and asks no prompt twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.errors import InputError
from rewards.tifa.normalization import collapse_blanks
from rewards.tifa.questions import dsg_generation
from rewards.tifa.questions.language_model import Completion, LanguageModel
from rewards.tifa.questions.parsing import parse_output
from rewards.tifa.questions.prompt_files import Prompt
from rewards.tifa.questions.question import Question
from rewards.tifa.questions.surplus import surplus_question
from rewards.tifa.store.store import Note, QuestionStore

FORMS = ("tifa", "dsg")


@dataclass
class BuildReport:
    """What a run of :func:`build_questions` did.

    Attributes:
        skipped: Prompts that were done before.
        asked: Prompts that the model was asked about.
        questions: Questions stored.
        dropped: Lines of output that could not be used, as "prompt id: what and why".
        failed: Prompts that got no output, as "prompt id: why"; the next run asks them again.
    """

    skipped: int = 0
    asked: int = 0
    questions: int = 0
    dropped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def build_questions(
    model: LanguageModel,
    prompts: Iterable[Prompt],
    store: QuestionStore,
    batch_size: int = 8,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
    form: str = "tifa",
    surplus: bool = False,
) -> BuildReport:
    """Ask a language model for the questions of prompts and store them.

    Args:
        model: Writes the questions.
        prompts: With their ids. Prompts that the store has questions for, or that a former run asked about, are
            skipped; prompts of the same text are asked about once and stored under each id.
        store: Where they go. Each batch is stored at once with what was dropped, so that a kill loses at most one
            batch.
        batch_size: Prompts in one call of the model.
        seed: Of the order of the choices.
        progress: Called with the number of prompts that are done.
        form: "tifa", or "dsg" (:mod:`rewards.tifa.questions.dsg_generation`).
        surplus: Ask further whether the picture shows anything that the prompt does not name
            (:mod:`rewards.tifa.questions.surplus`); of form "tifa".

    Raises:
        InputError: An id belongs to another prompt, an unknown form, or `surplus` with form "dsg".
    """
    if form not in FORMS:
        raise InputError(f"form is {form!r}; expected one of {', '.join(map(repr, FORMS))}")
    if surplus and form != "tifa":
        raise InputError("surplus questions are made from the elements of form 'tifa'")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; expected at least 1")
    report = BuildReport()
    done = store.worked_on()
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        text = collapse_blanks(prompt.text)
        if prompt.id not in done:
            groups.setdefault(text, []).append(prompt)
        elif collapse_blanks(done[prompt.id]) == text:
            report.skipped += 1
        else:
            raise InputError(f"id {prompt.id!r} is {done[prompt.id]!r} in the store, here {prompt.text!r}")
    if progress is not None:
        progress(report.skipped)
    identity: dict[str, Any] = {"source": "generation", **model.identity(), "seed": seed} if groups else {}
    if surplus and groups:
        identity["surplus"] = True
    if form == "dsg" and groups:
        identity = dsg_generation.provenance(identity)
    waiting = list(groups.values())
    for start in range(0, len(waiting), batch_size):
        batch = waiting[start : start + batch_size]
        questions: list[Question] = []
        notes: list[Note] = []
        texts = [collapse_blanks(group[0].text) for group in batch]
        written = _ask(model, texts, form)
        for group, output in zip(batch, written, strict=True):
            for prompt in group:
                _take(prompt, output, seed, surplus, questions, notes, report)
        added = store.add(questions, identity, on_conflict="keep", notes=notes)
        report.questions += added.new
        if progress is not None:
            progress(sum(map(len, batch)))
    return report


def _ask(model: LanguageModel, texts: Sequence[str], form: str) -> Sequence[Completion | dsg_generation.DSGOutput]:
    if form == "tifa":
        return model.complete(texts)
    return dsg_generation.ask(model, texts)


def _take(
    prompt: Prompt, output: Completion | dsg_generation.DSGOutput, seed: int, surplus: bool,
    questions: list[Question], notes: list[Note], report: BuildReport,
) -> None:  # fmt: skip
    if isinstance(output, dsg_generation.DSGOutput):
        parsed = None if output.error else dsg_generation.parse_dsg(output, prompt.text, prompt.id)
    else:
        text = output.text
        parsed = None if text is None else parse_output(text, prompt.text, prompt.id, seed, output.cut_off)
    if parsed is None:
        report.failed.append(f"{prompt.id}: {output.error}")
        return
    report.asked += 1
    report.dropped.extend(f"{prompt.id}: {line}" for line in parsed.dropped)
    further = surplus_question(parsed.questions) if surplus else None
    made = parsed.questions if further is None else [*parsed.questions, further]
    questions.extend(made)
    notes.append(Note(prompt.id, prompt.text, {"questions": len(made), "dropped": parsed.dropped}))
