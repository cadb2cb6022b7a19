"""How an answer may be written: what Soft-TIFA sums over (GenEval 2, arXiv 2512.16853; released `evaluation.py`)."""

from __future__ import annotations

from rewards.tifa.normalization import normalize_answer
from rewards.tifa.numbers import NUMBER_WORDS


def surface_forms(answer: str) -> tuple[str, ...]:
    """The spellings of one answer: as it is, in lower case and with a capital; a number also in digits and in words;
    each with and without a blank before it.

    Example:
        >>> surface_forms("Yes")
        ('Yes', 'yes', ' Yes', ' yes')
        >>> surface_forms("two")
        ('two', 'Two', '2', ' two', ' Two', ' 2')
    """
    words = [answer, answer.lower(), answer.capitalize()]
    number = normalize_answer(answer)
    if number.isdecimal():
        words += [number]
        words += [form for word, value in NUMBER_WORDS.items() if str(value) == number for form in (word, word.title())]
    distinct = tuple(dict.fromkeys(words))
    return (*distinct, *(f" {word}" for word in distinct))
