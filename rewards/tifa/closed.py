"""Answers that mean what they say and nothing near it: yes, no, and numbers.

Their embeddings lie close together whatever they mean, so they are read by rule. All texts here are in the form of
:func:`rewards.tifa.normalization.normalize_answer`.
"""

from __future__ import annotations

import re
from typing import Literal

from rewards.tifa.numbers import is_number

_YES = frozenset("yes yeah yea yeh yep yup yah aye true correct".split())
_NO = frozenset("no nope nah nay not false incorrect".split())
_ANSWER = re.compile(r"^(?:answer(?: is)? )(?=\S)")
_UNDECIDED = re.compile(
    r"^(?:no (?:idea|clue|way to (?:tell|know|say)|answer|opinion|information)"
    r"|not (?:sure|certain|clear|known|visible|applicable|possible|enough|able))\b"
)
_BETWEEN = frozenset(("or", "and", "nor"))

_NOT_THAT_MANY_BEFORE = frozenset("than least most over under above below not to no between".split())
_NOT_THAT_MANY_AFTER = re.compile(r"(?:(?:or|and) )?(?:percent|half|plus|more|less|fewer|so)\b|or \S")
_PRONOUN = frozenset("each every any some this that which another other".split())
_WORDS_FOR = {"couple": "2", "pair": "2", "single": "1", "none": "0", "nothing": "0", "nobody": "0"}


def is_closed(normalized: str) -> bool:
    """Whether a text is a number, a yes or a no, or nothing at all."""
    return not normalized or normalized in ("yes", "no") or is_number(normalized)


def polarity(normalized: str) -> Literal["yes", "no"] | None:
    """What an answer says to a yes-or-no question: by its first word; None where it says neither, or both.

    Example:
        >>> polarity("yeah it is"), polarity("no dogs"), polarity("yes or no"), polarity("no idea")
        ('yes', 'no', None, None)
    """
    text = _ANSWER.sub("", normalized)
    first, *rest = text.split() or [""]
    said: Literal["yes", "no"] | None = "yes" if first in _YES else "no" if first in _NO else None
    if said is None or _UNDECIDED.match(text):
        return None
    following = rest[1:2] if rest[:1] and rest[0] in _BETWEEN else rest[:1]
    opposite = ("no", "not", "nope") if said == "yes" else ("yes", "yeah")
    return None if following and following[0] in opposite else said


def quantity(normalized: str) -> str | None:
    """The one number that an answer states, as it stands among normalised choices; None for none, several or a bound.

    Example:
        >>> [quantity(text) for text in ("3 dogs", "there are 3", "2 or 3", "more than 3", "no dogs")]
        ['3', '3', None, None, '0']
    """
    words = normalized.split()
    if any(any(map(str.isdecimal, word)) and not is_number(word) for word in words):
        return None  # "1/2", "3rd", "3d"
    at = [position for position, word in enumerate(words) if is_number(word)]
    if not at:
        return _without_digits(words)
    for position in at:
        before = words[position - 1] if position else ""
        bound = before in _NOT_THAT_MANY_BEFORE or _NOT_THAT_MANY_AFTER.match(" ".join(words[position + 1 :]))
        if bound or (words[position] == "1" and before in _PRONOUN):
            return None
    numbers = {words[position] for position in at}
    return numbers.pop() if len(numbers) == 1 else None


def _without_digits(words: list[str]) -> str | None:
    stated = {_WORDS_FOR[word] for word in words if word in _WORDS_FOR}
    if len(stated) == 1:
        return stated.pop()
    negated = "no" in words and words[-1] != "no" and not _UNDECIDED.search(" ".join(words[words.index("no") :]))
    return "0" if negated and not stated else None
