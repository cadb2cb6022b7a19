"""Captions counted by claims: how much of what they say is false, what they leave out, how different they are.

Ratings of 1 to 5 hide which kind of claim a policy gave up; shares of claims do not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rewards.shapes.language import describe, read
from rewards.shapes.scenes import Scene
from rewards.shapes.truth import caption_truth, claims_of, match_phrases

CLAIM_KINDS = ("count", "color", "shape", "relation", "background")


@dataclass(frozen=True, slots=True)
class CaptionClaims:
    """What one caption claims.

    Attributes:
        claims: (kind of :data:`CLAIM_KINDS`, whether it holds), a claim a row.
        backgrounds: every background that it names.
        complete: it says every detail of the scene rightly (and perhaps others wrongly).
        words: how many.
    """

    claims: tuple[tuple[str, bool], ...]
    backgrounds: tuple[str, ...]
    complete: bool
    words: int

    @property
    def right(self) -> bool:
        """It claims something, and nothing false."""
        return bool(self.claims) and all(holds for _, holds in self.claims)


def caption_claims(scene: Scene, text: str) -> CaptionClaims:
    """Read a caption against its scene.

    Example:
        >>> from rewards.shapes.scenes import Shape
        >>> scene = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0),), "white")
        >>> found = caption_claims(scene, "a red circle on a black background")
        >>> found.claims
        (('count', True), ('color', True), ('shape', True), ('background', False))
        >>> found.right, found.complete
        (False, False)
    """
    reading, full = read(text), describe(scene)
    claims = claims_of(reading, full, match_phrases(reading.phrases, full.phrases))
    complete = caption_truth(scene, text)["completeness"] == 5
    return CaptionClaims(tuple(claims), reading.backgrounds, complete, reading.words)


def claim_shares(scenes: Sequence[Scene], texts: Sequence[str]) -> dict[str, float]:
    """A set of captions by their claims.

    Args:
        scenes: what was drawn, one a caption.
        texts: the captions.

    Returns:
        Shares by name:

        - `captions_right`: share without a false claim (and with any claim at all).
        - `captions_complete`, `captions_right_and_complete`: shares.
        - `claims_false`: share of all claims, pooled over captions, and `claims_false/<kind>` likewise.
        - `backgrounds_stated`: captions that name one; `backgrounds_right`: share of the backgrounds named;
          `backgrounds_same`: share of the name that is said most often, 1 for a policy that has stopped looking.
        - `texts_distinct`: number of different texts as a share of all; `words`: mean number.

        A share of nothing is NaN.

    Raises:
        ValueError: no captions, or another number of them than of scenes.

    Example:
        >>> from rewards.shapes.scenes import Shape
        >>> scene = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0),), "white")
        >>> shares = claim_shares([scene, scene], ["a red circle on a white background", "a blue circle"])
        >>> shares["captions_right"], shares["claims_false"], shares["texts_distinct"]
        (0.5, 0.14285714285714285, 1.0)
    """
    if len(scenes) != len(texts) or not texts:
        raise ValueError(f"{len(texts)} captions for {len(scenes)} scenes: one a scene, and at least one, is needed")
    rows = [caption_claims(scene, text) for scene, text in zip(scenes, texts)]
    claims = [claim for row in rows for claim in row.claims]
    named = Counter(name for row in rows for name in row.backgrounds)
    return {
        "captions_right": _share([row.right for row in rows]),
        "captions_complete": _share([row.complete for row in rows]),
        "captions_right_and_complete": _share([row.right and row.complete for row in rows]),
        "claims_false": _share([not holds for _, holds in claims]),
        **{f"claims_false/{kind}": _share([not holds for k, holds in claims if k == kind]) for kind in CLAIM_KINDS},
        "backgrounds_stated": _share([bool(row.backgrounds) for row in rows]),
        "backgrounds_right": _share([holds for kind, holds in claims if kind == "background"]),
        "backgrounds_same": max(named.values()) / named.total() if named else math.nan,
        "texts_distinct": len(set(texts)) / len(texts),
        "words": sum(row.words for row in rows) / len(rows),
    }


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else math.nan
