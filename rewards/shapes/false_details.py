"""One false detail: a text about a scene with one place changed, so that it says less truth than before.

The edits are made on the words, so they work on captions of the grammar and on whatever a policy writes; the truth
(:mod:`rewards.shapes.truth`) decides which of them are false. The text and its edit are a pair that any judge of texts
should rank: how often it does, by kind, is its blind spots' map.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from rewards.shapes.language import NUMBERS, PLURALS, RELATIONS, read, split_words
from rewards.shapes.scenes import BACKGROUNDS, COLORS, SHAPES, Scene
from rewards.shapes.truth import caption_truth

KINDS = ("color", "shape", "count", "relation", "location", "background", "invented", "missing")
DETERMINERS = ("a", "an", "the", "some", *NUMBERS)
_SINGULARS = {shape: f"{shape}s" for shape in SHAPES}
_ONE = ("a", "an", "one")

Words = list[str]
Span = tuple[int, int]  # first word, one past the last


def criterion_of(kind: str) -> str:
    """The criterion that a false detail of this kind lowers: completeness for a missing object, else correctness.

    Example:
        >>> criterion_of("missing"), criterion_of("background")
        ('completeness', 'correctness')
    """
    return "completeness" if kind == "missing" else "correctness"


def edits(text: str, kind: str) -> list[str]:
    """Every change of one detail of a kind that the words allow, false or not, in the order of the words.

    Args:
        text: any text; details are found as :func:`rewards.shapes.language.read` finds them.
        kind: one of :data:`KINDS`: another colour, shape or number, another relation, two objects in each other's
            place, another background, an object more, an object less.

    Raises:
        KeyError: an unknown kind.

    Example:
        >>> edits("a red circle on a white background", "background")
        ['a red circle on a black background', 'a red circle on a gray background']
        >>> edits("a red circle above a blue square", "location")
        ['a blue square above a red circle']
    """
    words = split_words(text)
    return [" ".join(changed) for changed in _EDITS[kind](words, _phrase_spans(words, text))]


def false_details(scene: Scene, text: str, kind: str) -> list[str]:
    """The edits of a kind that make the text worse by the truth, and leave its grammar as it was.

    Args:
        scene: what was drawn.
        text: a text about it; what it says wrongly already stays as it is.
        kind: one of :data:`KINDS`.

    Returns:
        Texts whose true rating by :func:`criterion_of` is lower than the text's, and that say nothing false where an
        object is only missing; none where the text states no true detail of the kind, or has the lowest rating already.

    Example:
        >>> from rewards.shapes.scenes import Shape
        >>> scene = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0),), "white")
        >>> false_details(scene, "a red circle", "shape")
        ['a red square', 'a red triangle']
        >>> false_details(scene, "a red circle", "background")
        []
    """
    before, reading, criterion = caption_truth(scene, text), read(text), criterion_of(kind)
    found = []
    for changed in edits(text, kind):
        after, again = caption_truth(scene, changed), read(changed)
        same_style = (again.faults, again.vague) == (reading.faults, reading.vague)
        only_missing = kind != "missing" or after["correctness"] >= before["correctness"]
        if same_style and only_missing and after[criterion] < before[criterion]:
            found.append(changed)
    return found


def false_detail(scene: Scene, text: str, kind: str, rng: random.Random) -> str | None:
    """One of :func:`false_details`, or None where there are none.

    Example:
        >>> from rewards.shapes.scenes import Shape
        >>> scene = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0),), "white")
        >>> false_detail(scene, "a red circle", "count", random.Random(0))
        'three red circles'
    """
    found = false_details(scene, text, kind)
    return rng.choice(found) if found else None


def _phrase_spans(words: Words, text: str) -> list[Span]:
    """Where each noun phrase stands, its determiner and colours included."""
    spans = []
    for noun in read(text).noun_positions:
        start = noun
        while start > 0 and words[start - 1] in COLORS:
            start -= 1
        if start > 0 and words[start - 1] in DETERMINERS:
            start -= 1
        spans.append((start, noun + 1))
    return spans


def _with(words: Words, start: int, end: int, new: Words) -> Words:
    return [*words[:start], *new, *words[end:]]


def _colors(words: Words, spans: list[Span]) -> list[Words]:
    places = [end - 2 for _, end in spans if end >= 2 and words[end - 2] in COLORS]
    return [_with(words, at, at + 1, [color]) for at in places for color in COLORS if color != words[at]]


def _shapes(words: Words, spans: list[Span]) -> list[Words]:
    changed = []
    for _, end in spans:
        for family in (tuple(_SINGULARS), tuple(PLURALS)):
            if words[end - 1] in family:
                changed += [_with(words, end - 1, end, [noun]) for noun in family if noun != words[end - 1]]
    return changed


def _counts(words: Words, spans: list[Span]) -> list[Words]:
    """Another number, with the noun that goes with it."""
    changed = []
    for start, end in spans:
        noun = PLURALS.get(words[end - 1], words[end - 1])
        if noun not in _SINGULARS or words[start] not in (*_ONE, *NUMBERS):
            continue
        said = 1 if words[start] in _ONE else NUMBERS.index(words[start])
        for number in (1, 2, 3):
            if number != said:
                determiner = "a" if number == 1 else NUMBERS[number]
                new = [determiner, *words[start + 1 : end - 1], noun if number == 1 else _SINGULARS[noun]]
                changed.append(_with(words, start, end, new))
    return changed


def _gaps(words: Words, spans: list[Span], connectors: tuple[str, ...]) -> list[tuple[int, Span]]:
    """(phrase on the left, place) of each of these connectors that stands alone between two phrases."""
    pairs = [(i, (left[1], right[0])) for i, (left, right) in enumerate(pairwise(spans))]
    return [(i, (start, end)) for i, (start, end) in pairs if " ".join(words[start:end]) in connectors]


def _relations(words: Words, spans: list[Span]) -> list[Words]:
    """Another relation; where none is stated, one in the place of "and"."""
    gaps = _gaps(words, spans, RELATIONS) or _gaps(words, spans, ("and",))
    return [
        _with(words, start, end, name.split())
        for _, (start, end) in gaps
        for name in RELATIONS
        if name.split() != words[start:end]
    ]


def _locations(words: Words, spans: list[Span]) -> list[Words]:
    """Two related objects in each other's place."""
    changed = []
    for i, (start, end) in _gaps(words, spans, RELATIONS):
        (first, _), (_, last) = spans[i], spans[i + 1]
        changed.append(_with(words, first, last, [*words[end:last], *words[start:end], *words[first:start]]))
    return changed


def _backgrounds(words: Words, spans: list[Span]) -> list[Words]:
    places = [i for i, w in enumerate(words[:-1]) if w in BACKGROUNDS and words[i + 1] == "background"]
    return [_with(words, at, at + 1, [name]) for at in places for name in BACKGROUNDS if name != words[at]]


def _invented(words: Words, spans: list[Span]) -> list[Words]:
    """An object more, after the last one."""
    at = spans[-1][1] if spans else 0
    return [_with(words, at, at, ["and", "a", color, shape]) for color in COLORS for shape in SHAPES if spans]


def _missing(words: Words, spans: list[Span]) -> list[Words]:
    """An object less, with the connector that joined it."""
    changed = []
    for i, (start, end) in _gaps(words, spans, (*RELATIONS, "and")):
        changed.append(_with(words, spans[i][0], end, []))  # the left one
        if i + 2 == len(spans):
            changed.append(_with(words, start, spans[i + 1][1], []))  # and the last
    return changed


_EDITS: dict[str, Callable[[Words, list[Span]], list[Words]]] = {
    "color": _colors,
    "shape": _shapes,
    "count": _counts,
    "relation": _relations,
    "location": _locations,
    "background": _backgrounds,
    "invented": _invented,
    "missing": _missing,
}
