"""The truth about captions as a reward: for auditing a judge, never for training."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from rewards.errors import InputError
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.scores import Scores
from rewards.shapes.claims import CLAIM_KINDS, CaptionClaims, caption_claims
from rewards.shapes.datasets import scene_from_json
from rewards.shapes.truth import CRITERIA, caption_truth


class CaptionTruth(Reward):
    """The five true ratings of a caption, 1 to 5, as parts, and their mean as the overall score.

    Beside them, as means over captions: `claims/right` (share of captions that say nothing false),
    `claims/complete`, `claims/right_and_complete`, `claims/false` (a caption's share of false claims) and
    `claims/false_<kind>` (captions without such a claim take no part), `claims/words`.

    Example:
        >>> from rewards.shapes.datasets import scene_to_json
        >>> from rewards.shapes.scenes import Scene
        >>> scores = CaptionTruth().score([None], ["a red circle"], scene=[scene_to_json(Scene((), "gray"))])
        >>> scores.part_names[0], scores.parts[0, 0].item(), scores.means["claims/false"].item()
        ('correctness', 1.0, 1.0)
    """

    __name__ = "caption_truth_reward"

    def score(self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score`.

        Args:
            images: not looked at.
            texts: captions; None abstains.
            columns: `scene`, as in :func:`rewards.shapes.datasets.caption_prompts`.

        Raises:
            InputError: no scenes, or another number of them than of texts.
        """
        scenes = columns.get("scene")
        if scenes is None or len(scenes) != len(texts):
            given = "none" if scenes is None else f"{len(scenes)}"
            raise InputError(f"{self.__name__} needs the column 'scene' for {len(texts)} captions, got {given}")
        rows = [row for row, text in enumerate(texts) if text is not None]
        drawn = [scene_from_json(str(scenes[row])) for row in rows]
        said = [str(texts[row]) for row in rows]
        ratings = [list(caption_truth(scene, text).values()) for scene, text in zip(drawn, said, strict=True)]
        parts = torch.tensor(ratings, dtype=torch.float32).view(-1, len(CRITERIA))
        claims = [_numbers(caption_claims(scene, text)) for scene, text in zip(drawn, said, strict=True)]
        scores = Scores(
            overall=parts.mean(1),
            reasons=[None] * len(rows),
            part_names=CRITERIA,
            parts=parts,
            counts=torch.ones_like(parts),
            means={name: torch.tensor([row[name] for row in claims]) for name in (claims[0] if claims else {})},
        )
        reasons = [None if text is not None else "no caption" for text in texts]
        return scores if len(rows) == len(texts) else scores.placed(rows, reasons)

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """Its name: the truth has no settings."""
        return {"reward": self.__name__, "function": f"{__name__}:{self.__name__}"}


caption_truth_reward = CaptionTruth()


def _numbers(caption: CaptionClaims) -> dict[str, float]:
    """What is averaged over captions; NaN where a caption makes no such claim."""
    false = {
        f"claims/false_{kind}": _share([not holds for k, holds in caption.claims if k == kind]) for kind in CLAIM_KINDS
    }
    return {
        "claims/right": float(caption.right),
        "claims/complete": float(caption.complete),
        "claims/right_and_complete": float(caption.right and caption.complete),
        "claims/false": _share([not holds for _, holds in caption.claims]),
        **false,
        "claims/words": float(caption.words),
    }


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else math.nan
