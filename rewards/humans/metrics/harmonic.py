"""HarmonicEval as a metric, for many gammas from one pass of the judge."""

from __future__ import annotations

from collections.abc import Sequence

from rewards.harmonic.reward import HarmonicEval
from rewards.harmonic.scores import HarmonicScores
from rewards.harmonic.weighting import harmonic_score
from rewards.humans.metrics.base import MetricScores, TextItem
from rewards.judges.base import Judge

GAMMAS = (0.0, 0.01, 0.25, 0.5, 0.75, 1.0)


def harmonic_reward(judge: Judge, task: str) -> HarmonicEval:
    """HarmonicEval of a task; a judge that keeps prompts of its own for captions only uses these for all tasks."""
    own = judge.prompts or {}
    return HarmonicEval(judge, task=task, prompts=own.get(task, own.get("captioning")))


def score_items(reward: HarmonicEval, items: Sequence[TextItem]) -> HarmonicScores:
    """HarmonicEval's scores of n texts of its task."""
    return reward.score(
        [item.image for item in items],
        [item.text for item in items],
        inputs=[item.input for item in items] if reward.takes_input else None,
        boxes=[item.box for item in items] if reward.task.needs_box else None,
    )


def harmonic_scores(
    reward: HarmonicEval, items: Sequence[TextItem], gammas: Sequence[float] = GAMMAS
) -> dict[float, MetricScores]:
    """Overall scores for each gamma, all from the same ratings.

    Args:
        reward: a HarmonicEval; its own gamma does not matter.
        items: n texts of its task.
        gammas: weightings; 1 is the uniform average ("without harmonic weighting"), 0 takes the most certain criterion.

    Returns:
        Scores by gamma; `criteria` is the same in all.
    """
    scores = score_items(reward, items)
    criteria = scores.criteria.double().numpy()
    result = {}
    for gamma in gammas:
        overall = scores.overall.double().clone()
        judged = ~scores.abstained
        overall[judged] = harmonic_score(scores.probabilities[judged].double(), reward.ratings, gamma).double()
        result[gamma] = MetricScores(overall.numpy(), criteria)
    return result
