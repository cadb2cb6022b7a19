"""The study: every metric on the same instances, and the analogues of HarmonicEval's tables 2, 3, 5 and 6."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewards.humans.agreement import Estimate, finite_or_none
from rewards.humans.best_of_three import (
    Accuracy,
    CandidateScores,
    accuracy_by_task,
    accuracy_difference,
    accuracy_table,
    criterion_agreement,
    criterion_table,
)
from rewards.humans.metrics.battery import HARMONIC, WITHOUT_CRITERIA, WITHOUT_WEIGHTS, Battery, gamma_name
from rewards.humans.metrics.harmonic import GAMMAS
from rewards.humans.shapes_study.instances import study_instances
from rewards.humans.tables import with_interval


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
    criteria: dict[str, dict[str, dict[str, Any]]]
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

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""

        def plain(table: Mapping[str, Mapping[str, Accuracy]]) -> dict[str, Any]:
            return {
                name: {task: {**vars(a), "estimate": vars(a.estimate)} for task, a in row.items()}
                for name, row in table.items()
            }

        criteria = {
            name: {task: {c: a.as_dict()["statistics"] for c, a in by_c.items()} for task, by_c in row.items()}
            for name, row in self.criteria.items()
        }
        return dict(
            finite_or_none(
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
        )


def run_study(judge: Any, folder: Path, *, per_task: int = 100, seed: int = 0, resamples: int = 1000) -> Study:
    """Draw the instances, score them with every metric, write tables (`study.txt`, `study.json`) and plots.

    Args:
        judge: one that rates; for a judge that keeps captioning prompts of its own, these serve all four tasks.
        folder: of the study.
        per_task: instances a task.
        seed: of instances and bootstrap.
        resamples: of the bootstrap.
    """
    instances = study_instances(folder, per_task, seed)
    notes = [
        "the references of the reference-based metrics are full true texts, better than a user's references are",
        "CLIPScore and BERTScore need models that the shapes world does not have",
    ]
    battery = Battery(judge, notes=notes)
    scores = battery.score_instances(instances)
    by_gamma = {gamma: scores[gamma_name(gamma)] for gamma in GAMMAS}
    other_gammas = {gamma_name(gamma) for gamma in GAMMAS} - {HARMONIC}
    methods = {name: found for name, found in scores.items() if name not in other_gammas}
    ours, uniform = scores[HARMONIC], scores[WITHOUT_WEIGHTS]

    def accuracy(scores: CandidateScores) -> dict[str, Accuracy]:
        return accuracy_by_task(instances, scores.overall, resamples=resamples, seed=seed)

    ablated = {name: scores[name] for name in (HARMONIC, WITHOUT_CRITERIA, WITHOUT_WEIGHTS)}
    study = Study(
        instances=len(instances),
        accuracy={name: accuracy(scores) for name, scores in methods.items()},
        criteria={
            name: criterion_agreement(instances, scores, resamples=min(resamples, 500), seed=seed)
            for name, scores in methods.items()
        },
        ablation={name: accuracy(scores) for name, scores in ablated.items()},
        gammas={f"{gamma:g}": accuracy(scores) for gamma, scores in by_gamma.items()},
        weighting=accuracy_difference(instances, ours.overall, uniform.overall, resamples=resamples, seed=seed),
        notes=battery.notes,
    )
    (folder / "study.txt").write_text(study.text() + "\n", encoding="utf-8")
    (folder / "study.json").write_text(json.dumps(study.as_dict(), indent=1) + "\n", encoding="utf-8")
    from rewards.humans.shapes_study.plots import plot_study

    plot_study(study, folder)
    return study
