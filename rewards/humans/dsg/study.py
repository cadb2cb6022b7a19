"""DSG's answers against people's ratings: every variant by its name, and the paired tests between them.

The published figures (README of github.com/j-min/DSG: mPLUG .463 / .380, InstructBLIP .442 / .364) stand on 800
pictures, of which five (prompt tifa160_134) have no answers and are scored 0. So they are here, except in the row
"answered pictures only", which follows the library's own rule: what was not judged is left out.

- with dependencies: a question counts 0 when a parent's own raw answer is not right; unreadable parents are left out
- as the released script reads them: answers compared to the letter; one unreadable parent drops all of its prompt
- all right: 1 where every question counts, else 0; on hard answers this is the geometric mean too
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rewards.errors import InputError
from rewards.humans.dsg.answers import Answers, PictureKey, listed
from rewards.humans.dsg.scores import Dependencies, picture_score
from rewards.humans.statistics.agreement import Agreement, Difference, agreement, difference
from rewards.humans.tables import decimal_with_interval
from rewards.runs.files import finite_or_none
from rewards.tables import text_table

SHOWN = {
    "spearman": "Spearman",
    "kendall_tau_b": "Kendall tau-b",
    "kendall_tau_c": "Kendall tau-c",
    "pearson": "Pearson",
}
WITH = "with dependencies"
RELEASED = "as the released script reads them"
ANSWERED = "answered pictures only"
WITHOUT = "without dependencies"
ALL = "all right"
SOFT_MEAN = "soft, arithmetic mean"
SOFT_GEOMETRIC = "soft, geometric mean"
TESTED = ("spearman", "kendall_tau_b")


@dataclass(frozen=True)
class Comparison:
    """A minus B on the same pictures: what they are, and the paired test by statistic."""

    a: str
    b: str
    tests: dict[str, Difference]


@dataclass(frozen=True)
class DSGStudy:
    """Agreement by variant (the first is the headline), paired comparisons, and what the files lack.

    Attributes:
        variants: name -> Agreement, the published figures' variant first.
        comparisons: dependencies against none, and the aggregates against each other.
        prompts: independent groups that the intervals resample.
        notes: gaps and odd cells.
    """

    variants: dict[str, Agreement]
    comparisons: list[Comparison]
    prompts: int
    notes: list[str]

    def text(self) -> str:
        """Tables for a terminal; correlations as fractions with 95% intervals."""
        header = ["variant", "pictures", *SHOWN.values()]
        rows = [
            [name, str(found.items), *(decimal_with_interval(found[statistic]) for statistic in SHOWN)]
            for name, found in self.variants.items()
        ]
        tests = [
            f"{found.a} minus {found.b}, {SHOWN[name]}: {decimal_with_interval(test.estimate)}, p = {test.p_value:.4f}"
            for found in self.comparisons
            for name, test in found.tests.items()
        ]
        return "\n\n".join(
            [
                f"Against the mean Likert rating of each picture; 95% intervals resample {self.prompts} prompts.\n"
                f"Rated pictures without answers count 0, as published, except under {ANSWERED!r}.",
                text_table(header, rows),
                "Paired tests, on the same pictures and resamples:\n" + "\n".join(tests),
                "\n".join(f"note: {note}" for note in self.notes),
            ]
        ).rstrip()

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return finite_or_none(
            {
                "variants": {name: found.as_dict() for name, found in self.variants.items()},
                "comparisons": [asdict(found) for found in self.comparisons],
                "prompts": self.prompts,
                "notes": self.notes,
            }
        )


def dsg_study(
    answers: Answers,
    ratings: Mapping[PictureKey, tuple[int, ...]],
    *,
    dependencies: bool = True,
    resamples: int = 2000,
    seed: int = 0,
) -> DSGStudy:
    """Compare scores from answers with people's mean ratings.

    Args:
        answers: from :func:`rewards.humans.dsg.answers.read_answers`.
        ratings: from :func:`rewards.humans.dsg.answers.read_ratings`; answered pictures without ratings are left out.
        dependencies: False leaves them out of the headline and of all tests.
        resamples, seed: of the bootstrap over prompts.

    Raises:
        InputError: no rated picture has answers.
    """
    keys = list(ratings)
    human = [sum(ratings[key]) / len(ratings[key]) for key in keys]
    prompts = [key.prompt for key in keys]
    if not any(key in answers.pictures for key in keys):
        raise InputError("no picture has both answers and ratings; generators and prompts must be named alike in both")
    columns = variants(answers, keys, dependencies=dependencies)

    def compare(a: str, b: str) -> Comparison:
        return Comparison(
            a,
            b,
            {
                name: difference(columns[a], columns[b], human, prompts, statistic=name, resamples=resamples, seed=seed)
                for name in TESTED
            },
        )

    headline = next(iter(columns))
    pairs = [(headline, WITHOUT), (headline, ALL), (SOFT_MEAN, headline), (SOFT_MEAN, SOFT_GEOMETRIC)]
    return DSGStudy(
        {name: agreement(column, human, prompts, resamples=resamples, seed=seed) for name, column in columns.items()},
        [compare(a, b) for a, b in pairs if a in columns and b in columns and a != b],
        len(set(prompts)),
        [*_gaps(answers, ratings), *answers.notes],
    )


def variants(answers: Answers, keys: Sequence[PictureKey], *, dependencies: bool = True) -> dict[str, list[float]]:
    """Scores of pictures by every variant that the answers allow, the headline first; NaN where there is none."""
    use = dependencies and answers.has_dependencies
    reading: Dependencies = "read" if use else "none"

    def scores(reading: Dependencies, aggregate: str = "arithmetic", **how: bool) -> list[float]:
        return [
            picture_score(answers.pictures[key], reading, aggregate, **how) if key in answers.pictures else 0.0
            for key in keys
        ]

    headline = scores(reading)
    columns = {WITH if use else WITHOUT: headline}
    if use:
        columns[RELEASED] = scores("released", exact=True)
    columns[ANSWERED] = [
        score if key in answers.pictures else math.nan for key, score in zip(keys, headline, strict=True)
    ]
    if use:
        columns[WITHOUT] = scores("none")
    columns[ALL] = scores(reading, "all")
    if answers.has_probabilities:
        columns[SOFT_MEAN] = scores(reading, "arithmetic", soft=True)
        columns[SOFT_GEOMETRIC] = scores(reading, "geometric", soft=True)
    return columns


def _gaps(answers: Answers, ratings: Mapping[PictureKey, tuple[int, ...]]) -> list[str]:
    notes = []
    if lacking := [f"{key.prompt} by {key.generator}" for key in ratings if key not in answers.pictures]:
        notes.append(f"{len(lacking)} rated pictures have no answers: {listed(lacking)}")
    answered = [answers.pictures[key] for key in ratings if key in answers.pictures]
    if open_ := sum(any(math.isnan(question.right) for question in questions) for questions in answered):
        notes.append(
            f"{open_} rated pictures have a question without an answer and are left out (as the released script reads "
            "them, it is wrong)"
        )
    if unrated := sum(key not in ratings for key in answers.pictures):
        notes.append(f"{unrated} answered pictures have no ratings and are left out")
    if not answers.has_dependencies:
        notes.append("the answers have no column of dependencies")
    if not answers.has_probabilities:
        notes.append("on hard answers the geometric mean of a picture is 1 where all are right and else 0: `all right`")
    return notes
