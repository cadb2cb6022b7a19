"""People against people, and judges against people, by skill: leave one out.

For every question and annotator i the truth is what the *others* say: the most frequent answer (count, position), or
the colours that more than half of them name. Annotator i is compared with it, and so is the judge, so that both stand
against the same panels of four and the people's row is the ceiling. Where the others are divided there is no truth and
the comparison is left out.

An answer with several colours counts by the share of them that are true (one of them drawn at random). An annotator
who gave no answer, because the object was not seen, disagrees with others who saw it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rewards.errors import InputError
from rewards.humans.geneval.questions import SKILLS, PictureQuestion
from rewards.humans.tables import with_interval
from rewards.runs.files import finite_or_none
from rewards.runs.intervals import Estimate, share
from rewards.tables import text_table

PEOPLE = "people, each against the others"
Credit = tuple[float, float]


@dataclass(frozen=True)
class SkillResult:
    """Agreement on one skill.

    Attributes:
        answer: share of answers that are the others' answer.
        right: the same of "is it what the prompt wants", on questions where the prompt wants something.
        kappa: Cohen's kappa of `right`: 0 is chance.
        questions: compared.
        abstained: questions that were not answered.
    """

    answer: Estimate
    right: Estimate
    kappa: float
    questions: int
    abstained: int


@dataclass
class GenevalStudy:
    """Results by row (people first) and skill."""

    questions: Sequence[PictureQuestion]
    resamples: int = 2000
    results: dict[str, dict[str, SkillResult]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.results[PEOPLE] = self._by_skill(None)

    def add(self, judge: str, answers: Sequence[str | None]) -> None:
        """Compare a judge, one answer a question; None abstains and is counted.

        Raises:
            InputError: another number of answers than questions.
        """
        if len(answers) != len(self.questions):
            raise InputError(f"{judge}: {len(answers)} answers for {len(self.questions)} questions")
        self.results[judge] = self._by_skill(answers)

    def text(self) -> str:
        """Two tables: the answers, and whether they are what the prompt wants."""
        pictures = len({question.key[:2] for question in self.questions})
        rows = [
            [name, *(f"{with_interval(found[s].answer)} ({found[s].questions})" for s in SKILLS)]
            for name, found in self.results.items()
        ]
        rights = [
            [name, *(f"{with_interval(found[s].right)}, kappa {found[s].kappa:.2f}" for s in SKILLS)]
            for name, found in self.results.items()
        ]
        return "\n\n".join(
            [
                f"{len(self.questions)} questions about {pictures} pictures; 95% intervals resample prompts.",
                "Same answer as the others, % (questions)\n" + text_table(["", *SKILLS], rows),
                "Same verdict as the others on what the prompt wants, %\n" + text_table(["", *SKILLS], rights),
                *(f"note: {note}" for note in self.notes),
            ]
        )

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; fractions."""
        results = {
            name: {
                skill: {
                    "answer": vars(found.answer),
                    "right": vars(found.right),
                    "kappa": found.kappa,
                    "questions": found.questions,
                    "abstained": found.abstained,
                }
                for skill, found in by_skill.items()
            }
            for name, by_skill in self.results.items()
        }
        return dict(finite_or_none({"questions": len(self.questions), "results": results, "notes": self.notes}))

    def _by_skill(self, answers: Sequence[str | None] | None) -> dict[str, SkillResult]:
        result = {}
        for skill in SKILLS:
            rows = [n for n, question in enumerate(self.questions) if question.skill == skill]
            credits, verdicts, prompts, abstained = [], [], [], 0
            for n in rows:
                question = self.questions[n]
                if answers is not None and answers[n] is None:
                    abstained += 1
                    continue
                given = None if answers is None else frozenset([str(answers[n])])
                credits.append(answer_credit(question, given))
                verdicts.append(verdict_table(question, given))
                prompts.append(question.picture.prompt_id)
            numbers: dict[int, int] = {}
            clusters = np.array([numbers.setdefault(prompt, len(numbers)) for prompt in prompts], dtype=np.int64)
            table = np.array(credits, dtype=np.float64).reshape(-1, 2)
            tables = np.array(verdicts, dtype=np.float64).reshape(-1, 2, 2)
            same, all_ = tables.trace(axis1=1, axis2=2), tables.sum(axis=(1, 2))
            result[skill] = SkillResult(
                share(table[:, 0], table[:, 1], clusters, resamples=self.resamples).estimate(),
                share(same, all_, clusters, resamples=self.resamples).estimate(),
                cohens_kappa(tables.sum(axis=0)),
                int((table[:, 1] > 0).sum()),
                abstained,
            )
        return result


def answer_credit(question: PictureQuestion, given: frozenset[str] | None = None) -> Credit:
    """(credit, comparisons) of one question over all left-out annotators.

    Args:
        question: with its annotators' answers.
        given: the judge's answer; None compares the left-out annotator.
    """
    people = question.picture.answers[question.id]
    credit, count = 0.0, 0.0
    for left_out, own in enumerate(people):
        others = [answer for n, answer in enumerate(people) if n != left_out]
        truth = consensus(others, several=question.skill == "color")
        if truth:
            said = own if given is None else given
            credit += len(said & truth) / len(said) if said else 0.0
            count += 1
    return credit, count


def verdict_table(question: PictureQuestion, given: frozenset[str] | None = None) -> list[list[float]]:
    """2 x 2 counts of verdicts (wrong, right) of the one compared (rows) and of the others' majority (columns).

    Empty where the prompt wants nothing; a divided panel is left out.
    """
    counts = [[0.0, 0.0], [0.0, 0.0]]
    if question.gold is None:
        return counts
    people = [question.gold in answer for answer in question.picture.answers[question.id]]
    for left_out, own in enumerate(people):
        others = [right for n, right in enumerate(people) if n != left_out]
        if 2 * sum(others) == len(others):
            continue
        said = own if given is None else question.gold in given
        counts[int(said)][int(2 * sum(others) > len(others))] += 1
    return counts


def consensus(answers: Sequence[frozenset[str]], *, several: bool) -> frozenset[str]:
    """What a panel says; empty where it is divided or saw nothing.

    Args:
        answers: one set an annotator.
        several: colours: all that more than half name. Else the one most frequent answer.

    Example:
        >>> consensus([frozenset({"2"}), frozenset({"2"}), frozenset({"3"})], several=False)
        frozenset({'2'})
    """
    named = Counter(name for answer in answers for name in answer)
    if several:
        return frozenset(name for name, count in named.items() if 2 * count > len(answers))
    counts = named.most_common(2)
    unanswered = sum(not answer for answer in answers)
    if not counts or counts[0][1] <= unanswered or (len(counts) > 1 and counts[0][1] == counts[1][1]):
        return frozenset()
    return frozenset([counts[0][0]])


def cohens_kappa(table: np.ndarray) -> float:
    """(p_o - p_e) / (1 - p_e) of a square table of counts; NaN where nothing is counted or chance agrees throughout.

    Example:
        >>> round(cohens_kappa(np.array([[20.0, 5.0], [10.0, 15.0]])), 9)
        0.4
    """
    total = table.sum()
    if not total:
        return math.nan
    observed = float(np.trace(table)) / total
    expected = float((table.sum(axis=0) * table.sum(axis=1)).sum()) / total**2
    return float((observed - expected) / (1 - expected)) if expected < 1 else math.nan
