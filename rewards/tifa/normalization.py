"""One form for texts that mean the same string: used on both sides of every comparison in TIFA.

Nothing here looks at meaning: "sofa" and "couch" stay apart (that is :mod:`rewards.tifa.matching`'s business).
"""

from __future__ import annotations

import re
import unicodedata

_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBER_WORDS = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
"""English number words up to ninety; "twenty-one" is read as two words."""

_ARTICLES = frozenset({"a", "an", "the"})
_APOSTROPHES = re.compile(r"['’‘ʼ`´]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def collapse_blanks(text: str) -> str:
    """`text` with every run of white space as one blank and none outside: what makes two prompts the same prompt.

    Example:
        >>> collapse_blanks("  a red\\n circle ")
        'a red circle'
    """
    return " ".join(text.split())


def normalize_answer(text: str) -> str:
    """The form in which answers and choices are compared.

    Unicode forms, case, blanks, punctuation and articles are dropped and number words become digits. A text that
    consists of nothing else ("the", "?") is kept as it is, so that nothing but blanks becomes empty.

    Example:
        >>> normalize_answer("The  T-shirt.")
        't shirt'
        >>> normalize_answer("Twenty-one") == normalize_answer("21")
        True
    """
    plain = collapse_blanks(unicodedata.normalize("NFKC", text).casefold())
    words = _without_punctuation(plain).split()
    words = _digits(words)
    kept = [word for word in words if word not in _ARTICLES]
    return " ".join(kept or words) or plain


def is_number(normalized: str) -> bool:
    """Whether a normalised text is a number, such as "3" or "2.5"."""
    return _NUMBER.fullmatch(normalized) is not None


def _without_punctuation(text: str) -> str:
    text = _THOUSANDS.sub("", _APOSTROPHES.sub("", text))
    last = len(text) - 1
    kept = []
    for position, character in enumerate(text):
        # A decimal point belongs to its number; any other punctuation separates words.
        decimal = (
            character == "." and 0 < position < last and text[position - 1].isdigit() and text[position + 1].isdigit()
        )
        kept.append(character if decimal or not unicodedata.category(character).startswith("P") else " ")
    return "".join(kept)


def _digits(words: list[str]) -> list[str]:
    numbers: list[str] = []
    tens_open = False
    for word in words:
        value = NUMBER_WORDS.get(word)
        if value is None:
            numbers.append(word)
        elif tens_open and 0 < value < 10:
            numbers[-1] = str(int(numbers[-1]) + value)
        else:
            numbers.append(str(value))
        tens_open = value is not None and value >= 20
    return numbers
