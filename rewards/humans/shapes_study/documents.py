"""Drawn documents: lines of digits and words, readings of a line with faults, and their true ratings.

The rule, by aligning a reading with the line that was asked for:

- correctness: 5 less 1.5 for each word that stands for another one.
- completeness: 1 plus 4 times the share of the line's words that are there, in order.
- clarity: 5 less 1 for each word that is no word (letters shuffled).
- fluency: 5 less 1.5 for each word said twice in a row or out of order.
- conciseness: 5 less 0.5 for each word beyond the line's own.
"""

from __future__ import annotations

import random
from difflib import SequenceMatcher
from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

from rewards.shapes.vocabulary import CRITERIA

NOUNS = ("apple", "bread", "candle", "door", "engine", "flower", "glass", "house", "island", "jacket", "kettle", "lamp")
LINES = 3
WORDS_A_LINE = 4


def sample_document(rng: random.Random) -> list[list[str]]:
    """Three lines of four words or numbers, all different within a line."""
    return [
        [str(rng.randrange(10, 1000)) if rng.random() < 0.4 else noun for noun in rng.sample(NOUNS, WORDS_A_LINE)]
        for _ in range(LINES)
    ]


def draw_document(lines: list[list[str]]) -> Image.Image:
    """The document as a black-on-white picture, 224 x 96."""
    picture = Image.new("RGB", (224, 96), "white")
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(16)
    for number, line in enumerate(lines):
        draw.text((8, 8 + 28 * number), f"{number + 1}. " + " ".join(line), fill="black", font=font)
    return picture


def flawed_reading(lines: list[list[str]], asked: int, rng: random.Random, faults: int) -> str:
    """The asked line with some faults: a word changed, left out, doubled, shuffled, moved, or words of another line."""
    words = list(lines[asked])
    for _ in range(faults):
        place = rng.randrange(len(words))
        fault = rng.choice(("change", "change", "omit", "double", "shuffle", "swap", "more"))
        if fault == "change":
            words[place] = str(rng.randrange(10, 1000)) if words[place].isdigit() else rng.choice(NOUNS)
        elif fault == "omit" and len(words) > 1:
            del words[place]
        elif fault == "double":
            words.insert(place, words[place])
        elif fault == "shuffle":
            words[place] = "".join(rng.sample(words[place], len(words[place])))
        elif fault == "swap" and len(words) > 1:
            other = (place + 1) % len(words)
            words[place], words[other] = words[other], words[place]
        else:
            words += lines[(asked + 1) % len(lines)][: rng.randrange(1, 3)]
    return " ".join(words)


def document_truth(lines: list[list[str]], asked: int, text: str) -> dict[str, float]:
    """The five true ratings of a reading.

    Example:
        >>> lines = [["apple", "12", "door", "lamp"], ["bread", "7", "house", "glass"], ["island", "9", "door", "lamp"]]
        >>> document_truth(lines, 0, "apple 12 door lamp") == dict.fromkeys(CRITERIA, 5.0)
        True
        >>> document_truth(lines, 0, "apple 13 door")["correctness"]
        3.5
    """
    said, true = text.split(), lines[asked]
    if not said:
        return dict.fromkeys(CRITERIA, 1.0)
    blocks = SequenceMatcher(None, true, said, autojunk=False)
    matched = sum(block.size for block in blocks.get_matching_blocks())
    replaced = sum(min(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks.get_opcodes() if tag == "replace")
    known = {word for line in lines for word in line} | set(NOUNS)
    unknown = sum(word not in known and not word.isdigit() for word in said)
    doubled = sum(a == b for a, b in pairwise(said))
    moved = sum((said.count(word) > 0) for word in true) - matched
    return {
        "correctness": _scale(5 - 1.5 * replaced),
        "completeness": _scale(1 + 4 * matched / len(true)),
        "clarity": _scale(5 - unknown),
        "fluency": _scale(5 - 1.5 * (doubled + max(0, moved))),
        "conciseness": _scale(5 - 0.5 * max(0, len(said) - len(true))),
    }


def _scale(value: float) -> float:
    return float(min(5.0, max(1.0, value)))
