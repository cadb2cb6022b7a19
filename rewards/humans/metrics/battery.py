"""All metrics that can be run with what a user has: a judge, a CLIP model, a BERT model, references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.errors import InputError
from rewards.harmonic.reward import HarmonicEval
from rewards.humans.metrics.base import MetricScores, TextItem
from rewards.humans.metrics.harmonic import GAMMAS, harmonic_scores
from rewards.humans.metrics.overall_judge import DigitSmoothing, OverallJudge, short_overall_prompt
from rewards.humans.metrics.references import reference_metrics
from rewards.judges.base import UnsupportedAbility

DEFAULT_GAMMA = 0.75
HARMONIC = "HarmonicEval"
WITHOUT_CRITERIA = "w/o criterion-wise scoring"
WITHOUT_WEIGHTS = "w/o harmonic weighting"


def gamma_name(gamma: float) -> str:
    """Name of HarmonicEval with a gamma: the plain name for the default, a name of its own for uniform averaging."""
    return {DEFAULT_GAMMA: HARMONIC, 1.0: WITHOUT_WEIGHTS}.get(gamma, f"{HARMONIC} gamma={gamma:g}")


@dataclass
class Battery:
    """What is run on a set of texts.

    Attributes:
        judge: for HarmonicEval (every gamma), the single overall prompt, and FLEUR-style digits; None leaves them out.
        clip: a metric such as CLIPScore, or None.
        bert: checkpoint for BERTScore, or None.
        notes: filled while it runs: what was left out, and why.
    """

    judge: Any = None
    clip: Callable[[Sequence[TextItem]], MetricScores] | None = None
    bert: str | None = None
    notes: list[str] = field(default_factory=list)

    def score(self, task: str, items: Sequence[TextItem]) -> dict[str, MetricScores]:
        """Scores of n texts of one task by every metric that applies, in the order of the paper's tables."""
        scores = self._references(items)
        if self.clip is not None:
            scores["CLIP-S"] = self.clip(items)
        return scores | (self._judged(task, items) if self.judge is not None else {})

    def _references(self, items: Sequence[TextItem]) -> dict[str, MetricScores]:
        if not all(item.references for item in items):
            self._note("reference-based metrics left out: not every text has references")
            return {}
        try:
            return {metric.name: metric(items) for metric in reference_metrics(self.bert)}
        except InputError as error:
            self._note(f"reference-based metrics left out: {error}")
            return {}

    def _judged(self, task: str, items: Sequence[TextItem]) -> dict[str, MetricScores]:
        own = self.judge.prompts or {}
        short = own.get(task, own.get("captioning"))
        if own and task not in own:
            self._note(
                f"judge {self.judge.name} has prompts of its own for {', '.join(own)} only; they serve all tasks"
            )
        scores: dict[str, MetricScores] = {}
        try:
            scores["FLEUR-style"] = DigitSmoothing(self.judge)(items)
        except UnsupportedAbility as error:
            self._note(f"FLEUR-style digits left out: {error}")
        scores[WITHOUT_CRITERIA] = OverallJudge(self.judge, short_overall_prompt() if short is not None else None)(
            items
        )
        if short is not None:
            self._note(
                f"{WITHOUT_CRITERIA}: judge {self.judge.name} was never trained on a prompt for all criteria at once"
            )
        reward = HarmonicEval(self.judge, task=task, prompts=short)
        by_gamma = harmonic_scores(reward, items, GAMMAS)
        return scores | {gamma_name(gamma): by_gamma[gamma] for gamma in GAMMAS}

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
