"""One form for texts that mean the same string: used on both sides of every comparison in TIFA.

Nothing here looks at meaning: "sofa" and "couch" stay apart (that is :mod:`rewards.tifa.matching`'s business), and what
changes the meaning stays: a sign, a decimal point, a per cent, the "A" of "vitamin A".
"""

from __future__ import annotations

import re
import unicodedata

from rewards.tifa.numbers import MULTIPLIERS, NUMBER_WORDS, in_digits

_APOSTROPHES = re.compile(r"['’‘ʼ`´]")
_DASHES = re.compile(r"[\u2010-\u2015\u2212]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)
_SUPERSCRIPTS = re.compile(r"[⁺⁻]?[\u00b2\u00b3\u00b9\u2070\u2074-\u2079]+")
_SIGN_AT_THE_START = re.compile(rf"^- ?(?=\.?\d|(?:{'|'.join([*NUMBER_WORDS, *MULTIPLIERS])})\b)")

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
    digits ("a dozen" is "12", "3.0" and "03" are "3", "minus five" is "-5"). Kept is what changes the meaning: the sign
    of a number ("- 3" at the start of a text is "-3"), its decimal point, its exponent ("2²" is "2^2"), "%", the "#" of
    "C#", the "-" of the grade "A-", and an "a" that is no article. A text that consists of nothing else ("the", "?") is
    kept as it is, so that nothing but what cannot be seen becomes empty.

    Example:
        >>> normalize_answer("The  T-shirt.")
        't shirt'
        >>> normalize_answer("Twenty-one") == normalize_answer("21")
        True
        >>> normalize_answer("Vitamin A"), normalize_answer("-5")
        ('vitamin a', '-5')
    """
    plain = plain_text(text)
    words = in_digits(_without_punctuation(_SIGN_AT_THE_START.sub("minus ", plain)).split())
    return " ".join(_without_articles(words) or words) or plain


def plain_text(text: str) -> str:
    """A text in one Unicode form, in lower case, with plain blanks and dashes and nothing that cannot be seen.

    Example:
        >>> plain_text("Two\u2010Year\u2013Old"), plain_text("2²"), plain_text("2½")
        ('two-year-old', '2^2', '2 1/2')
    """
    marked = _SUPERSCRIPTS.sub(lambda match: f"^{match[0]}", text)
    apart = "".join(_apart(marked, position) for position in range(len(marked)))
    folded = _visible(unicodedata.normalize("NFKC", apart)).casefold()
    return collapse_blanks(_DASHES.sub("-", folded).replace("\u2044", "/"))


def _apart(text: str, position: int) -> str:
    """A character that becomes digits (a fraction, a number in a circle) stays apart from the digits beside it."""
    character = text[position]
    if unicodedata.category(character) == "No" and text[position - 1 : position].isdecimal():
        return f" {character}" if "<super>" not in unicodedata.decomposition(character) else character
    return character


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
    text = _THOUSANDS.sub("", _APOSTROPHES.sub("", text))
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
    if character in "-*" and not after.isalnum() and before.isalpha() and not text[: position - 1][-1:].isalnum():
        return character  # the grade A- is no A
    if character in "′″‰‱" and before.isdecimal():
        return character
    if character == "-" and before == "a" and after.isalnum() and not text[: position - 1].rstrip(" ([")[-1:].isalnum():
        return "-"  # an A-frame is no frame
    if character in "%٪" and before.isdecimal():
        return " percent "
    if character == "&":
        return " and "
    if (character == "#" and before.isalpha()) or (character == "/" and before.isdecimal() and after.isdecimal()):
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    return " " if unicodedata.category(character).startswith("P") else character
