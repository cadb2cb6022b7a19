"""Soft-TIFA as GenEval 2 reports it: the arithmetic mean by skill, the geometric mean by atomicity.

The arithmetic mean estimates how well single atoms are drawn, the geometric mean how well whole prompts are (arXiv
2512.16853; released `evaluation.py` and `soft_tifa_analysis.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rewards.tifa.scoring import faithfulness, geometric_mean

SKILLS = ("object", "attribute", "count", "position", "verb")
"""GenEval 2's skills, in the order of its report."""


@dataclass(frozen=True)
class GenEval2Report:
    """All values in percent.

    Attributes:
        arithmetic: mean over pictures of each one's mean (Soft-TIFA AM).
        geometric: mean over pictures of each one's geometric mean (Soft-TIFA GM).
        by_skill: (mean over all questions of a skill, their number).
        by_atomicity: (mean over the pictures of prompts with so many atoms of their geometric means, their number).
    """

    arithmetic: float
    geometric: float
    by_skill: dict[str, tuple[float, int]]
    by_atomicity: dict[int, tuple[float, int]]


def geneval2_report(
    scores: Sequence[Sequence[float]], skills: Sequence[Sequence[str]], atomicity: Sequence[int]
) -> GenEval2Report:
    """GenEval 2's numbers.

    Args:
        scores: for each picture the probabilities of its questions' right answers, in [0, 1].
        skills: for each picture the skills of its questions.
        atomicity: for each picture the number of atoms of its prompt.

    Returns:
        The report; NaN for means over nothing.

    Example:
        >>> report = geneval2_report([[0.5, 0.125], [1.0]], [["count", "object"], ["object"]], [3, 4])
        >>> report.geometric, report.by_skill["object"], report.by_atomicity[3]
        (62.5, (56.25, 2), (25.0, 1))
    """
    by_skill: dict[str, list[float]] = {}
    by_atomicity: dict[int, list[float]] = {}
    for of_picture, names, atoms in zip(scores, skills, atomicity, strict=True):
        by_atomicity.setdefault(atoms, []).append(geometric_mean(of_picture))
        for score, name in zip(of_picture, names, strict=True):
            by_skill.setdefault(name, []).append(score)
    order = [*(name for name in SKILLS if name in by_skill), *sorted(by_skill.keys() - set(SKILLS))]
    return GenEval2Report(
        arithmetic=_percent([faithfulness(of_picture) for of_picture in scores]),
        geometric=_percent([geometric_mean(of_picture) for of_picture in scores]),
        by_skill={name: (_percent(by_skill[name]), len(by_skill[name])) for name in order},
        by_atomicity={
            atoms: (_percent(by_atomicity[atoms]), len(by_atomicity[atoms])) for atoms in sorted(by_atomicity)
        },
    )


def _percent(values: Sequence[float]) -> float:
    return 100 * fmean(values) if values else math.nan
