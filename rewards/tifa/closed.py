"""Answers that mean what they say and nothing near it: yes, no, numbers, and grades such as "A-".

Their embeddings lie close together whatever they mean, so they are read by rule, and only what is plain is read: an
answer that hedges, takes itself back, or has its number in another role (a bound, a part, an order, an age) says
neither. As in the evaluation of VQA, "none" is a number (0) and "no" is none: it answers another question.
"""

from __future__ import annotations

import re
from typing import Literal

from rewards.tifa.normalization import normalize_answer, plain_text
from rewards.tifa.numbers import MULTIPLIERS, NUMBER_WORDS, is_number

Polarity = Literal["yes", "no"]

_YES = frozenset("yes yeah yea yeh yep yup yah aye true correct".split())
_NO = frozenset("no nope nah nay not false incorrect".split())
_SURELY = re.compile(r"^(?:of course|sure|surely|certainly|definitely|absolutely|indeed)(?: |$)")
_ANSWER = re.compile(r"^answer(?: is)? (?=\S)")
_SUBJECT = r"(?:it|there|they|he|she|this|that|these|those|we|i|you)"
_VERB = r"(?:is|are|was|were|does|do|did|has|have|can|could|will|would)"
_NEGATED = r"(?:isnt|arent|wasnt|werent|doesnt|dont|didnt|hasnt|havent|cant|cannot|couldnt|wont|wouldnt|aint)"
_CLAUSE = re.compile(rf"{_SUBJECT} (?:{_VERB}|{_NEGATED})\b")
_DENIES = re.compile(rf"(?:{_SUBJECT} (?:{_VERB} not|{_NEGATED})|(?:its|theyre|hes|shes|thats|theres|youre|im) not)\b")
_AFFIRMS = re.compile(rf"{_SUBJECT} {_VERB}")
_UNDECIDED = re.compile(
    r"^(?:no (?:(?:clear |correct |good )?(?:idea|clue|answer|opinion|information|data)|way to (?:tell|know|say)"
    r"|comment|doubt|question|wonder|kidding|problem|response|1 (?:knows|can (?:tell|say|know))"
    r"|(?:image|picture|photo)s? (?:is |was |were )?(?:provided|given|attached|available|shown|uploaded|found))"
    r"|not (?:sure|certain|clear|known|visible|applicable|possible|enough|able|necessarily|exactly|only|just))\b"
    r"|^.*\b(?:not (?:sure|certain)|unsure|hard to (?:tell|say)|can(?:t|not) (?:tell|say)|dont know)\b|^never mind"
)
_HEDGES = frozenset("maybe perhaps possibly".split())
_BETWEEN = frozenset("or and nor but then".split())

_WORDS_FOR = {"couple": "2", "pair": "2", "single": "1", "none": "0", "nothing": "0", "nobody": "0"}
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth last next"
_NOT_THAT_MANY_BEFORE = frozenset(
    "than least most over under above below not to no between without never < > ≤ ≥ ± × ÷".split()
)
_PART_BEFORE = frozenset(f"minimum maximum half quarter quarters thirds twice thrice double triple {_ORDINALS}".split())
_NOT_THAT_MANY_AFTER = re.compile(
    r"(?:(?:or|and) )?(?:percent|half|halves|third|thirds|quarter|quarters|fourths?|fifths?|sixths?|sevenths?|eighths?"
    r"|ninths?|tenths?|plus|more|less|fewer|so|year old|at (?:least|most)|maximum|minimum|counting|[+±×÷])(?: |$)|or \S"
    r"|(?:x|by|times|divided by|multiplied by) \d"
)
_DENIED = re.compile(rf"\b(?:not|never|without|neither|none|nothing|nobody|{_NEGATED})\b")
_IN_A_COMPOUND = re.compile(
    rf"(?:\d|\b(?:{'|'.join([*NUMBER_WORDS, *MULTIPLIERS])}))-"
    rf"(?!(?:{'|'.join([*NUMBER_WORDS, *MULTIPLIERS])})\b)[^\W\d]"
)
""" "three-year-old", "3-legged": no count; "twenty-one" is a number."""
_THIS_ONE = re.compile(r"(\w+) one\b(?!-)")
_BEFORE_A_COUNT = frozenset(
    "is are was were be theres has have had with and of or see sees i only just exactly about around approximately "
    "roughly probably contains contain shows show showing count number answer total than least most "
    "hundred thousand million billion".split()
) | frozenset(NUMBER_WORDS)
"""Words after which "one" counts; after any other ("the third one", "no one", "this one") it stands for something."""


def is_closed(normalized: str) -> bool:
    """Whether a text is a number, a yes or a no, a grade with a sign ("a-", "c#"), or nothing at all."""
    return (
        not normalized
        or normalized in ("yes", "no")
        or is_number(normalized)
        or re.fullmatch(r"[a-z]{1,2}[-+*#]+", normalized) is not None
    )


def polarity(answer: str) -> Polarity | None:
    """What an answer says to a yes-or-no question: by its first words; None where it says neither, or both.

    Example:
        >>> polarity("Yeah, it is."), polarity("no dogs"), polarity("Of course not!")
        ('yes', 'no', 'no')
        >>> [polarity(text) for text in ("yes or no", "no idea", "no doubt", "yes, it is not", "not no")]
        [None, None, None, None, None]
    """
    return _polarity(_ANSWER.sub("", normalize_answer(answer)))


def _polarity(text: str) -> Polarity | None:
    if _UNDECIDED.match(text):
        return None
    if (surely := _SURELY.match(text)) is not None:
        rest = text[surely.end() :]
        if not rest or _CLAUSE.match(rest):
            return "no" if _DENIES.match(rest) else "yes"
        return _polarity(rest)
    first, *rest_words = text.split() or [""]
    said: Polarity | None = "yes" if first in _YES else "no" if first in _NO else None
    if said is None:
        return None
    while rest_words[:1] in ([first], ["a"]):
        rest_words.pop(0)
    following = (rest_words[1:] if rest_words[:1] and rest_words[0] in _BETWEEN else rest_words)[:1] or [""]
    rest = " ".join(rest_words)
    takes_back = following[0] in _HEDGES
    if said == "yes":
        takes_back |= following[0] in (*_NO, "never") or _DENIES.match(rest) is not None
    elif first == "not":
        takes_back |= following[0] in (*_NO - {"not"}, "wrong", "yes", "yeah")
    else:
        takes_back |= following[0] in ("yes", "yeah", "yep") or _AFFIRMS.fullmatch(rest) is not None
    return None if takes_back else said


def quantity(answer: str) -> str | None:
    """The one number that an answer states, as it stands among normalised choices; None for none, several or a bound.

    Example:
        >>> [quantity(text) for text in ("3 dogs", "There are three.", "2 or 3", "more than 3", "no dogs")]
        ['3', '3', None, None, '0']
        >>> [quantity(text) for text in ("half of 3", "the third one", "a three-year-old", "two thirds", "no")]
        [None, None, None, None, None]
    """
    plain = plain_text(answer)
    words = normalize_answer(answer).split()
    if any(any(map(str.isdecimal, word)) and not is_number(word) for word in words):
        return None  # "1/2", "3rd", "3d", "2^2"
    if _IN_A_COMPOUND.search(plain) or not all(map(_counts, _THIS_ONE.findall(plain))):
        return None
    at = [position for position, word in enumerate(words) if is_number(word)]
    if not at:
        return _without_digits(words)
    if _DENIED.search(" ".join(words[: at[0]])):
        return None
    for position in at:
        before, after = words[max(0, position - 2) : position], " ".join(words[position + 1 :])
        if (_PART_BEFORE | _WORDS_FOR.keys()).intersection(before) or _NOT_THAT_MANY_BEFORE.intersection(before[-1:]):
            return None
        if _NOT_THAT_MANY_AFTER.match(after):
            return None
    numbers = {words[position] for position in at}
    return numbers.pop() if len(numbers) == 1 else None


def _counts(before_one: str) -> bool:
    return before_one in _BEFORE_A_COUNT or before_one.isdecimal()


def _without_digits(words: list[str]) -> str | None:
    text = " ".join(words)
    stated = {_WORDS_FOR[word] for word in words if word in _WORDS_FOR}
    if re.search(r"\b(?:none|nothing|nobody) (?:but|other|except|less)\b", text):
        return None
    negated = "no" in words and words[-1] != "no" and not _UNDECIDED.search(" ".join(words[words.index("no") :]))
    if stated and (negated or (stated != {"0"} and _DENIED.search(text)) or _PART_BEFORE.intersection(words)):
        return None
    if len(stated) == 1:
        return stated.pop()
    return "0" if negated and not stated else None
