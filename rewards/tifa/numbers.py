"""Numbers in words: "two hundred and five", "a dozen", "minus three" -> digits."""

from __future__ import annotations

import re
from collections.abc import Sequence

_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBER_WORDS = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
"""English number words up to ninety; "twenty-one" is read as two words."""

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
MULTIPLIERS = {"dozen": 12, "hundred": 100, **_SCALES}
"""Words that multiply the number before them."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def is_number(word: str) -> bool:
    """Whether a normalised text is a number, such as "3", "-3" or "2.5"."""
    return _NUMBER.fullmatch(word) is not None


def in_digits(words: Sequence[str]) -> list[str]:
    """Words with every number in one form: no words, no sign but "-", no zeros that begin it or end a decimal.

    Args:
        words: lower case, without punctuation.

    Example:
        >>> in_digits(["two", "hundred", "and", "five", "dogs"]), in_digits(["a", "dozen"]), in_digits(["minus", "3.0"])
        (['205', 'dogs'], ['12'], ['-3'])
        >>> in_digits(["twenty", "twenty"])
        ['20', '20']
    """
    found: list[str] = []
    at = 0
    while at < len(words):
        value, after = _read(words, at, follows_number=bool(found) and is_number(found[-1]))
        found.append(_shortest(words[at]) if value is None else str(value))
        at = after
        if len(found) > 1 and found[-2] in ("minus", "negative") and is_number(found[-1]):
            found[-2:] = [found[-1] if found[-1].startswith("-") or found[-1] == "0" else f"-{found[-1]}"]
    return found


def _read(words: Sequence[str], start: int, follows_number: bool) -> tuple[int | None, int]:
    """The number whose words begin at `start`, and where they end; None for no number, and then the next word."""
    group, at = _first(words, start, follows_number)
    if group is None:
        return None, start + 1
    total, scale = 0, 10**12
    # How large a number may come next: after "twenty" below 10, after "hundred" below 100, after a unit none.
    room = 10 if at > start and words[at - 1] in _TENS else 0
    while at < len(words):
        word = words[at]
        joined = word == "and" and room >= 100 and at + 1 < len(words)
        value = NUMBER_WORDS.get(words[at + 1] if joined else word)
        if value is not None and 0 < value < room:
            group += value
            at += 1 + joined
            room = 10 if value >= 20 else 0
        elif word in ("hundred", "dozen") and 0 < group < 100:
            group *= MULTIPLIERS[word]
            at, room = at + 1, 100 if word == "hundred" else 0
        elif word in _SCALES and 0 < group < 1000 and _SCALES[word] < scale:
            scale = _SCALES[word]
            total, group = total + group * scale, 0
            at, room = at + 1, 1000
        else:
            break
    return total + group, at


def _first(words: Sequence[str], start: int, follows_number: bool) -> tuple[int | None, int]:
    """The first part of a number: a word, digits or "a" before a multiplier, or a multiplier alone ("dozen")."""
    word = words[start]
    after = words[start + 1] if start + 1 < len(words) else ""
    if word in NUMBER_WORDS:
        return NUMBER_WORDS[word], start + 1
    if word.isascii() and word.isdecimal() and after in MULTIPLIERS:
        return int(word), start + 1
    if word == "half" and words[start + 1 : start + 3] in (["a", "dozen"], ("a", "dozen")):
        return 6, start + 3
    if word == "half" and after == "dozen":
        return 6, start + 2
    if word == "a" and after in MULTIPLIERS:
        return 1, start + 1
    if word in MULTIPLIERS and not follows_number:
        return 1, start
    return None, start


def _shortest(word: str) -> str:
    """ "3.0" -> "3", "2.50" -> "2.5", "03" -> "3", "-0" -> "0"; other words as they are."""
    if not is_number(word):
        return word
    whole, dot, decimals = word.removeprefix("-").partition(".")
    value = (whole.lstrip("0") or "0") + (dot + decimals).rstrip("0").rstrip(".")
    return f"-{value}" if word.startswith("-") and value != "0" else value
