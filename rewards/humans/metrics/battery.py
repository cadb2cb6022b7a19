"""All metrics that can be run with what a user has: a judge, a CLIP model, a BERT model, references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rewards.errors import InputError
from rewards.humans.metrics.base import MetricScores, TextItem, missing_pictures, scattered
from rewards.humans.metrics.fleur import FLEUR
from rewards.humans.metrics.harmonic import GAMMAS, harmonic_reward, harmonic_scores
from rewards.humans.metrics.overall_judge import OverallJudge, short_overall_prompt
from rewards.humans.metrics.references import reference_metrics
from rewards.judges.base import Judge, UnsupportedAbility
from rewards.tifa.vqascore import VQAScore

DEFAULT_GAMMA = 0.75
HARMONIC = "HarmonicEval"
WITHOUT_CRITERIA = "w/o criterion-wise scoring"
WITHOUT_WEIGHTS = "w/o harmonic weighting"
VQASCORES = {"VQAScore": "vqascore", "VQAScore, GenEval 2's words": "geneval2"}
"""VQAScore by its two released wordings."""


def gamma_name(gamma: float) -> str:
    """Name of HarmonicEval with a gamma: the plain name for the default, a name of its own for uniform averaging."""
    return {DEFAULT_GAMMA: HARMONIC, 1.0: WITHOUT_WEIGHTS}.get(gamma, f"{HARMONIC} gamma={gamma:g}")


@dataclass
class Battery:
    """What is run on a set of texts.

    Attributes:
        judge: for HarmonicEval (every gamma), the single overall prompt, FLEUR and, for captions, VQAScore.
        clip: a metric such as CLIPScore, or None.
        bert: checkpoint for BERTScore, or None.
        notes: filled while it runs: what was left out, and why.
    """

    judge: Judge | None = None
    clip: Callable[[Sequence[TextItem]], MetricScores] | None = None
    bert: str | None = None
    notes: list[str] = field(default_factory=list)

    def score(self, task: str, items: Sequence[TextItem]) -> dict[str, MetricScores]:
        """Scores of n texts of one task by every metric that applies, in the order of the paper's tables.

        A metric that looks at pictures abstains where the picture is a path to no file; a note counts them.

        Raises:
            InputError: a judge or CLIPScore was asked for, and not one of the pictures is there.
        """
        scores = self._references(items)
        if self.judge is None and self.clip is None:
            return scores
        missing = missing_pictures(items)
        if len(missing) == len(items):
            raise InputError(f"none of the {len(items)} pictures is there; the first should be {items[0].image}")
        if missing:
            self._note(f"{len(missing)} of {len(items)} pictures are missing, the first is {items[missing[0]].image}")
        rows = sorted(set(range(len(items))) - set(missing))
        seen = [items[n] for n in rows]
        found = {} if self.clip is None else {"CLIP-S": self.clip(seen)}
        found |= {} if self.judge is None else self._judged(self.judge, task, seen)
        return scores | {name: scattered(of_metric, rows, len(items)) for name, of_metric in found.items()}

    def _references(self, items: Sequence[TextItem]) -> dict[str, MetricScores]:
        if not items or not all(item.references for item in items):
            self._note("reference-based metrics left out: not every text has references")
            return {}
        try:
            return {metric.name: metric(items) for metric in reference_metrics(self.bert)}
        except InputError as error:
            self._note(f"reference-based metrics left out: {error}")
            return {}

    def _judged(self, judge: Judge, task: str, items: Sequence[TextItem]) -> dict[str, MetricScores]:
        own = judge.prompts or {}
        short = own.get(task, own.get("captioning"))
        if own and task not in own:
            self._note(f"judge {judge.name} has prompts of its own for {', '.join(own)} only; they serve all tasks")
        scores: dict[str, MetricScores] = {}
        run: dict[str, Callable[[Judge, Sequence[TextItem]], MetricScores]] = {"FLEUR": fleur_scores}
        if task == "captioning" and not own:
            # VQAScore asks whether a text describes the picture, and in words that a trained rater never met.
            run |= {name: partial(vqascores, wording=wording) for name, wording in VQASCORES.items()}
        for name, metric in run.items():
            try:
                scores[name] = metric(judge, items)
            except UnsupportedAbility as error:
                self._note(f"{name} left out: {error}")
        if "rate" not in judge.abilities:
            if not scores:
                judge.require("rate")
            self._note(f"{HARMONIC} and the overall prompt left out: judge {judge.name} cannot rate")
            return scores
        scores[WITHOUT_CRITERIA] = OverallJudge(judge, short_overall_prompt() if short is not None else None)(items)
        if short is not None:
            self._note(f"{WITHOUT_CRITERIA}: judge {judge.name} was never trained on a prompt for all criteria at once")
        by_gamma = harmonic_scores(harmonic_reward(judge, task), items, GAMMAS)
        return scores | {gamma_name(gamma): by_gamma[gamma] for gamma in GAMMAS}

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def fleur_scores(judge: Judge, items: Sequence[TextItem]) -> MetricScores:
    """FLEUR of n texts by a judge that can go on from its own words."""
    return FLEUR(judge)(items)


def vqascores(judge: Judge, items: Sequence[TextItem], wording: str = "vqascore") -> MetricScores:
    """VQAScore of n captions, in one of its wordings, by a judge that tells how probable an answer is."""
    scores = VQAScore(judge, wording).score([item.image for item in items], [item.text for item in items])
    return MetricScores(scores.overall.double().numpy())
