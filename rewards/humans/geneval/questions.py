"""GenEval's annotation questions as TIFA questions for a judge: count, colour and position, with choices.

The answer that the prompt wants is `gold`, where it wants one: the count under tag `counting`, a colour under `colors`
and `color_attr`, a side under `position`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewards.errors import InputError
from rewards.humans.files import text
from rewards.humans.geneval.annotations import AXES, COLORS, COUNTS, AnnotatedPicture, Prompt
from rewards.judges.base import Judge
from rewards.runs.csv_files import csv_rows
from rewards.runs.files import numbered_lines

SKILLS = ("count", "color", "position")
_SIDES = {"left of": ("x", "left"), "right of": ("x", "right"), "above": ("y", "above"), "below": ("y", "below")}


@dataclass(frozen=True)
class PictureQuestion:
    """A question about one annotated picture.

    Attributes:
        picture: which.
        id: `count-0`, `color-1`, `position-x`, ...
        skill: count, color or position.
        question: its words.
        choices: what can be answered, in the annotators' terms.
        gold: what the prompt wants; None where it wants nothing.
    """

    picture: AnnotatedPicture
    id: str
    skill: str
    question: str
    choices: tuple[str, ...]
    gold: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        """Generator, picture (`<prompt>_<image>`) and question: what answers are joined by."""
        return self.picture.generator, f"{self.picture.prompt_id}_{self.picture.image_id}", self.id


def questions_of(picture: AnnotatedPicture, prompt: Prompt) -> list[PictureQuestion]:
    """The questions that its annotators were asked, for a judge.

    Raises:
        InputError: the metadata's line is of another prompt.
    """
    if prompt.prompt != picture.caption:
        raise InputError(f"prompt {picture.prompt_id} is {prompt.prompt!r} in the metadata, {picture.caption!r} here")
    found = []
    for id_ in picture.answers:
        skill, _, which = id_.partition("-")
        choices: tuple[str, ...]
        if skill == "count":
            words, choices = f"How many {picture.plurals[int(which)]} are in the picture?", COUNTS
        elif skill == "color":
            words, choices = f"What color is the {picture.objects[int(which)]}?", COLORS
        else:
            sides = AXES[which]
            words = f"Is the {picture.objects[1]} {sides[0]} or {sides[1]} of the {picture.objects[0]}, or neither?"
            words = words if which == "x" else words.replace(" of the", " the")
            choices = sides
        found.append(PictureQuestion(picture, id_, skill, words, choices, _gold(skill, which, prompt)))
    return found


def prompt_of(picture: AnnotatedPicture, prompts: Sequence[Prompt]) -> Prompt:
    """The metadata of a picture's prompt.

    Raises:
        InputError: there is no such line.
    """
    if picture.prompt_id >= len(prompts):
        raise InputError(f"prompt {picture.prompt_id} is not among the {len(prompts)} lines of the metadata")
    return prompts[picture.prompt_id]


def ask(judge: Judge, questions: Sequence[PictureQuestion], images: Path) -> list[str | None]:
    """The judge's likeliest choice for each question; None where it abstained or the picture is missing.

    Raises:
        InputError: not one of the pictures is there.
    """
    paths = [images / question.picture.image for question in questions]
    rows = [n for n, path in enumerate(paths) if path.is_file()]
    if not rows:
        raise InputError(f"none of the {len(paths)} pictures is there; the first should be {paths[0]}")
    chosen = judge.choose(
        [str(paths[n]) for n in rows],
        [questions[n].question for n in rows],
        [questions[n].choices for n in rows],
    )
    answers: list[str | None] = [None] * len(questions)
    for n, log_probabilities in zip(rows, chosen, strict=True):
        if not log_probabilities.isnan().any():
            answers[n] = questions[n].choices[int(log_probabilities.argmax())]
    return answers


def read_judge_answers(path: str | Path, questions: Sequence[PictureQuestion]) -> list[str | None]:
    """Answers of any judge: `generator`, `index` (`220_2`), `question` (`count-0`) and `answer`, as JSONL or CSV.

    Returns:
        One answer a question; None where the file has none, or an empty one.

    Raises:
        InputError: a missing column, an answer that is none of the choices, or two answers to one question; with line.
    """
    wanted = {question.key: question for question in questions}
    given: dict[tuple[str, str, str], str | None] = {}
    for line, row in numbered_lines(path) if Path(path).suffix == ".jsonl" else csv_rows(path):
        where = f"{path}, line {line}"
        key = text(row, "generator", where), text(row, "index", where), text(row, "question", where)
        if key in given:
            raise InputError(f"{where}: {' '.join(key)} is answered twice")
        answer = str(row.get("answer") or "").strip().lower()
        if answer and key in wanted and answer not in wanted[key].choices:
            raise InputError(f"{where}: {answer!r} is no answer; {', '.join(wanted[key].choices)} are")
        given[key] = answer or None
    return [given.get(question.key) for question in questions]


def listed(question: PictureQuestion) -> dict[str, object]:
    """A question as a row for whoever answers elsewhere; with `answer` added it is read back."""
    generator, index, id_ = question.key
    return {
        "generator": generator,
        "index": index,
        "question": id_,
        "image": question.picture.image,
        "text": question.question,
        "choices": list(question.choices),
    }


def _gold(skill: str, which: str, prompt: Prompt) -> str | None:
    if skill == "count" and prompt.tag == "counting":
        return str(prompt.include[int(which)]["count"]) if int(which) < len(prompt.include) else None
    if skill == "color":
        wanted = prompt.include[int(which)].get("color") if int(which) < len(prompt.include) else None
        return str(wanted) if wanted is not None else None
    if skill == "position" and prompt.tag == "position":
        position = prompt.include[1].get("position")
        axis, side = _SIDES[str(position[0])] if isinstance(position, list) else ("", "")
        return side if axis == which else None
    return None
