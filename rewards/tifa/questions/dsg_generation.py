"""Prompt -> DSG questions, in three steps of one language model (Cho et al. 2024, arXiv 2310.18235, section 3.1).

Facts ("tuples") from the description, then a question for each fact, then what each fact depends on. The in-context
examples are our own (`prompts/dsg/`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from rewards.tifa.dependencies import NO_PARENT
from rewards.tifa.questions.dsg import DSGFile, read_item
from rewards.tifa.questions.language_model import Completion, LanguageModel, prompt_hash
from rewards.tifa.questions.parsing import Parsed

STEPS = ("tuples", "questions", "dependencies")
STOP = "\ninput:"
"""Where a model begins an example of its own."""

_LINE = re.compile(r"^\W*(\d+)\s*\|\s*(.+?)\s*$")
_TUPLE = re.compile(r"^([^-(]+?)\s*(?:-\s*([^(]+?)\s*)?\((.*)\)\s*$")


class DSGOutput(NamedTuple):
    """What a model wrote about one description in the three steps; `error`: why it wrote nothing in one of them."""

    tuples: str = ""
    questions: str = ""
    dependencies: str = ""
    error: str | None = None
    cut_off: bool = False


class Example(NamedTuple):
    """A worked description: (number, tuple, dependencies, question) of each fact."""

    description: str
    facts: list[tuple[str, str, str, str]]


@cache
def examples() -> list[Example]:
    """The in-context examples."""
    text = (files("rewards.tifa.questions") / "prompts" / "dsg" / "examples.txt").read_text(encoding="utf-8")
    found = []
    for block in text.strip().split("\n\n"):
        description, *lines = block.splitlines()
        rows = [[part.strip() for part in line.split(" | ")] for line in lines]
        found.append(Example(description, [(number, fact, needs, asked) for number, fact, needs, asked in rows]))
    return found


@cache
def few_shot(step: str) -> str:
    """Instruction and examples of one of :data:`STEPS`, without a description."""
    folder = files("rewards.tifa.questions") / "prompts" / "dsg"
    column = {"tuples": 1, "dependencies": 2, "questions": 3}[step]
    blocks = [(folder / f"{step}.txt").read_text(encoding="utf-8").strip()]
    for example in examples():
        given = [example.description]
        if step != "tuples":
            given += [f"{fact[0]} | {fact[1]}" for fact in example.facts]
        written = [f"{fact[0]} | {fact[column]}" for fact in example.facts]
        blocks.append("\n".join([f"input: {given[0]}", *given[1:], f"output: {written[0]}", *written[1:]]))
    return "\n\n".join(blocks) + "\n\n"


def prompts_hash() -> str:
    """Of all three prompts, for the provenance of questions."""
    return prompt_hash("\n".join(map(few_shot, STEPS)))


def ask(model: LanguageModel, descriptions: Sequence[str]) -> list[DSGOutput]:
    """The three steps for some descriptions (texts of one line), each step in one call of the model."""
    outputs = [DSGOutput() for _ in descriptions]
    for step in STEPS:
        rows = [row for row, output in enumerate(outputs) if output.error is None]
        inputs = [_input(step, descriptions[row], outputs[row].tuples) for row in rows]
        for row, completion in zip(rows, model.write(few_shot(step), inputs, STOP), strict=True):
            outputs[row] = _with(outputs[row], step, completion)
    return outputs


def _input(step: str, description: str, tuples: str) -> str:
    facts = "" if step == "tuples" else "".join(f"\n{number} | {fact}" for number, fact in _lines(tuples).items())
    return f"input: {description}{facts}\noutput:"


def _with(output: DSGOutput, step: str, completion: Completion) -> DSGOutput:
    if completion.text is None:
        return output._replace(error=f"{step}: {completion.error}")
    text = completion.text.split(STOP)[0].removeprefix("output:")
    output = output._replace(**{step: text}, cut_off=output.cut_off or completion.cut_off)
    return output._replace(error="tuples: the model wrote none") if not _lines(output.tuples) else output


def parse_dsg(output: DSGOutput, prompt: str, id: str | int) -> Parsed:
    """The questions of one prompt, and what could not be used.

    Example:
        >>> made = parse_dsg(
        ...     DSGOutput("1 | entity - whole (car)\\n2 | attribute - color (car, red)",
        ...               "1 | Is there a car?\\n2 | Is the car red?", "1 | 0\\n2 | 1"), "a red car", "a")
        >>> made.questions[1].element_type, made.questions[1].depends_on
        ('attribute.color', ('Is there a car?',))
    """
    facts, questions, needed = (_lines(text) for text in output[:3])
    if output.cut_off and len(facts) > 1:  # the last fact may be half of one
        facts.popitem()
    rows = []
    for number, fact in facts.items():
        broad, detailed, arguments = _category(fact)
        row = {
            "item_id": str(id),
            "text": prompt,
            "keywords": arguments,
            "proposition_id": number,
            "dependency": needed.get(number, NO_PARENT),
            "category_broad": broad,
            "category_detailed": detailed,
            "tuple": fact,
            "question_natural_language": questions.get(number, ""),
        }
        rows.append((f"fact {number}", row))
    found = DSGFile()
    read_item(rows, found)
    return Parsed(found.questions, [*found.problems, *found.warnings])


def _lines(text: str) -> dict[str, str]:
    """Numbered lines "1 | ..."; of a number that comes twice the first."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            found.setdefault(match[1], match[2])
    return found


def _category(fact: str) -> tuple[str, str, str]:
    """(broad category, detail or "-", arguments) of "attribute - color (car, red)"."""
    match = _TUPLE.match(fact)
    if match is None:
        return "other", "-", fact
    return match[1].strip().lower(), (match[2] or "-").strip().lower(), match[3].strip()


def provenance(identity: Mapping[str, object]) -> dict[str, object]:
    """A model's identity with the hash of these prompts in place of TIFA's."""
    return {**identity, "form": "dsg", "prompt_hash": prompts_hash()}
