"""TIFA's questions for a shapes caption, from its meaning: fixed, complete, with the element types of the paper."""

from __future__ import annotations

from collections import Counter

from rewards.shapes.language import NUMBERS, Description, Phrase, read
from rewards.shapes.scenes import BACKGROUNDS, COLORS, SHAPES
from rewards.tifa.questions.question import Question
from rewards.tifa.questions.surplus import SURPLUS

ELEMENT_TYPES = ("object", "color", "shape", "counting", "spatial", "location")
SIDE = {"left of": "left", "right of": "right", "above": "above", "below": "below"}


def meaning(caption: str) -> Description:
    """The description that a caption of the grammar states.

    Example:
        >>> str(meaning("two red circles on a black background"))
        'two red circles on a black background'
    """
    reading = read(caption)
    related = reading.relations[0][1] if reading.relations else None
    return Description(reading.phrases, related, reading.backgrounds[0] if reading.backgrounds else None)


def questions_for(caption: str, surplus: bool = False) -> list[Question]:
    """Every question whose answer the caption fixes (TIFA §3.1: a yes/no and a multiple-choice question an element).

    Args:
        caption: words of the grammar in :mod:`rewards.shapes.language`.
        surplus: ask further what shows an object that the caption does not name: how many objects there are of each
            colour and each shape that it does name, and in all. The judge of this world knows a closed set of words, so
            that "is there anything else?" is asked by counting.

    Example:
        >>> [q.text for q in questions_for("a red circle")][:2]
        ['is there a red circle?', 'what color is the circle?']
        >>> [q.text for q in questions_for("a red circle", surplus=True) if q.element_type == "surplus"]
        ['how many red objects are there?', 'how many circles are there?']
    """
    said = meaning(caption)
    rows: list[tuple[str, str, tuple[str, ...], str, str]] = []
    for phrase in said.phrases:
        rows += _about(phrase, said)
    total = sum(p.count or 0 for p in said.phrases)
    if total < len(NUMBERS) and (len(said.phrases) > 1 or said.phrases[0].count == 1):  # else there is no word for it
        rows.append(("how many objects are there?", NUMBERS[total], NUMBERS, "objects", "counting"))
    if said.relation:
        a, b = (f"{p.color} {p.shape}" for p in said.phrases[:2])
        rows.append((f"is the {a} {said.relation} the {b}?", "yes", ("yes", "no"), said.relation, "spatial"))
        rows.append(
            (
                f"where is the {a} relative to the {b}?",
                SIDE[said.relation],
                tuple(SIDE.values()),
                said.relation,
                "spatial",
            )
        )
    if said.background:
        rows.append(("what color is the background?", said.background, tuple(BACKGROUNDS), "background", "location"))
    if surplus:
        asked = {row[0] for row in rows}
        rows += [row for row in _counted(said) if row[0] not in asked]
    return [
        Question(
            text=text,
            choices=choices,
            answer=answer,
            element=element,
            element_type=kind,
            prompt=caption,
            id=caption,
        )
        for text, answer, choices, element, kind in rows
    ]


def _counted(said: Description) -> list[tuple[str, str, tuple[str, ...], str, str]]:
    """How many objects there are of each colour, of each shape, and in all, where there is a word for it."""
    colors = Counter[str]()
    shapes = Counter[str]()
    for phrase in said.phrases:
        colors[str(phrase.color)] += phrase.count or 0
        shapes[str(phrase.shape)] += phrase.count or 0
    counts = {f"{color} objects": count for color, count in colors.items()}
    counts |= {f"{shape}s": count for shape, count in shapes.items()} | {"objects": colors.total()}
    return [
        (f"how many {what} are there?", NUMBERS[count], NUMBERS, what, SURPLUS)
        for what, count in counts.items()
        if count < len(NUMBERS)
    ]


def _about(phrase: Phrase, said: Description) -> list[tuple[str, str, tuple[str, ...], str, str]]:
    """The questions on one phrase; colour and shape are asked only where the other one tells it apart."""
    one = phrase.count == 1
    element = f"{phrase.color} {phrase.shape}"
    rows: list[tuple[str, str, tuple[str, ...], str, str]] = [
        (f"is there a {element}?", "yes", ("yes", "no"), element, "object")
    ]
    if sum(p.shape == phrase.shape for p in said.phrases) == 1:
        noun = f"is the {phrase.shape}" if one else f"are the {phrase.shape}s"
        rows.append((f"what color {noun}?", str(phrase.color), tuple(COLORS), str(phrase.color), "color"))
    if sum(p.color == phrase.color for p in said.phrases) == 1:
        noun = f"is the {phrase.color} object" if one else f"are the {phrase.color} objects"
        rows.append((f"what shape {noun}?", str(phrase.shape), SHAPES, str(phrase.shape), "shape"))
    if not one:
        rows.append((f"how many {element}s are there?", NUMBERS[phrase.count or 0], NUMBERS, element, "counting"))
    return rows
