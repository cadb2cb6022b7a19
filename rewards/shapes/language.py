"""What is said about scenes: a description (the meaning), its caption (the words), and a parser for any words at all.

Grammar::

    caption  = phrase { ("and" | relation) phrase } [ "on a" background "background" ]
    phrase   = "a" colour shape | number colour shapes
    relation = "left of" | "right of" | "above" | "below"
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

from rewards.shapes.scenes import BACKGROUNDS, COLORS, SHAPES, Scene, relation

RELATIONS = ("left of", "right of", "above", "below")
OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
NUMBERS = ("zero", "one", "two", "three")
PLURALS = {f"{shape}s": shape for shape in SHAPES}
VAGUE = {"thing": 1, "object": 1, "things": 2, "objects": 2}
FILLERS = (
    ("this", "is", "a", "picture", "of"),
    ("in", "the", "picture", "there", "is"),
    ("there", "is"),
    ("you", "can", "see"),
    ("that", "you", "can", "see"),
    ("in", "the", "picture"),
    ("as", "you", "can", "see"),
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """How many of which colour and shape; None where the words leave it open."""

    count: int | None
    color: str | None
    shape: str | None

    def __str__(self) -> str:
        if self.count == 1:
            return f"a {self.color} {self.shape}"
        return f"{NUMBERS[self.count or 0]} {self.color} {self.shape}s"


@dataclass(frozen=True, slots=True)
class Description:
    """The meaning of a caption: its phrases, the relation of the first to the second, and the background.

    Example:
        >>> d = Description((Phrase(1, "red", "circle"), Phrase(1, "blue", "square")), "above", "white")
        >>> str(d)
        'a red circle above a blue square on a white background'
    """

    phrases: tuple[Phrase, ...]
    relation: str | None = None
    background: str | None = None

    def __str__(self) -> str:
        text = f" {self.relation or 'and'} ".join(map(str, self.phrases))
        return text if self.background is None else f"{text} on a {self.background} background"

    def key(self) -> str:
        """The meaning without the background, equal for equal scenes: splits are made by it."""
        names = [str(p) for p in self.phrases]
        if self.relation and names[0] > names[1]:
            return f"{names[1]} {OPPOSITE[self.relation]} {names[0]}"
        return f" {self.relation or 'and'} ".join(sorted(names) if not self.relation else names)

    def split(self) -> str:
        """``"train"``, ``"validation"`` or ``"test"``: 80, 10 and 10 percent of all meanings, disjoint."""
        return {0: "test", 1: "validation"}.get(zlib.crc32(self.key().encode()) % 10, "train")


def describe(scene: Scene) -> Description:
    """Everything that the grammar can say of a scene, in drawing order."""
    groups = scene.groups()
    phrases = tuple(Phrase(len(shapes), color, kind) for (color, kind), shapes in groups.items())
    related = None
    if len(groups) == 2 and all(len(shapes) == 1 for shapes in groups.values()):
        first, second = (shapes[0].cell for shapes in groups.values())
        related = relation(first, second)
    return Description(phrases, related, scene.background)


def vary(full: Description, rng: random.Random) -> Description:
    """One of the ways to say it: either order, the relation left out at times, the background in 60 percent."""
    phrases, related = full.phrases, full.relation
    if rng.random() < 0.5:
        phrases = phrases[::-1]
        related = OPPOSITE[related] if related else None
    if related and rng.random() < 0.15:
        related = None
    return Description(phrases, related, full.background if rng.random() < 0.6 else None)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says, and how well it is put.

    Attributes:
        phrases: the noun phrases in order, repeats included.
        relations: (index of the left phrase, relation) for each relation that has a phrase on both sides.
        backgrounds: every background named.
        faults: breaks of grammar (words out of place, missing or doubled, number that disagrees).
        vague: phrases that name no shape, or leave the number open.
        words: number of words; ``filler``: words that say nothing about the picture.
        noun_positions: the word index of each phrase's noun.
    """

    phrases: tuple[Phrase, ...]
    relations: tuple[tuple[int, str], ...]
    backgrounds: tuple[str, ...]
    faults: int
    vague: int
    words: int
    filler: int
    noun_positions: tuple[int, ...]


def split_words(text: str) -> list[str]:
    """Lower-case words and single punctuation marks."""
    spaced = "".join(c if c.isalnum() or c.isspace() else f" {c} " for c in text.lower())
    return spaced.split()


def read(text: str) -> Reading:
    """Read any text as well as it can be read; never raises.

    Example:
        >>> reading = read("two red circle above a thing")
        >>> reading.phrases[0], reading.faults, reading.vague
        (Phrase(count=2, color='red', shape='circle'), 1, 1)
    """
    return _Reader(split_words(text)).read()


def meaning(text: str) -> str:
    """What a caption of the grammar says but for the background, equal for captions that say the same.

    Example:
        >>> meaning("a red circle above a blue square on a white background")
        'a blue square below a red circle'
    """
    reading = read(text)
    relation = reading.relations[0][1] if reading.relations and len(reading.phrases) == 2 else None
    return Description(reading.phrases, relation).key()


class _Reader:
    """A left-to-right reader: at each word the longest construction that fits, else the word is a fault."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.at = words, 0
        self.phrases: list[Phrase] = []
        self.relations: list[tuple[int, str]] = []
        self.backgrounds: list[str] = []
        self.nouns: list[int] = []
        self.faults = self.vague = self.filler = 0
        self.connector: str | None = None  # waiting for the phrase on its right

    def read(self) -> Reading:
        while self.at < len(self.words):
            if not (self._filler() or self._background() or self._connector() or self._phrase()):
                self.faults += 1
                self.at += 1
        if self.connector or not self.phrases:
            self.faults += 1
        return Reading(
            tuple(self.phrases), tuple(self.relations), tuple(self.backgrounds), self.faults, self.vague,
            len(self.words), self.filler, tuple(self.nouns),
        )  # fmt: skip

    def _ahead(self, *expected: str) -> bool:
        return tuple(self.words[self.at : self.at + len(expected)]) == expected

    def _filler(self) -> bool:
        for filler in FILLERS:
            if self._ahead(*filler):
                self.at += len(filler)
                self.filler += len(filler)
                return True
        return False

    def _background(self) -> bool:
        for name in BACKGROUNDS:
            for form in (("on", "a", name, "background"), ("on", name, "background"), ("a", name, "background"),
                         (name, "background")):  # fmt: skip
                if self._ahead(*form):
                    self.faults += len(form) < 4 or not self.phrases
                    self.backgrounds.append(name)
                    self.at += len(form)
                    return True
        return False

    def _connector(self) -> bool:
        for name in ("and", *RELATIONS):
            if self._ahead(*name.split()):
                if self.connector or not self.phrases or self.backgrounds:
                    self.faults += 1
                self.connector = name
                self.at += len(name.split())
                return True
        return False

    def _phrase(self) -> bool:
        start, i, words = self.at, self.at, self.words
        count: int | None = None
        determiner = i < len(words) and words[i] in ("a", "an", "one", "two", "three", "zero", "some", "the")
        if determiner:
            count = {"a": 1, "an": 1, "the": 1, "some": None}.get(words[i])
            if words[i] in NUMBERS:
                count = NUMBERS.index(words[i])
            i += 1
        color = None
        faults = 0
        while i < len(words) and words[i] in COLORS:
            faults += color is not None  # "a red red circle", "a red blue circle": the first colour counts
            color = color or words[i]
            i += 1
        if i >= len(words) or not (words[i] in SHAPES or words[i] in PLURALS or words[i] in VAGUE):
            return False
        noun = words[i]
        plural = noun in PLURALS or VAGUE.get(noun) == 2
        self.faults += faults
        if not determiner or (words[start] in ("a", "an", "one", "the")) == plural:
            self.faults += 1
        if self.phrases and not self.connector:
            self.faults += 1
        if noun in VAGUE or color is None or (determiner and words[start] == "some"):
            self.vague += 1
        if self.connector in RELATIONS and self.phrases:
            self.relations.append((len(self.phrases) - 1, self.connector))
        self.connector = None
        self.nouns.append(i)
        self.phrases.append(Phrase(count, color, None if noun in VAGUE else PLURALS.get(noun, noun)))
        self.at = i + 1
        return True
