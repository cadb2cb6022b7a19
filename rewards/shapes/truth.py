"""The truth about a caption: the five criteria of HarmonicEval (tab. 1) computed from the scene, each 1 to 5.

- correctness: 5 less 1.5 for each wrong claim (a phrase's colour, shape or number, a relation, the background).
- completeness: share of the scene's details that are said rightly (the background and the relation count as one
  detail each).
- clarity: 5 less 2 for each vague phrase ("a thing", "some circles", no colour) and 0.5 for each break of grammar.
- fluency: 5 less 1.5 for each break of grammar.
- conciseness: 5 less a penalty for words beyond what the distinct claims need.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rewards.shapes.language import OPPOSITE, Description, Phrase, Reading, describe, read
from rewards.shapes.scenes import Scene

CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")


@dataclass(frozen=True, slots=True)
class PhraseTruth:
    """Which claims of one phrase hold; None where the phrase makes no such claim. ``group`` indexes the scene's
    groups.
    """

    group: int | None
    count: bool | None
    color: bool | None
    shape: bool | None


def caption_truth(scene: Scene, text: str) -> dict[str, float]:
    """The five true ratings of a text about a scene; an empty text is 1 throughout.

    Example:
        >>> from rewards.shapes.scenes import Shape
        >>> scene = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0),), "white")
        >>> caption_truth(scene, "a red circle on a white background")["correctness"]
        5.0
        >>> caption_truth(scene, "a blue circle")["correctness"] < 4
        True
    """
    reading = read(text)
    if not reading.words:
        return dict.fromkeys(CRITERIA, 1.0)
    full = describe(scene)
    facts = match_phrases(reading.phrases, full.phrases)
    return {
        "correctness": _correctness(reading, full, facts),
        "completeness": _completeness(reading, full, facts),
        "clarity": _scale(5 - 2 * reading.vague - 0.5 * reading.faults),
        "fluency": _scale(5 - 1.5 * reading.faults),
        "conciseness": _conciseness(reading),
    }


def true_overall(scene: Scene, text: str) -> float:
    """The mean of the five true ratings."""
    ratings = caption_truth(scene, text)
    return sum(ratings.values()) / len(ratings)


def _scale(value: float) -> float:
    return float(min(5.0, max(1.0, value)))


@lru_cache(maxsize=4096)
def match_phrases(said: tuple[Phrase, ...], true: tuple[Phrase, ...]) -> tuple[PhraseTruth, ...]:
    """Give each phrase the scene's group that it fits best, each group once; a repeat of a phrase shares its group."""
    facts: list[PhraseTruth] = []
    free = set(range(len(true)))
    best_first = sorted(range(len(said)), key=lambda i: (-max((_fit(said[i], t) for t in true), default=0), i))
    chosen: dict[int, int | None] = {}
    for i in best_first:
        twin = next((chosen[j] for j in chosen if said[j] == said[i]), None)
        options = [g for g in sorted(free) if _fit(said[i], true[g]) > 0]
        group = twin if twin is not None else max(options, key=lambda g: _fit(said[i], true[g])) if options else None
        chosen[i] = group
        free.discard(group if group is not None else -1)
    for i, phrase in enumerate(said):
        group = chosen[i]
        target = true[group] if group is not None else None
        facts.append(
            PhraseTruth(
                group,
                None if phrase.count is None else target is not None and phrase.count == target.count,
                None if phrase.color is None else target is not None and phrase.color == target.color,
                None if phrase.shape is None else target is not None and phrase.shape == target.shape,
            )
        )
    return tuple(facts)


def _fit(said: Phrase, true: Phrase) -> float:
    """Colour and shape decide what a phrase is about, the number only between equals."""
    return (
        (said.color == true.color) * 2
        + (said.shape == true.shape) * 2
        + 0.5
        * (said.count == true.count)
        * (said.color == true.color or said.shape == true.shape or said.shape is None)
    )


def relation_holds(reading: Reading, full: Description, facts: tuple[PhraseTruth, ...]) -> list[bool]:
    """For each relation said, whether it holds between the groups that its two phrases are about."""
    out = []
    for left, said in reading.relations:
        pair = facts[left].group, facts[left + 1].group
        true = full.relation
        out.append(
            true is not None and ((pair == (0, 1) and said == true) or (pair == (1, 0) and said == OPPOSITE[true]))
        )
    return out


def claims_of(reading: Reading, full: Description, facts: tuple[PhraseTruth, ...]) -> list[tuple[str, bool]]:
    """(kind, whether it holds) of every claim: count, color and shape of each phrase, each relation and background."""
    claims = [
        (kind, bool(holds))
        for fact in facts
        for kind, holds in (("count", fact.count), ("color", fact.color), ("shape", fact.shape))
        if holds is not None
    ]
    claims += [("relation", holds) for holds in relation_holds(reading, full, facts)]
    return claims + [("background", name == full.background) for name in reading.backgrounds]


def _correctness(reading: Reading, full: Description, facts: tuple[PhraseTruth, ...]) -> float:
    claims = claims_of(reading, full, facts)
    return _scale(5 - 1.5 * sum(not holds for _, holds in claims)) if claims else 1.0


def _completeness(reading: Reading, full: Description, facts: tuple[PhraseTruth, ...]) -> float:
    details: list[bool] = []
    for group in range(len(full.phrases)):
        about = [f for f in facts if f.group == group]
        details += [any(f.count for f in about), any(f.color for f in about), any(f.shape for f in about)]
    if full.relation:
        details.append(any(relation_holds(reading, full, facts)))
    details.append(full.background in reading.backgrounds)
    return 1 + 4 * sum(details) / len(details)


def _conciseness(reading: Reading) -> float:
    """Words needed: three a distinct phrase, one a connector, four for the background."""
    distinct = len(set(reading.phrases))
    relations = {(reading.phrases[i], r, reading.phrases[i + 1]) for i, r in reading.relations}
    extra_words = sum(len(r.split()) - 1 for _, r, _ in relations)
    needed = 3 * distinct + max(0, distinct - 1) + extra_words + 4 * len(set(reading.backgrounds))
    excess = max(0, reading.words - max(needed, 1)) / max(needed, 4)
    return _scale(5 - 4 * excess)
