"""The tables of HarmonicEval's section 4 on instances with three candidates: accuracy by task, tau by criterion.

How the paper's accuracy is counted is not stated. Its printed values are fractions with denominators of 108 (REG), 68
(VQA) and 192 (IC), all even, and uninformed metrics lie near 50%; this fits "the chosen candidate scores above each of
the two others", two comparisons an instance that has a majority. That is `unit="pairs"`, the default (chance 50%);
`unit="best"` asks instead whether the metric's best is the people's best (chance 33%).

The tie rule stands in one place, :func:`credit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from rewards.errors import InputError
from rewards.humans.mmhe.records import CRITERIA, TASKS, Instance
from rewards.humans.mmhe.scores import CandidateScores
from rewards.humans.statistics.agreement import Agreement, agreement, no_agreement
from rewards.humans.statistics.pair_counts import Array
from rewards.humans.tables import percent
from rewards.runs.files import finite_or_none
from rewards.runs.intervals import Estimate, Share, share
from rewards.tables import text_table

Unit = Literal["pairs", "best"]
TieRule = Literal["half", "wrong", "drop"]
TIE_EFFECT_RULES: tuple[TieRule, ...] = ("half", "wrong", "drop")
SHORT_CRITERIA = ("Crt", "Cmp", "Clr", "Flu", "Cnc")


@dataclass(frozen=True)
class Accuracy:
    """Accuracy in one task: the estimate, the comparisons it rests on, ties among them, abstentions left out."""

    estimate: Estimate
    comparisons: int
    ties: int
    abstained: int


def credit(scores: Array, best: int, unit: Unit, ties: TieRule) -> tuple[float, float, int]:
    """Credit of one instance: (sum of credit, number of comparisons, number of ties). The one place of the tie rule.

    A tie between the people's best and another candidate counts one half ("half"; among k tied best candidates 1/k),
    nothing ("wrong"), or is left out ("drop").

    Args:
        scores: (3,) finite scores of the candidates.
        best: index of the candidate that people chose.

    Example:
        >>> credit(np.array([2.0, 2.0, 1.0]), best=0, unit="pairs", ties="half")
        (1.5, 2, 1)
        >>> credit(np.array([2.0, 2.0, 1.0]), best=0, unit="best", ties="drop")
        (0.0, 0, 1)
    """
    others = np.delete(scores, best)
    if unit == "pairs":
        wins, tied = int((scores[best] > others).sum()), int((scores[best] == others).sum())
        value = wins + (tied / 2 if ties == "half" else 0.0)
        return value, len(others) - (tied if ties == "drop" else 0), tied
    top = scores == scores.max()
    tied = int(top[best] and top.sum() > 1)
    if tied and ties == "drop":
        return 0.0, 0, tied
    share = 1.0 / int(top.sum()) if ties == "half" else float(top.sum() == 1)
    return (share if top[best] else 0.0), 1, tied


def accuracy_by_task(
    instances: Sequence[Instance],
    overall: Array,
    *,
    unit: Unit = "pairs",
    ties: TieRule = "half",
    resamples: int = 2000,
    seed: int = 0,
    confidence: float = 0.95,
) -> dict[str, Accuracy]:
    """Accuracy of a metric's overall scores against the best-of-three choice, by task and averaged over tasks.

    Args:
        instances: N instances; those without a majority are left out (see :func:`without_majority`).
        overall: (N, 3) scores; an instance with a NaN is left out and counted as abstained.
        unit, ties: see the module and :func:`credit`.
        resamples, seed, confidence: of the bootstrap over instances, within each task.

    Returns:
        Accuracy by task (the tasks present, in the paper's order) and "average", the mean over tasks.

    Raises:
        InputError: `overall` has another shape than (N, 3).
    """
    if overall.shape != (len(instances), 3):
        raise InputError(f"overall has shape {overall.shape}; ({len(instances)}, 3) is needed")
    result: dict[str, Accuracy] = {}
    shares: list[Share] = []
    for stratum, task in enumerate(_tasks(instances)):
        chosen = [n for n, instance in enumerate(instances) if instance.task == task and instance.best is not None]
        judged = [n for n in chosen if np.isfinite(overall[n]).all()]
        counted = _credits(instances, overall, judged, unit, ties)
        found = share(counted[:, 0], counted[:, 1], resamples=resamples, seed=(seed, stratum))
        result[task] = Accuracy(
            found.estimate(confidence), int(counted[:, 1].sum()), int(counted[:, 2].sum()), len(chosen) - len(judged)
        )
        shares.append(found)
    totals = {name: sum(getattr(a, name) for a in result.values()) for name in ("comparisons", "ties", "abstained")}
    result["average"] = Accuracy(_mean(shares).estimate(confidence), **totals)
    return result


def accuracy_difference(
    instances: Sequence[Instance],
    overall_a: Array,
    overall_b: Array,
    *,
    unit: Unit = "pairs",
    ties: TieRule = "half",
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Average accuracy of A minus that of B, paired: both on the same instances, drawn together within each task.

    Instances on which either abstained are left out for both. Args as for :func:`accuracy_by_task`.
    """
    changes: list[Share] = []
    for stratum, task in enumerate(_tasks(instances)):
        rows = [n for n, instance in enumerate(instances) if instance.task == task and instance.best is not None]
        rows = [n for n in rows if np.isfinite(overall_a[n]).all() and np.isfinite(overall_b[n]).all()]
        counted = [_credits(instances, overall, rows, unit, ties) for overall in (overall_a, overall_b)]
        a, b = (share(c[:, 0], c[:, 1], resamples=resamples, seed=(seed, stratum)) for c in counted)
        changes.append(Share(a.value - b.value, a.drawn - b.drawn))
    return _mean(changes).estimate()


def criterion_agreement(
    instances: Sequence[Instance], scores: CandidateScores, *, resamples: int = 500, seed: int = 0
) -> dict[str, dict[str, Agreement]]:
    """Agreement with the mean human rating by task and criterion (HarmonicEval table 3).

    A metric with criterion scores is compared criterion by criterion; one with an overall score only is compared by
    that score with each criterion. Candidates of one instance are resampled together.
    """
    result: dict[str, dict[str, Agreement]] = {}
    for task in _tasks(instances):
        rows = [n for n, instance in enumerate(instances) if instance.task == task]
        groups = [instances[n].id for n in rows for _ in range(3)]
        result[task] = {}
        for c, name in enumerate(CRITERIA):
            human = [float(np.mean(k.ratings[name])) for n in rows for k in instances[n].candidates]
            metric = scores.overall[rows] if scores.criteria is None else scores.criteria[rows][:, :, c]
            judged = int(np.isfinite(metric).sum())
            result[task][name] = (
                agreement(metric.ravel(), human, groups, resamples=resamples, seed=seed)
                if judged > 1
                else no_agreement(metric.size - judged)
            )
    return result


def without_majority(instances: Sequence[Instance]) -> int:
    """Number of instances on whose best candidate no majority of the annotators agrees."""
    return sum(instance.best is None for instance in instances)


def accuracy_table(results: Mapping[str, Mapping[str, Accuracy]], intervals: bool = False) -> str:
    """The paper's table 2 (or 5, or 6): a row a method, a column a task, and the average; percent."""
    tasks = next(iter(results.values()))
    header = ["Method", *(TASKS.get(task, "Avg.") for task in tasks)]

    def cell(accuracy: Accuracy) -> str:
        e = accuracy.estimate
        suffix = f" [{percent(e.low, 1)}, {percent(e.high, 1)}]" if intervals else ""
        return percent(e.value, 1) + suffix

    return text_table(header, [[name, *(cell(a) for a in row.values())] for name, row in results.items()])


def criterion_table(results: Mapping[str, Mapping[str, Mapping[str, Agreement]]], statistic: str) -> str:
    """The paper's table 3: a row a metric, five criteria a task; `statistic` is e.g. "kendall_tau_b"; x 100."""
    tasks = next(iter(results.values()))
    header = ["Metric", *(f"{TASKS[task]} {short}" for task in tasks for short in SHORT_CRITERIA)]
    rows = [
        [name, *(percent(by_criterion[c][statistic].value, 1) for by_criterion in row.values() for c in CRITERIA)]
        for name, row in results.items()
    ]
    return text_table(header, rows)


def _tasks(instances: Sequence[Instance]) -> list[str]:
    """The tasks present, in the paper's order; each is a stratum of the bootstrap."""
    return [task for task in TASKS if any(instance.task == task for instance in instances)]


def _credits(instances: Sequence[Instance], overall: Array, rows: Sequence[int], unit: Unit, ties: TieRule) -> Array:
    """(len(rows), 3): credit, comparisons and ties of each instance."""
    counted = [credit(overall[n], instances[n].best or 0, unit, ties) for n in rows]
    return np.array(counted, dtype=np.float64).reshape(-1, 3)


def _mean(shares: Sequence[Share]) -> Share:
    """Mean over tasks, which were drawn each by itself."""
    return Share(float(np.mean([found.value for found in shares])), np.mean([found.drawn for found in shares], axis=0))


@dataclass(frozen=True)
class Report:
    """Accuracy and criterion-wise agreement of several metrics on the same instances."""

    accuracy: dict[str, dict[str, Accuracy]]
    tie_effect: dict[str, dict[str, float]]
    criteria: dict[str, dict[str, dict[str, Agreement]]]
    unit: Unit

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        criteria = {
            name: {task: {c: result.as_dict() for c, result in by_c.items()} for task, by_c in by_task.items()}
            for name, by_task in self.criteria.items()
        }
        accuracy = {name: {task: asdict(a) for task, a in row.items()} for name, row in self.accuracy.items()}
        return finite_or_none(
            {"unit": self.unit, "accuracy": accuracy, "tie_effect": self.tie_effect, "criteria": criteria}
        )

    def text(self, statistic: str = "kendall_tau_b") -> str:
        """The tables in the paper's layout."""
        rules = [[name, *(percent(row[rule], 1) for rule in TIE_EFFECT_RULES)] for name, row in self.tie_effect.items()]
        return "\n\n".join(
            [
                f"Accuracy (%), unit {self.unit}, ties half\n{accuracy_table(self.accuracy, intervals=True)}",
                f"Average by tie rule\n{text_table(['Method', *TIE_EFFECT_RULES], rules)}",
                f"Criterion-wise {statistic} x 100\n{criterion_table(self.criteria, statistic)}",
            ]
        )


def report(
    instances: Sequence[Instance],
    metrics: Mapping[str, CandidateScores],
    *,
    unit: Unit = "pairs",
    resamples: int = 2000,
    seed: int = 0,
) -> Report:
    """Compare each metric with the instances: the paper's tables 2 and 3, and what the tie rule does to the average."""
    accuracy: dict[str, dict[str, Accuracy]] = {}
    effect: dict[str, dict[str, float]] = {}
    for name, scores in metrics.items():
        by_rule = {
            rule: accuracy_by_task(instances, scores.overall, unit=unit, ties=rule, resamples=resamples, seed=seed)
            for rule in TIE_EFFECT_RULES
        }
        accuracy[name] = by_rule["half"]
        effect[name] = {str(rule): row["average"].estimate.value for rule, row in by_rule.items()}
    criteria = {
        name: criterion_agreement(instances, scores, resamples=resamples, seed=seed) for name, scores in metrics.items()
    }
    return Report(accuracy, effect, criteria, unit)
