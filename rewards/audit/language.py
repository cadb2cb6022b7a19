"""What a language model adds to an audit: questions answered without the picture, and false texts of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher

from rewards.audit.edits import KINDS
from rewards.audit.findings import Findings
from rewards.audit.variants import TrueText
from rewards.errors import InputError
from rewards.runs.intervals import mean_interval
from rewards.tables import Table
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.language_model import LanguageModel
from rewards.tifa.questions.question import Question

LONGEST_EDIT = 6
"""Words that an edit may change in one place; more is another text."""

_GUESS = """\
Answer the question about a picture that you cannot see. Give the most likely of the choices, in its words, and nothing
else.

Question: is there a dog?
Choices: yes, no
Answer: yes

Question: what color is the bus?
Choices: green, red, purple, brown
Answer: red

"""

_EDIT = """\
Make the text false in one detail of the given kind, and change nothing else. Write "none" where the text has no such
detail.

Kind: color
Text: A brown dog sleeps on a sofa.
False: A white dog sleeps on a sofa.

Kind: count
Text: A brown dog sleeps on a sofa.
False: none

Kind: invented
Text: Two boats on a lake at dusk.
False: Two boats and a swan on a lake at dusk.

"""


def guessed_without_picture(
    model: LanguageModel, rows: Sequence[TrueText], questions: Sequence[Sequence[Question]], found: Findings
) -> Table:
    """How many questions a language model answers right that sees no picture, and what the reward has above that.

    Args:
        model: Answers with one of each question's choices; what it gives no answer to counts as wrong.
        rows: As they were audited.
        questions: The questions of each row's prompt.
        found: The audit of the same rows (:func:`rewards.audit.pictures.audit_pictures`).

    Returns:
        By element type: questions, share of choices that guessing would get right, share that the model does (95%,
        clustered as the audit is), the reward with the picture, and the difference.

    Raises:
        InputError: No question with choices, or not one list of questions a row.

    Example:
        >>> guessed_without_picture(ChatModel("Qwen/Qwen3-8B"), rows, questions, found)  # doctest: +SKIP
    """
    asked = [(q, row.group) for row, own in zip(rows, questions, strict=True) for q in own if len(q.choices) > 1]
    if not asked:
        raise InputError("no question has choices to guess among")
    inputs = [f"Question: {q.text}\nChoices: {', '.join(q.choices)}\nAnswer:" for q, _ in asked]
    answers = [written.text or "" for written in model.write(_GUESS, inputs, "\n")]
    choices = [question.choices for question, _ in asked]
    matched = AnswerMatcher(sentence_model=None).match(answers, choices)
    right = [
        float(match.index is not None and question.choices[match.index] == question.answer)
        for match, (question, _) in zip(matched, asked)
    ]
    seen = found.truths()
    table = []
    for name in ("overall", *sorted({question.element_type for question, _ in asked})):
        chosen = [at for at, (question, _) in enumerate(asked) if name in ("overall", question.element_type)]
        share = mean_interval([right[at] for at in chosen], [asked[at][1] for at in chosen])
        chance = sum(1 / len(choices[at]) for at in chosen) / len(chosen)
        interval = f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}]"
        above = (f"{seen[name]:.3f}", f"{seen[name] - share.value:+.3f}") if name in seen else ("", "")
        table.append([name, str(len(chosen)), f"{chance:.3f}", interval, *above])
    header = ["element type", "questions", "by chance", "right [95%]", found.reward, "above the guess"]
    return Table("Answered by a language model that sees no picture", header, table)


def written_edits(model: LanguageModel, texts: Sequence[str]) -> Callable[[str], Mapping[str, list[str]]]:
    """False texts by a language model, a kind at a time, for :func:`rewards.audit.texts.audit_texts`.

    Args:
        model: Asked once for every distinct text and kind, all in one call.
        texts: The true texts.

    Returns:
        False texts of a true one by kind (`color, written`); those that :func:`differs_in_one_place` refuses are left
        out.

    Example:
        >>> edits = written_edits(ChatModel("Qwen/Qwen3-8B"), ["A dog on a red couch."])  # doctest: +SKIP
    """
    asked = [(text, kind) for text in dict.fromkeys(texts) for kind in KINDS]
    inputs = [f"Kind: {kind}\nText: {' '.join(text.split())}\nFalse:" for text, kind in asked]
    edits: dict[str, dict[str, list[str]]] = {}
    for (text, kind), written in zip(asked, model.write(_EDIT, inputs, "\n"), strict=True):
        changed = (written.text or "").strip()
        if not written.cut_off and differs_in_one_place(text, changed):
            edits.setdefault(text, {})[f"{kind}, written"] = [changed]
    return lambda text: edits.get(text, {})


def differs_in_one_place(text: str, changed: str) -> bool:
    """Whether one run of words was put in, taken out or exchanged: :data:`LONGEST_EDIT` and half the text at most.

    Example:
        >>> differs_in_one_place("a red dog and a cat", "a blue dog and a cat")
        True
        >>> differs_in_one_place("a red dog and a cat", "a blue dog and a hen")
        False
    """
    before, after = (re.findall(r"\w+", version.lower()) for version in (text, changed))
    edits = [edit for edit in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if edit[0] != "equal"]
    if len(edits) != 1:
        return False
    _, start, end, other_start, other_end = edits[0]
    longest = max(end - start, other_end - other_start)
    return longest <= LONGEST_EDIT and 2 * longest <= max(len(before), len(after))
