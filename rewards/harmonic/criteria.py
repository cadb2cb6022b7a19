"""What is rated, and with which words: the five criteria, the four tasks and their prompts (HarmonicEval section 2.3).

The prompts are text files beside this module, in our own words. `prompts/<task>/frame.txt` is what the criteria of a
task share: what is rated, the text itself, and how to answer; `prompts/<task>/<criterion>.txt` is the criterion with
its five-level scale, and follows the frame. The paper puts the text last (`[p_c, t]`, section 2.1). Here it comes
first, so that a judge reads picture, frame and text once for all criteria; and whatever a text asks of the judge is
followed by the judge's real task. `order="paper"` gives the paper's order (`prompts/<task>/frame_paper.txt`): picture
and the first words are then all that criteria share, and a judge reads every text once a criterion (five criteria cost
up to five readings of the text instead of about 1.2). Templates of your own (`prompts=`) may have any order.

A template holds `{text}` where the text to be rated goes and, for tasks that answer a question, `{input}`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rewards.errors import InputError

CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")


@dataclass(frozen=True)
class Task:
    """One of the paper's tasks.

    Args:
        name: name of the task and of its prompt folder.
        needs_input: whether a text is rated as the answer to a question (`inputs=`).
        needs_box: whether a text is rated as pointing out one object (`boxes=`, drawn on the image).
    """

    name: str
    needs_input: bool = False
    needs_box: bool = False


TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task("captioning"),
        Task("vqa", needs_input=True),
        Task("document", needs_input=True),
        Task("referring", needs_box=True),
    )
}

ORDERS = ("shared", "paper")
"""Where the built-in prompts put the text: first, so that criteria share it; or last, as the paper does."""

_PLACEHOLDER = re.compile(r"\{(text|input)\}")


def get_task(name: str) -> Task:
    """The task of that name.

    Raises:
        InputError: if there is none.

    Example:
        >>> get_task("vqa").needs_input
        True
    """
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}: expected one of {', '.join(TASKS)}")
    return TASKS[name]


@cache
def builtin_prompt(task: str, criterion: str, order: str = "shared") -> str:
    """The prompt template that ships for a task and criterion.

    Args:
        task: name of the task.
        criterion: one of the paper's five.
        order: one of :data:`ORDERS`.

    Raises:
        InputError: for a task, criterion or order that has no prompt file.

    Example:
        >>> builtin_prompt("captioning", "fluency").splitlines()[-6]
        'Is the caption in correct and natural language?'
    """
    get_task(task)
    if criterion not in CRITERIA:
        raise InputError(
            f"no built-in prompt for criterion {criterion!r} (there is {', '.join(CRITERIA)}): "
            "give its template in prompts="
        )
    if order not in ORDERS:
        raise InputError(f"order is {order!r}: expected one of {', '.join(map(repr, ORDERS))}")
    folder = files("rewards.harmonic") / "prompts" / task
    names = ("frame" if order == "shared" else "frame_paper", criterion)
    frame, scale = ((folder / f"{name}.txt").read_text(encoding="utf-8").strip() for name in names)
    return f"{frame}\n\n{scale}" if order == "shared" else frame.replace("{criterion}", scale)


def render(template: str, text: str, input: str | None = None) -> str:
    """Put a text, and the input that it answers, into a template.

    Both are data: braces, placeholders and control tokens inside them stay as they are (no `str.format`).

    Example:
        >>> render("Caption: {text} | rate it", "a {text} in {input}")
        'Caption: a {text} in {input} | rate it'
    """
    values = {"text": text, "input": input or ""}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def overall_template(templates: Sequence[str]) -> str:
    """One template that asks for all criteria together: what they share at the beginning stands once.

    Example:
        >>> overall_template(["Text: {text}\\nIs it true?", "Text: {text}\\nIs it short?"]).splitlines()
        ['Text: {text}', 'Is it true?', '', 'Is it short?']
    """
    shared = os.path.commonprefix(list(templates)).rpartition("\n")  # noqa: RUF071 - texts, not paths
    head = "".join(shared[:2])
    return head + "\n\n".join(template[len(head) :] for template in templates)


def uses_input(template: str) -> bool:
    """Whether a template has a place for the input.

    Example:
        >>> uses_input("{input} {text}")
        True
    """
    return "{input}" in template


def prompt_hash(task: str, prompts: Mapping[str, str], ratings: Sequence[str]) -> str:
    """A fingerprint of everything that was asked: 16 hexadecimal digits of the SHA-256 of task, templates and ratings.

    Example:
        >>> prompt_hash("captioning", {"fluency": "{text}"}, ("1", "2")) == prompt_hash(
        ...     "captioning", {"fluency": "{text} "}, ("1", "2"))
        False
    """
    record = json.dumps([task, sorted(prompts.items()), list(ratings)], ensure_ascii=True)
    return hashlib.sha256(record.encode()).hexdigest()[:16]


def resolve_prompts(
    task: Task,
    criteria: Sequence[str] | None,
    user_prompts: Mapping[str, str] | None,
    judge_prompts: Mapping[str, Mapping[str, str]] | None,
    ratings: Sequence[float],
    order: str = "shared",
) -> dict[str, str]:
    """Choose a template for each criterion: the user's, else those kept beside the judge's weights, else the built-in.

    A judge that was trained on a short form keeps it in `harmonic_prompts.json`; if it has the task, all templates
    come from there, because long prompts would be foreign to it. A user's template replaces single criteria.

    Args:
        task: the task.
        criteria: the wanted criteria in order, or None for exactly the user's where there are some, else the judge's,
            else the paper's five.
        user_prompts: criterion -> template.
        judge_prompts: task -> criterion -> template.
        ratings: the rating scale; the built-in prompts describe 1 to 5 only.
        order: of the built-in prompts, see :data:`ORDERS`.

    Returns:
        criterion -> template, in the order of the criteria.

    Raises:
        InputError: for no, repeated or unknown criteria, a template without `{text}`, a built-in prompt with another
            scale, or an order where no prompt is built in.

    Example:
        >>> resolve_prompts(get_task("captioning"), None, {"wit": "Is it funny? {text}"}, None, (1, 2))
        {'wit': 'Is it funny? {text}'}
    """
    own = dict(user_prompts or {})
    beside = dict((judge_prompts or {}).get(task.name, {}))
    if criteria is None:
        known = own or beside or dict.fromkeys(CRITERIA)
        criteria = [*(c for c in CRITERIA if c in known), *(c for c in known if c not in CRITERIA)]
    if not criteria or len(set(criteria)) != len(criteria):
        raise InputError(f"criteria must be a non-empty list without repetitions, got {list(criteria)}")
    if unused := [criterion for criterion in own if criterion not in criteria]:
        raise InputError(f"prompts= holds templates for {unused}, which are not among the criteria {list(criteria)}")

    if order != "shared" and (beside or all(criterion in own for criterion in criteria)):
        raise InputError(
            f"order={order!r} is of the built-in prompts; here templates come from "
            f"{'beside the judge' if beside else 'prompts='}, which have an order of their own"
        )

    chosen: dict[str, str] = {}
    for criterion in criteria:
        if criterion in own:
            chosen[criterion] = own[criterion]
        elif beside:
            if criterion not in beside:
                raise InputError(
                    f"the judge has no prompt for criterion {criterion!r} of task {task.name!r} beside its weights "
                    f"(it has {', '.join(beside)}): give its template in prompts="
                )
            chosen[criterion] = beside[criterion]
        else:
            chosen[criterion] = builtin_prompt(task.name, criterion, order)
            if list(ratings) != [1, 2, 3, 4, 5]:
                raise InputError(
                    f"the built-in prompts describe the scale 1 to 5: give prompts= for the ratings {list(ratings)}"
                )
        if "{text}" not in chosen[criterion]:
            raise InputError(f"the prompt for criterion {criterion!r} has no place for the text: add {{text}} to it")
    return chosen
