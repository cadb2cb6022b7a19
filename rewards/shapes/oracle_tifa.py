"""TIFA by the oracle, with an eye on what TIFA does not ask: objects that the prompt does not name."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from rewards.images import unbatch
from rewards.shapes.picture_truth import surplus_objects
from rewards.tifa.answers import TIFAScores
from rewards.tifa.reward import TIFA


class OracleTIFA(TIFA):
    """TIFA whose judge is :class:`rewards.shapes.oracle.Oracle`: TIFA's scores, and a count of surplus objects.

    The curve `surplus` is the share of pictures with an object too many, one that the prompt does not name or one more
    than it says; `surplus` in the details is how many there are. Neither moves a score.

    Example:
        >>> import tempfile
        >>> from rewards.shapes.oracle import Oracle
        >>> from rewards.shapes.prompts import question_store
        >>> from rewards.shapes.render import render
        >>> from rewards.shapes.scenes import Scene, Shape
        >>> from rewards.tifa.matching import AnswerMatcher
        >>> store = question_store(tempfile.mkdtemp() + "/questions.sqlite", ["a red circle"])
        >>> drawn = Scene((Shape("blue", "square", (1, 1), 16.0, 16.0, 5.0),), "white")
        >>> oracle = OracleTIFA(Oracle(), store, matcher=AnswerMatcher(sentence_model=None))
        >>> scores = oracle.score([render(drawn)], ["a red circle"])
        >>> scores.means["surplus"].tolist(), scores.details[0]["surplus"]
        ([1.0], 1)
    """

    def score(  # type: ignore[override]  # no column is called "grad"
        self,
        images: Sequence[object],
        prompts: Sequence[str | int | None],
        /,
        *,
        grad: bool = False,
        **columns: Sequence[object],
    ) -> TIFAScores:
        """See :meth:`rewards.tifa.reward.TIFA.score`; pictures that abstain take no part in the curve."""
        scores = super().score(images, prompts, grad=grad, **columns)
        asked = {row.image: row.question.prompt for row in scores.answers if scores.reasons[row.image] is None}
        pictures = unbatch(images)
        counts = {index: surplus_objects(pictures[index], prompt) for index, prompt in asked.items()}
        shares = [float(counts[row] > 0) if row in counts else math.nan for row in range(len(scores))]
        scores.means = {**scores.means, "surplus": torch.tensor(shares)}
        scores.details = [
            {**shown, "surplus": counts[row]} if row in counts else shown for row, shown in enumerate(scores.details)
        ]
        return scores
