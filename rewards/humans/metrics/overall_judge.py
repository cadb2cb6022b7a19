"""A judge asked once for an overall score: HarmonicEval without criterion-wise scoring (table 5)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np

from rewards.harmonic.criteria import CRITERIA, render
from rewards.harmonic.weighting import expected_rating, normalize_ratings
from rewards.humans.metrics.base import MetricScores, TextItem
from rewards.judges.base import Judge


class OverallJudge:
    """One prompt for all criteria: "without criterion-wise scoring" (HarmonicEval table 5).

    The expected rating over 1 to 5, renormalised over the ratings as HarmonicEval does by default.

    Args:
        judge: one that rates.
        prompt: a template with `{text}` and, where a question is asked, `{input}`; default: `prompts/overall.txt`.
        min_rating_mass: less probability on the ratings than this abstains.
    """

    name = "w/o criterion-wise scoring"
    needs_references = False

    def __init__(self, judge: Judge, prompt: str | None = None, min_rating_mass: float = 0.1) -> None:
        self.judge = judge
        self.prompt = prompt if prompt is not None else _prompt("overall.txt")
        self.min_rating_mass = min_rating_mass

    def __call__(self, items: Sequence[TextItem]) -> MetricScores:
        """Score n texts; NaN where the judge gave no rating."""
        prompts = [render(self.prompt, item.text, item.input) for item in items]
        rated = self.judge.rate([item.image for item in items], prompts)
        normal, mass = normalize_ratings(rated.probabilities.nan_to_num(0.0))
        overall = expected_rating(normal, (1, 2, 3, 4, 5)).double().numpy()
        return MetricScores(np.where(mass.numpy() >= self.min_rating_mass, overall, np.nan))


def short_overall_prompt() -> str:
    """The overall prompt in the short form of the shapes world's rater, which was never trained on it.

    Example:
        >>> short_overall_prompt()
        '{text} . correctness completeness clarity fluency conciseness'
    """
    return "{text} . " + " ".join(CRITERIA)


def _prompt(name: str) -> str:
    return (files("rewards.humans.metrics") / "prompts" / name).read_text(encoding="utf-8").strip()
