"""One form for texts that mean the same string: used on both sides of every comparison in TIFA.

Nothing here looks at meaning: "sofa" and "couch" stay apart (that is :mod:`rewards.tifa.matching`'s business), and what
changes the meaning stays: a sign, a decimal point, a per cent, the "A" of "vitamin A".
"""

from __future__ import annotations

import re
import unicodedata

from rewards.tifa.numbers import in_digits

_APOSTROPHES = re.compile(r"['’‘ʼ`´]")
_DASHES = re.compile(r"[\u2010-\u2015\u2212]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)

# An "a" after one of these, or after a word in -ing, is an article; after any other word it may be a name: vitamin A.
_BEFORE_ARTICLE = frozenset(
    "about above across after against along am among and are around as at be been before behind below beneath beside "
    "between but by down for from had has have in inside into is its like near of off on onto or out outside over past "
    "than thats the theres through to toward towards under up upon was were with without".split()
)


def collapse_blanks(text: str) -> str:
    """`text` with every run of white space as one blank and none outside: what makes two prompts the same prompt.

    Example:
        >>> collapse_blanks("  a red\\n circle ")
        'a red circle'
    """
    return " ".join(text.split())


def normalize_answer(text: str) -> str:
    """The form in which answers and choices are compared.

    Unicode forms, case, blanks, invisible characters, punctuation and articles are dropped and numbers in words become
    digits ("a dozen" is "12", "3.0" is "3", "minus five" is "-5"). Kept is what changes the meaning: the sign of a
    number, its decimal point, "%", the "#" of "C#", and an "a" that is no article. A text that consists of nothing else
    ("the", "?") is kept as it is, so that nothing but what cannot be seen becomes empty.

    Example:
        >>> normalize_answer("The  T-shirt.")
        't shirt'
        >>> normalize_answer("Twenty-one") == normalize_answer("21")
        True
        >>> normalize_answer("Vitamin A"), normalize_answer("-5")
        ('vitamin a', '-5')
    """
    plain = collapse_blanks(_visible(unicodedata.normalize("NFKC", text)).casefold())
    words = in_digits(_without_punctuation(plain).split())
    return " ".join(_without_articles(words) or words) or plain


def _visible(text: str) -> str:
    """Without zero-width characters, soft hyphens, byte order and direction marks; other controls are blanks."""
    kept = []
    for character in text:
        category = unicodedata.category(character)
        if category == "Cf" or ord(character) in _VARIATION_SELECTORS:
            continue
        kept.append(" " if category == "Cc" else character)
    return "".join(kept)


def _without_articles(words: list[str]) -> list[str]:
    kept: list[str] = []
    for position, word in enumerate(words):
        article = word in ("an", "the")
        if word == "a":
            before = kept[-1] if kept else ""
            last = position == len(words) - 1
            article = not last and (not before or before in _BEFORE_ARTICLE or before.endswith("ing"))
        if not article:
            kept.append(word)
    return kept


def _without_punctuation(text: str) -> str:
    text = _DASHES.sub("-", _THOUSANDS.sub("", _APOSTROPHES.sub("", text))).replace("\u2044", "/")
    return "".join(_character(text, position) for position in range(len(text)))


def _character(text: str, position: int) -> str:
    """What becomes of one character: itself, or a blank for punctuation that separates words."""
    character = text[position]
    before = text[position - 1] if position else " "
    after = text[position + 1 : position + 2] or " "
    starts = before.isspace() or before in "(["
    if character == "." and after.isdecimal() and (before.isdecimal() or starts or before in "-+"):
        return "." if before.isdecimal() else "0."
    if character in "-+" and starts and (after.isdecimal() or text[position + 1 : position + 3].strip(".").isdecimal()):
        return "-" if character == "-" else ""
    if character == "-" and before == "a" and after.isalnum() and not text[: position - 1].rstrip(" ([")[-1:].isalnum():
        return "-"  # an A-frame is no frame
    if character == "%" and before.isdecimal():
        return " percent "
    if character == "&":
        return " and "
    if (character == "#" and before.isalpha()) or (character == "/" and before.isdecimal() and after.isdecimal()):
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    return " " if unicodedata.category(character).startswith("P") else character
