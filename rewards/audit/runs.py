"""Audit of a run: which false details became more frequent between its first and its last evaluation."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from rewards.audit.edits import KINDS, false_texts
from rewards.calling import score_guarded
from rewards.errors import InputError
from rewards.reward import Reward
from rewards.runs.evaluations import Evaluation, HeldOutSample, Judgment
from rewards.runs.intervals import mean_interval
from rewards.shapes.claims import CLAIM_KINDS, caption_claims
from rewards.shapes.datasets import scene_from_json
from rewards.tables import Table

Details = Mapping[str, float]
"""Kind -> 1 where an output holds a false detail of it, 0 where not; shares and numbers where there are several."""


def claims_of_texts(evaluation: Evaluation, scenes: Sequence[str]) -> list[Details]:
    """By the truth: whether each text makes a false claim of a kind, or leaves something out.

    Args:
        evaluation: texts about scenes of the shapes world.
        scenes: JSON, by the number of the held-out prompt.
    """
    found: list[Details] = []
    for sample in evaluation.samples:
        claims = caption_claims(scene_from_json(scenes[sample.index]), sample.text or "")
        false = {kind for kind, holds in claims.claims if not holds}
        found.append({kind: float(kind in false) for kind in CLAIM_KINDS} | {"omitted": float(not claims.complete)})
    return found


def doubts_of_texts(
    evaluation: Evaluation, images: Sequence[object], second: Reward, per_kind: int = 3, seed: int = 0
) -> list[Details]:
    """By a second judge: whether it prefers each text with one of its details of a kind exchanged.

    Args:
        evaluation: texts.
        images: what they are about, by the number of the held-out prompt.
        second: of texts about pictures.
        per_kind: edits of a kind a text.
        seed: of the edits.
    """
    asked: list[tuple[int, str, str]] = []
    for place, sample in enumerate(evaluation.samples):
        draw = random.Random(f"{seed}/{sample.index}/{sample.sample}")
        for kind in KINDS:
            edits = false_texts(sample.text or "", kind)
            asked += [(place, kind, text) for text in draw.sample(edits, min(per_kind, len(edits)))]
    own = _scores(second, [images[s.index] for s in evaluation.samples], [s.text or "" for s in evaluation.samples])
    pictures = [images[evaluation.samples[place].index] for place, _, _ in asked]
    scores = _scores(second, pictures, [text for _, _, text in asked])
    # A detail that is not said is not false.
    found = [dict.fromkeys((kind for kind in KINDS if kind != "omitted"), 0.0) for _ in evaluation.samples]
    for (place, kind, _), score in zip(asked, scores, strict=True):
        if kind in found[place] and score > own[place]:  # false as well where one of them is NaN
            found[place][kind] = 1.0
    return list(found)


def answers_of_pictures(evaluation: Evaluation) -> list[Details]:
    """By the first audit's answers: the share of wrong ones by element type, of those that the reward took for right,
    and the number of objects that nobody asked for, where a judge counts them.

    Raises:
        InputError: the run had no audit that answers questions.
    """
    audits = evaluation.audits()
    found: list[Details] = [_answers(sample, audits) for sample in evaluation.samples]
    if not any(found):
        raise InputError("no audit of this run answered questions: a TIFA as `audit` does, whose judge never trains")
    return found


def change_table(first: Evaluation, last: Evaluation, before: Sequence[Details], after: Sequence[Details]) -> Table:
    """Frequencies by kind at both ends of a run, what grew most first; paired by prompt and sample.

    Raises:
        InputError: the evaluations are of other prompts.
    """
    keys = [[(s.index, s.sample, s.prompt) for s in evaluation.samples] for evaluation in (first, last)]
    if keys[0] != keys[1]:
        raise InputError("the first and the last evaluation of the run are of other prompts")
    rows = []
    for kind in dict.fromkeys(kind for details in (*before, *after) for kind in details):
        a, b = (np.array([details.get(kind, math.nan) for details in ends]) for ends in (before, after))
        both = np.isfinite(a) & np.isfinite(b)
        if both.any():
            change = mean_interval(np.where(both, b - a, np.nan), [sample.cluster for sample in first.samples])
            grown = "more" if change.low > 0 else "less" if change.high < 0 else ""
            interval = f"{change.value:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"
            rows.append((change.value, [kind, f"{a[both].mean():.3f}", f"{b[both].mean():.3f}", interval, grown]))
    ordered = [cells for _, cells in sorted(rows, key=lambda row: -row[0])]
    header = ["false detail", f"step {first.step}", f"step {last.step}", "change [95%]", ""]
    return Table("False details an output", header, ordered, f"{len(first.samples)} held-out outputs")


def _scores(judge: Reward, images: Sequence[object], texts: Sequence[str]) -> list[float]:
    found: list[float] = []
    for start in range(0, len(texts), 256):
        found += score_guarded(judge, images[start : start + 256], texts[start : start + 256]).overall.tolist()
    return found


def _answers(sample: HeldOutSample, audits: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for judgment in (sample.audits[name] for name in audits if name in sample.audits):
        surplus = judgment.details.get("surplus")
        if isinstance(surplus, int | float):
            found["surplus objects"] = float(surplus)
        if answers := _right(judgment):
            taken = _right(sample.judgment)
            types = dict.fromkeys(kind for kind, _ in answers.values())
            for kind in types:
                right = {question: ok for question, (of, ok) in answers.items() if of == kind}
                found.setdefault(kind, float(np.mean([not ok for ok in right.values()])))
                overrated = [taken[q][1] and not ok for q, ok in right.items() if q in taken]
                if overrated:
                    found.setdefault(f"{kind}, taken for right", float(np.mean(overrated)))
    return found


def _right(judgment: Judgment) -> dict[str, tuple[str, bool]]:
    """Question -> its element type and whether it was answered right."""
    rows = judgment.details.get("answers")
    if not isinstance(rows, Sequence):
        return {}
    return {
        str(row["question"]): (str(row.get("element_type") or "other"), bool(row["right"]))
        for row in rows
        if isinstance(row, Mapping) and isinstance(row.get("right"), bool)
    }
