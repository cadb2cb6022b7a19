"""What the study found: the analogues of HarmonicEval's tables 2, 3, 5 and 6 as values, text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rewards.humans.mmhe.best_of_three import Accuracy, accuracy_table, criterion_table
from rewards.humans.statistics.agreement import Agreement
from rewards.humans.tables import with_interval
from rewards.runs.files import finite_or_none
from rewards.runs.intervals import Estimate


@dataclass(frozen=True)
class Study:
    """Tables and the test of harmonic weighting.

    Attributes:
        instances: how many.
        accuracy: table 2: method -> task -> Accuracy.
        criteria: table 3: metric -> task -> criterion -> Agreement.
        ablation: table 5.
        gammas: table 6.
        weighting: HarmonicEval minus uniform averaging, average accuracy, paired.
        notes: what could not be run, and why.
    """

    instances: int
    accuracy: dict[str, dict[str, Accuracy]]
    criteria: dict[str, dict[str, dict[str, Agreement]]]
    ablation: dict[str, dict[str, Accuracy]]
    gammas: dict[str, dict[str, Accuracy]]
    weighting: Estimate
    notes: list[str]

    def text(self) -> str:
        """The four tables and the verdict on harmonic weighting."""
        return "\n\n".join(
            [
                f"{self.instances} instances with three candidates; the truth chooses. 95% intervals over instances.",
                "Table 2: accuracy (%), the chosen candidate against each other one\n"
                + accuracy_table(self.accuracy, True),
                "Table 3: Kendall's tau-b x 100 with the true ratings\n"
                + criterion_table(self.criteria, "kendall_tau_b"),
                "Table 5: ablation\n" + accuracy_table(self.ablation, True),
                "Table 6: gamma\n" + accuracy_table(self.gammas, True),
                self.verdict(),
                *(f"note: {note}" for note in self.notes),
            ]
        )

    def verdict(self) -> str:
        """Whether harmonic weighting helps here, in one sentence."""
        shown = with_interval(self.weighting)
        if not np.isfinite(self.weighting.value):
            return "Harmonic weighting cannot be compared: the judge abstained."
        if self.weighting.low > 0:
            return f"Harmonic weighting helps here: {shown} points of accuracy over uniform averaging."
        if self.weighting.high < 0:
            return f"Harmonic weighting hurts here: {shown} points of accuracy against uniform averaging."
        return f"Harmonic weighting makes no clear difference here: {shown} points of accuracy over uniform averaging."

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""

        def plain(table: Mapping[str, Mapping[str, Accuracy]]) -> dict[str, object]:
            return {
                name: {task: {**vars(a), "estimate": vars(a.estimate)} for task, a in row.items()}
                for name, row in table.items()
            }

        criteria = {
            name: {task: {c: a.as_dict()["statistics"] for c, a in by_c.items()} for task, by_c in row.items()}
            for name, row in self.criteria.items()
        }
        return finite_or_none(
            {
                "instances": self.instances,
                "table2": plain(self.accuracy),
                "table3": criteria,
                "table5": plain(self.ablation),
                "table6": plain(self.gammas),
                "harmonic_minus_uniform": vars(self.weighting),
                "verdict": self.verdict(),
                "notes": self.notes,
            }
        )
