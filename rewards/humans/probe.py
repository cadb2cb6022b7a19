"""Probes of a judge: is it as certain as it is right, and does it move when it should not?

- Reliability: does the deviation sigma of a criterion's rating distribution predict the error of its expected rating,
  and do predicted probabilities of the ratings match how often people give them? Harmonic weighting stands on the
  first.
- Length: does the error grow with the number of words?
- Position: does the order of the scale in the prompt (1 to 5, or 5 to 1) change the rating?
- Paraphrase: does another wording of the criterion prompt?
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rewards.harmonic.reward import HarmonicEval
from rewards.humans.metrics.base import TextItem
from rewards.humans.metrics.harmonic import score_items
from rewards.humans.statistics.agreement import agreement
from rewards.humans.statistics.pair_counts import Array, Integers
from rewards.humans.tables import with_interval
from rewards.runs.files import finite_or_none
from rewards.runs.intervals import Estimate
from rewards.tables import text_table

SIGMA_BINS = 4
_SCALE_LINE = re.compile(r"^\s*(?:- )?\d\b.*$", re.MULTILINE)

# Rewordings of the frame that leave criterion and scale alone; each must leave a judge of the criterion unmoved.
PARAPHRASES: dict[str, tuple[tuple[str, str], ...]] = {
    "polite": (("Rate ", "Please rate "), ("Answer with one number", "Please answer with one number")),
    "verb": (("Rate ", "Assess "), ("Criterion:", "What to look at:")),
    "comma": ((" . ", " , "),),
    "frame": (
        ("Use the criterion and the scale below, and nothing else.", "Only the criterion and scale below count."),
    ),
}


@dataclass(frozen=True)
class CriterionProbe:
    """One criterion's probes.

    Attributes:
        sigma_predicts_error: Spearman's rho of sigma with the absolute error; above 0 means that certainty is earned.
        error_by_sigma: (mean sigma, mean absolute error, items) for quarters of the items by sigma.
        calibration_error: mean gap between predicted and observed frequency of a rating (expected calibration error).
        length: Spearman's rho of the error (score minus human) with the number of words.
    """

    sigma_predicts_error: Estimate
    error_by_sigma: list[tuple[float, float, int]]
    calibration_error: float
    length: Estimate


@dataclass(frozen=True)
class Probe:
    """All probes of a judge.

    Attributes:
        criteria: CriterionProbe by criterion.
        shifts: probe name ("scale reversed", "paraphrase polite", ...) -> criterion -> (mean absolute change of the
            score, Kendall's tau-b between the two scores).
        items: texts judged.
        notes: probes that do not apply to this judge's prompts.
    """

    criteria: dict[str, CriterionProbe]
    shifts: dict[str, dict[str, tuple[float, float]]]
    items: int
    notes: list[str]

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        criteria = {
            name: {
                "sigma_predicts_error": vars(c.sigma_predicts_error),
                "error_by_sigma": [list(row) for row in c.error_by_sigma],
                "calibration_error": c.calibration_error,
                "length": vars(c.length),
            }
            for name, c in self.criteria.items()
        }
        shifts = {name: {c: list(pair) for c, pair in row.items()} for name, row in self.shifts.items()}
        return finite_or_none({"items": self.items, "criteria": criteria, "shifts": shifts, "notes": self.notes})

    def text(self) -> str:
        """Tables for people."""
        rows = [
            [name, with_interval(c.sigma_predicts_error), f"{c.calibration_error:.3f}", with_interval(c.length)]
            + [f"{error:.2f}" for _, error, _ in c.error_by_sigma]
            for name, c in self.criteria.items()
        ]
        quarters = [f"error, sigma q{n + 1}" for n in range(SIGMA_BINS)]
        header = ["criterion", "rho(sigma, |error|)", "calibration gap", "rho(words, error)", *quarters]
        tables = [f"{self.items} texts; correlations x 100 with 95% intervals", text_table(header, rows)]
        if self.shifts:
            names = list(self.criteria)
            cells = [
                [probe, *(f"{row[name][0]:.2f} (tau {row[name][1]:.2f})" for name in names)]
                for probe, row in self.shifts.items()
            ]
            tables.append("mean change of the score\n" + text_table(["changed prompt", *names], cells))
        return "\n\n".join([*tables, *(f"note: {note}" for note in self.notes)])


def probe_judge(
    reward: HarmonicEval,
    items: Sequence[TextItem],
    human: Mapping[str, Sequence[float]],
    *,
    paraphrases: Mapping[str, Mapping[str, str]] | None = None,
    groups: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Probe:
    """Probe HarmonicEval's judge on texts with human (or true) ratings.

    Args:
        reward: a HarmonicEval.
        items: n texts of its task.
        human: criterion -> n ratings on the reward's scale, for each of its criteria.
        paraphrases: name -> criterion -> template, wordings of your own beside PARAPHRASES.
        groups: n labels of what is resampled together, e.g. the picture.
        resamples, seed: of the intervals.
    """
    scores = score_items(reward, items)
    judged = (~scores.abstained).numpy()
    kept = np.flatnonzero(judged)
    labels = [groups[int(n)] for n in kept] if groups is not None else None
    words = np.array([len(items[int(n)].text.split()) for n in kept], dtype=float)
    probes = {}
    for c, name in enumerate(reward.criteria):
        truth = np.asarray(human[name], dtype=float)[kept]
        score, sigma = (getattr(scores, field)[kept, c].double().numpy() for field in ("criteria", "sigma"))
        error = score - truth

        def rho(x: Array, y: Array, labels: Sequence[Hashable] | None = labels) -> Estimate:
            return agreement(x, y, labels, resamples=resamples, seed=seed)["spearman"]

        probes[name] = CriterionProbe(
            rho(sigma, np.abs(error)),
            error_by_sigma(sigma, np.abs(error)),
            calibration_error(scores.probabilities[kept, c].double().numpy(), truth, reward.ratings),
            rho(words, error),
        )
    shifts, notes = _shifts(reward, items, scores.criteria.double().numpy(), kept, paraphrases or {})
    return Probe(probes, shifts, len(kept), notes)


def error_by_sigma(sigma: Array, error: Array) -> list[tuple[float, float, int]]:
    """(mean sigma, mean error, items) of the items in quarters by sigma, smallest first.

    Example:
        >>> error_by_sigma(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 1.0, 2.0, 3.0]))[0]
        (0.1, 0.0, 1)
    """
    parts = np.array_split(np.argsort(sigma, kind="stable"), SIGMA_BINS)
    return [(float(sigma[p].mean()), float(error[p].mean()), len(p)) for p in parts if len(p)]


def calibration_error(probabilities: Array, truth: Array, ratings: Sequence[float], bins: int = 10) -> float:
    """Expected calibration error of the rating distribution, in [0, 1].

    Every rating of every item is a prediction "this is the rating people give"; people's (mean) rating is taken to the
    nearest one. Predictions are sorted into equal bins by probability; the error is the mean gap between predicted
    and observed frequency, weighted by predictions.

    Args:
        probabilities: (n, R), rows sum to 1.
        truth: (n,) ratings.
        ratings: the R ratings.

    Example:
        >>> calibration_error(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 2.0]), (1, 2))
        0.0
    """
    nearest = np.abs(truth[:, None] - np.asarray(ratings, dtype=float)[None, :]).argmin(1)
    observed = np.eye(len(ratings))[nearest].ravel()
    predicted = probabilities.ravel()
    place = np.minimum((predicted * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    gaps = np.abs(np.bincount(place, predicted, bins) - np.bincount(place, observed, bins))
    return float(gaps.sum() / count.sum())


def reversed_scale(template: str) -> str | None:
    """The template with the lines of its scale in the other order; None if it shows no scale.

    Example:
        >>> reversed_scale("Scale:\\n1 - low\\n2 - high\\nText")
        'Scale:\\n2 - high\\n1 - low\\nText'
    """
    lines = _SCALE_LINE.findall(template)
    if len(lines) < 2:
        return None
    turned = iter(reversed(lines))
    return _SCALE_LINE.sub(lambda _: next(turned), template)


def _shifts(
    reward: HarmonicEval, items: Sequence[TextItem], base: Array, kept: Integers, own: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, dict[str, tuple[float, float]]], list[str]]:
    variants: dict[str, dict[str, str]] = {}
    turned = {name: reversed_scale(template) for name, template in reward.prompts.items()}
    notes = []
    if all(template is not None for template in turned.values()):
        variants["scale reversed"] = {name: str(template) for name, template in turned.items()}
    else:
        notes.append("position bias was not probed: the judge's prompts show no scale to turn round")
    for label, changes in PARAPHRASES.items():
        changed = {name: _replaced(template, changes) for name, template in reward.prompts.items()}
        if changed != dict(reward.prompts):
            variants[f"paraphrase {label}"] = changed
    variants |= {f"paraphrase {label}": {**reward.prompts, **templates} for label, templates in own.items()}
    if not any(name.startswith("paraphrase") for name in variants):
        notes.append(
            "paraphrases were not probed: the judge's prompts have none of the words to replace; give your own"
        )
    result = {}
    for label, prompts in variants.items():
        other = type(reward)(
            reward.judge, reward.task.name, gamma=reward.gamma, ratings=reward.ratings, normalize=reward.normalize,
            min_rating_mass=reward.min_rating_mass, prompts=prompts,
        )  # fmt: skip
        moved = score_items(other, items).criteria.double().numpy()
        result[label] = {name: _change(base[kept, c], moved[kept, c]) for c, name in enumerate(reward.criteria)}
    return result, notes


def _change(base: Array, moved: Array) -> tuple[float, float]:
    both = np.isfinite(base) & np.isfinite(moved)
    if both.sum() < 2:
        return float("nan"), float("nan")
    tau = agreement(moved[both], base[both], resamples=1)["kendall_tau_b"].value
    return float(np.abs(moved[both] - base[both]).mean()), tau


def _replaced(template: str, changes: Sequence[tuple[str, str]]) -> str:
    for old, new in changes:
        template = template.replace(old, new)
    return template
