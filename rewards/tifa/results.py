"""From a benchmark's answers to the official result file, and to what it leaves out: intervals, sources, entities."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from rewards._version import __version__
from rewards.runs.files import Json, Row, write_whole
from rewards.runs.intervals import Estimate, share
from rewards.tifa.benchmark import Answer, Judged
from rewards.tifa.geneval2 import geneval2_report
from rewards.tifa.questions.geneval2 import ATOMICITY
from rewards.tifa.questions.question import ENTITY_TYPES, Question, question_to_row
from rewards.tifa.scoring import (
    accuracy_by_type,
    faithfulness,
    macro_deviation,
    macro_mean,
    pooled_accuracy,
)  # fmt: skip

SOURCES = ("coco", "drawbench", "partiprompt", "paintskill")
"""Where TIFA v1.0's prompts come from: the first part of their ids."""

Key = TypeVar("Key", str, int)
Questions = Mapping[str | int, Sequence[Question]]


def official_result(judged: Sequence[Judged], questions: Questions) -> dict[str, Json]:
    """The result as the official scorer writes it.

    Args:
        judged: Answers, one entry a picture.
        questions: The questions of every id in `judged`.

    Returns:
        `tifa_average` (macro), `tifa_stdev` (0 for one prompt; the official scorer raises there), `accuracy_by_type`
        (pooled), `question_details` (each row of the question file with `free_form_vqa`, `multiple_choice_vqa` and
        `scores`) and `caption_scores`. Where a prompt has several pictures, the two answers are lists and `scores` is
        their mean. Pictures without a score are left out; values that do not exist are null.
    """
    scores = _scores_by_id(judged)
    macro, deviation = macro_mean(scores), macro_deviation(scores)
    by_type = accuracy_by_type(_typed_scores(judged, questions))
    by_id: dict[str | int, list[Judged]] = {id: [] for id in scores}
    for row in judged:
        if row.reason is None:
            by_id[row.id].append(row)
    details: dict[str, Json] = {}
    for id, rows in by_id.items():
        if rows:
            details[str(id)] = {
                question.text: _detail(question, [row.answers[position] for row in rows])
                for position, question in enumerate(questions[id])
            }
    return {
        "tifa_average": _number(macro),
        "tifa_stdev": _number(deviation),
        "accuracy_by_type": {name: _number(mean) for name, (mean, _) in by_type.items()},
        "question_details": details,
        "caption_scores": {str(id): _number(value) for id, value in _means(scores).items()},
    }


def _detail(question: Question, answers: Sequence[Answer]) -> dict[str, Json]:
    # As the official scorer: a judge that chooses has no words of its own.
    words = [answer.choice if answer.free_form is None else answer.free_form for answer in answers]
    choices = [answer.choice for answer in answers]
    scores = [float(answer.score or 0) for answer in answers]
    one = len(answers) == 1
    return question_to_row(question) | {
        "free_form_vqa": words[0] if one else words,
        "multiple_choice_vqa": choices[0] if one else choices,
        "scores": _number(fmean(scores)),
    }


def summary(judged: Sequence[Judged], questions: Questions, resamples: int = 2000, seed: int = 0) -> dict[str, Json]:
    """What the official result leaves out.

    Args:
        judged: Answers, one entry a picture.
        questions: The questions of every id in `judged`.
        resamples: Of the bootstrap, which draws prompts (with all of their pictures and questions) with replacement.
        seed: Of the bootstrap.

    Returns:
        `macro` and `pooled` scores, each with its 95% interval; `by_element_type` (pooled mean and count),
        `by_source` and `by_entities` (macro mean and prompts; TIFA tab. 4 and fig. 9); `abstained` pictures with
        reasons; `unmatched` answers; and counts. For GenEval 2's questions also `geneval2`
        (:func:`rewards.tifa.geneval2.geneval2_report`).
    """
    scores = _scores_by_id(judged)
    means = _means(scores)
    answers = [(row.id, answer) for row in judged if row.reason is None for answer in row.answers]
    right: dict[str | int, list[float]] = {id: [] for id in means}
    for id, answer in answers:
        right[id].append(float(answer.score or 0))
    pooled, count = pooled_accuracy([score for values in right.values() for score in values])
    by_type = accuracy_by_type(_typed_scores(judged, questions))
    sums, counts = [sum(values) for values in right.values()], [len(values) for values in right.values()]
    over_prompts = share(list(means.values()), [1] * len(means), resamples=resamples, seed=seed).estimate()
    over_questions = share(sums, counts, resamples=resamples, seed=seed).estimate()
    return {
        "macro": {
            "mean": _number(macro_mean(scores)),
            "interval": [_number(over_prompts.low), _number(over_prompts.high)],
        },
        "pooled": {"mean": _number(pooled), "interval": _ends(over_questions)},
        "by_element_type": {name: {"mean": _number(mean), "questions": n} for name, (mean, n) in by_type.items()},
        "by_source": _grouped(means, source),
        "by_entities": _grouped(means, lambda id: entities(questions[id])),
        "prompts": len(means),
        "pictures": sum(row.reason is None for row in judged),
        "questions": count,
        "unmatched": sum(answer.how == "unmatched" for _, answer in answers),
        "abstained": [{"id": row.id, "image": row.name, "reason": row.reason} for row in judged if row.reason],
        "version": __version__,
        **_geneval2(judged, questions),
    }


def _ends(estimate: Estimate) -> list[float | None]:
    return [_number(estimate.low), _number(estimate.high)]


def _geneval2(judged: Sequence[Judged], questions: Questions) -> dict[str, Json]:
    """GenEval 2's report, where every question knows the atomicity of its prompt."""
    rows = [row for row in judged if row.reason is None]
    asked = [questions[row.id] for row in rows]
    if not rows or not all(ATOMICITY in question.extra for of_prompt in asked for question in of_prompt):
        return {}
    report = geneval2_report(
        [[float(answer.score or 0) for answer in row.answers] for row in rows],
        [[question.element_type for question in of_prompt] for of_prompt in asked],
        [of_prompt[0].extra[ATOMICITY] for of_prompt in asked],
    )
    return {
        "geneval2": {
            "arithmetic": report.arithmetic,
            "geometric": report.geometric,
            "by_skill": {name: {"mean": mean, "questions": n} for name, (mean, n) in report.by_skill.items()},
            "by_atomicity": {str(k): {"mean": mean, "pictures": n} for k, (mean, n) in report.by_atomicity.items()},
        }
    }


def source(id: str | int) -> str:
    """Where a prompt of TIFA v1.0 comes from, by its id; "other" for prompts of one's own.

    Example:
        >>> source("drawbench_52"), source(7)
        ('drawbench', 'other')
    """
    first = str(id).split("_")[0]
    return first if first in SOURCES else "other"


def entities(questions: Sequence[Question]) -> int:
    """Number of a prompt's entities: distinct elements that are objects, animals, humans or food (TIFA fig. 9)."""
    return len({q.element.strip().casefold() for q in questions if q.element_type in ENTITY_TYPES})


def _grouped(means: Mapping[str | int, float], group: Callable[[str | int], Key]) -> dict[str, Json]:
    groups: dict[Key, list[float]] = {}
    for id, mean in means.items():
        groups.setdefault(group(id), []).append(mean)
    return {str(name): {"mean": fmean(groups[name]), "prompts": len(groups[name])} for name in sorted(groups)}


def _scores_by_id(judged: Sequence[Judged]) -> dict[str | int, list[float]]:
    scores: dict[str | int, list[float]] = {}
    for row in judged:
        # A picture without a score has a reason; all the others have a score for every question.
        values = [] if row.reason else [math.nan if a.score is None else a.score for a in row.answers]
        scores.setdefault(row.id, []).append(faithfulness(values))
    return scores


def _means(scores: Mapping[str | int, Sequence[float]]) -> dict[str | int, float]:
    means = {id: macro_mean({id: values}) for id, values in scores.items()}
    return {id: mean for id, mean in means.items() if not math.isnan(mean)}


def _typed_scores(judged: Sequence[Judged], questions: Questions) -> list[tuple[str, float]]:
    return [
        (question.element_type, float(answer.score or 0))
        for row in judged
        if row.reason is None
        for question, answer in zip(questions[row.id], row.answers, strict=True)
    ]


def _number(value: float) -> float | int | None:
    # Whole numbers are written as the official scorer does: 1, not 1.0.
    if math.isnan(value):
        return None
    return int(value) if value == int(value) else value


def write_result(path: str | Path, result: Mapping[str, Json]) -> None:
    """Write a result file whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(result, indent=4, ensure_ascii=False) + "\n")


def plot_summary(path: str | Path, numbers: Row) -> None:
    """Bars by element type (pooled) and by source (macro), and the score by number of entities (TIFA fig. 8 and 9)."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4), width_ratios=(2, 1, 1), layout="constrained")
    panels = (("by_element_type", "questions", "accuracy by element type"), ("by_source", "prompts", "TIFA by source"))
    for axis, (key, counted, title) in zip(axes, panels):
        rows = {name: row for name, row in numbers[key].items() if row["mean"] is not None}
        labels = [f"{name}\n(n={row[counted]})" for name, row in rows.items()]
        axis.bar(labels, [row["mean"] for row in rows.values()], color="#4878a8")
        axis.tick_params(axis="x", rotation=60)
        axis.set(title=title, ylim=(0, 1))
    counts = numbers["by_entities"]
    axes[2].plot([int(name) for name in counts], [row["mean"] for row in counts.values()], "o-", color="#a85048")
    axes[2].set(title="TIFA by number of entities", xlabel="entities in the prompt", ylim=(0, 1))
    axes[2].set_xticks([int(name) for name in counts])
    macro = numbers["macro"]
    if macro["mean"] is not None:
        figure.suptitle(f"TIFA {macro['mean']:.3f}, {numbers['prompts']} prompts")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
