"""The study: every metric on the same instances, and the analogues of HarmonicEval's tables 2, 3, 5 and 6."""

from __future__ import annotations

import json
from pathlib import Path

from rewards.humans.metrics.battery import HARMONIC, WITHOUT_CRITERIA, WITHOUT_WEIGHTS, Battery, gamma_name
from rewards.humans.metrics.harmonic import GAMMAS
from rewards.humans.mmhe.best_of_three import Accuracy, accuracy_by_task, accuracy_difference, criterion_agreement
from rewards.humans.mmhe.scores import CandidateScores
from rewards.humans.mmhe.scoring import score_instances
from rewards.humans.shapes_study.instances import study_instances
from rewards.humans.shapes_study.plots import plot_study
from rewards.humans.shapes_study.results import Study
from rewards.judges.base import Judge


def run_study(judge: Judge, folder: Path, *, per_task: int = 100, seed: int = 0, resamples: int = 1000) -> Study:
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
    scores = score_instances(battery, instances)
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
    plot_study(study, folder)
    return study
