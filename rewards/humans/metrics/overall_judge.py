"""A judge asked once for an overall score: HarmonicEval's ablation, and FLEUR's smoothing (Lee et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from rewards.harmonic.criteria import CRITERIA, render
from rewards.harmonic.weighting import expected_rating, normalize_ratings
from rewards.humans.metrics.base import MetricScores, TextItem


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
    ratings: tuple[float, ...] = (1, 2, 3, 4, 5)
    words: tuple[str, ...] = ("1", "2", "3", "4", "5")
    prompt_file = "overall.txt"

    def __init__(self, judge: Any, prompt: str | None = None, min_rating_mass: float = 0.1) -> None:
        self.judge = judge
        self.prompt = prompt if prompt is not None else _prompt(self.prompt_file)
        self.min_rating_mass = min_rating_mass

    def __call__(self, items: Sequence[TextItem]) -> MetricScores:
        """Score n texts; NaN where the judge gave no rating."""
        prompts = [render(self.prompt, item.text, item.input) for item in items]
        rated = self.judge.rate([item.image for item in items], prompts, self.words)
        normal, mass = normalize_ratings(rated.probabilities.nan_to_num(0.0))
        overall = expected_rating(normal, self.ratings).double().numpy()
        return MetricScores(np.where(mass.numpy() >= self.min_rating_mass, overall, np.nan))


class DigitSmoothing(OverallJudge):
    """FLEUR-style smoothing on the scale from 0.0 to 1.0: the expected first decimal.

    FLEUR lets its judge write "0.85" and smooths both decimals, sum_d d P(d) / 10 + sum_d d P'(d) / 100. A judge here
    gives the distribution at one answer position, so that the first decimal is asked for directly; the second would
    add at most 0.09.
    """

    name = "FLEUR-style"
    ratings = tuple(digit / 10 for digit in range(10))
    words = tuple(str(digit) for digit in range(10))
    prompt_file = "digit.txt"


def short_overall_prompt() -> str:
    """The overall prompt in the short form of the shapes world's rater, which was never trained on it.

    Example:
        >>> short_overall_prompt()
        '{text} . correctness completeness clarity fluency conciseness'
    """
    return "{text} . " + " ".join(CRITERIA)


def _prompt(name: str) -> str:
    return (files("rewards.humans.metrics") / "prompts" / name).read_text(encoding="utf-8").strip()
