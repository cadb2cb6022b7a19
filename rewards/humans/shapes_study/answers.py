"""The true ratings of an answer or an expression about one group of shapes.

The rule, for the tasks `vqa` ("what is in the picture next to ...?") and `referring` (an expression for the boxed
shape):

- correctness: 5 less 1.5 for each wrong claim. In `vqa` a claim is wrong if it holds nowhere in the scene; in
  `referring` if it does not hold of the boxed shape.
- completeness: 1 plus 4 times the share of the asked group's number, colour and shape that are said rightly.
- clarity: 5 less 2 for each vague phrase and 0.5 for each break of grammar.
- fluency: 5 less 1.5 for each break of grammar.
- conciseness: 5 less 0.5 for each word beyond those of the shortest full answer.

All are kept within 1 to 5; an empty text is 1 throughout. Captions have their own rule, `rewards.shapes.truth`.
"""

from __future__ import annotations

from rewards.shapes.language import Phrase, describe, read
from rewards.shapes.scenes import Scene
from rewards.shapes.truth import CRITERIA, match_phrases


def answer_truth(scene: Scene, asked: Phrase, text: str, only_asked: bool) -> dict[str, float]:
    """The five true ratings.

    Args:
        scene: what the picture shows.
        asked: the group that the text should name.
        text: the answer or expression.
        only_asked: claims about other groups are wrong (`referring`), or true if they hold in the scene (`vqa`).

    Example:
        >>> from rewards.shapes.scenes import Shape
        >>> scene = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0),), "white")
        >>> answer_truth(scene, Phrase(1, "red", "circle"), "a blue circle", only_asked=True)["correctness"]
        3.5
    """
    reading = read(text)
    if not reading.words:
        return dict.fromkeys(CRITERIA, 1.0)
    groups = (asked,) if only_asked else describe(scene).phrases
    facts = match_phrases(reading.phrases, groups)
    claims = [claim for fact in facts for claim in (fact.count, fact.color, fact.shape) if claim is not None]
    wrong = claims.count(False) + sum(background != scene.background for background in reading.backgrounds)
    about = [fact for fact in facts if fact.group is not None and groups[fact.group] == asked]
    said = [any(getattr(fact, name) for fact in about) for name in ("count", "color", "shape")]
    extra = max(0, reading.words - len(str(asked).split()))
    return {
        "correctness": _scale(5 - 1.5 * wrong) if claims else 1.0,
        "completeness": _scale(1 + 4 * sum(said) / 3),
        "clarity": _scale(5 - 2 * reading.vague - 0.5 * reading.faults),
        "fluency": _scale(5 - 1.5 * reading.faults),
        "conciseness": _scale(5 - 0.5 * extra),
    }


def _scale(value: float) -> float:
    return float(min(5.0, max(1.0, value)))
