"""What the first token of a chat server's answer says: a rating, or the letter of a choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from string import ascii_uppercase
from typing import NamedTuple

from rewards.judges.elsewhere.http import Answer, GaveUp
from rewards.judges.elsewhere.said import check_spoken

SENTINEL = -40.0
"""Log-probabilities from it downwards say "not computed": servers fill with -9999, -1000, -100, -99 or -inf.

No word is lost by this. Tokens that are not listed have at most the smallest listed probability, and no vocabulary has
ten million of them: where a true entry is as small as e^-40, the rest has less than 1e-10 in all, so that a list
without that entry still adds up to 1 and hides nothing. Where the list leaves more, the entry cannot be true."""

MOST_TOTAL = 1 + 1e-3
"""Largest sum of a list of probabilities; servers round."""


class Listed(NamedTuple):
    """What a list of log-probabilities says of some words.

    Attributes:
        probabilities: of each word, its spellings summed; 0 for one that is not listed.
        unseen: what the list leaves, and so the most that unlisted spellings of the words can have together.
    """

    probabilities: list[float]
    unseen: float


CHOICE_PROMPT = "{question}\n{choices}\nAnswer with the letter of the right choice and nothing else."
"""How choices are offered: "A. red" and so on, a line each."""


def lettered(question: str, choices: Sequence[str]) -> str:
    """A question with its choices under letters; a choice stays on its line.

    Example:
        >>> print(lettered("what color?", ["red", "blue"]))
        what color?
        A. red
        B. blue
        Answer with the letter of the right choice and nothing else.
    """
    lines = [f"{letter}. {' '.join(choice.split())}" for letter, choice in zip(ascii_uppercase, choices)]
    return CHOICE_PROMPT.format(question=question, choices="\n".join(lines))


def read_listed(answer: Answer, words: Sequence[str], most_unknown: float, what: str) -> Listed:
    """Probability of each word in the first token's list of log-probabilities.

    Nothing is taken from a list that contradicts itself: one token listed twice, or probabilities above 1 in all.
    Entries that stand for "not computed" (:data:`SENTINEL`) are left out: what they hide is part of what the list
    leaves.

    Args:
        answer: What the server answered.
        words: The ratings, or letters; blanks around a token do not matter.
        most_unknown: Largest probability that words outside the list may have together.
        what: What the words are, for messages.

    Raises:
        GaveUp: The list has none of the words, hides too much or contradicts itself; or the model did not begin with
            its answer (a refusal, a filter, a thought).

    Example:
        >>> listed = [{"token": "4", "logprob": math.log(0.75)}, {"token": " 5", "logprob": math.log(0.25)}]
        >>> answer = {"choices": [{"message": {}, "logprobs": {"content": [{"top_logprobs": listed}]}}]}
        >>> [round(p, 2) for p in read_listed(answer, ("3", "4", "5"), 0.05, "ratings").probabilities]
        [0.0, 0.75, 0.25]
    """
    listed = _listed(answer, words)
    total = sum(math.exp(logprob) for _, logprob in listed)
    found = {word: math.fsum(math.exp(p) for token, p in listed if token.strip() == word) for word in words}
    present = {token.strip() for token, _ in listed} & set(words)
    if not present:
        raise GaveUp(f"none of the {what} {list(words)} is among the server's {len(listed)} likeliest tokens")
    # Each hidden word has at most the smallest listed probability; all of them at most what the list leaves.
    unseen = max(0.0, 1 - total)
    unknown = min(unseen, math.exp(min(logprob for _, logprob in listed)) * (len(found) - len(present)))
    if unknown > most_unknown:
        raise GaveUp(f"up to {unknown:.2f} of the probability may be on {what} that the server did not list")
    return Listed([found[word] for word in words], unseen)


def read_mass(answer: Answer, forms: Sequence[str], most_unknown: float) -> float:
    """Probability that the answer begins as one of some texts, by the first token's list of log-probabilities.

    The listed tokens that are one of the texts, to the letter, are summed: a lower bound. What it may lack are texts
    outside the list (each at most as probable as the last one listed, together at most what the list leaves) and
    listed tokens with which a text may go on in several ("sev" of "seven").

    Args:
        answer: What the server answered.
        forms: The spellings of one answer.
        most_unknown: Most that the sum may lack.

    Raises:
        GaveUp: It may lack more; or as for :func:`read_listed`.

    Example:
        >>> listed = [{"token": "Yes", "logprob": math.log(0.75)}, {"token": "No", "logprob": math.log(0.25)}]
        >>> answer = {"choices": [{"message": {}, "logprobs": {"content": [{"top_logprobs": listed}]}}]}
        >>> round(read_mass(answer, ("Yes", "yes"), 0.05), 2)
        0.75
    """
    listed = _listed(answer, forms)
    probabilities = {token: math.exp(logprob) for token, logprob in listed}
    hidden = set(forms) - set(probabilities)
    unseen = max(0.0, 1 - sum(math.exp(logprob) for _, logprob in listed))
    smallest = min(probabilities.values(), default=1.0)
    split = sum(
        probability
        for token, probability in probabilities.items()
        if token.strip() and token not in forms and any(form.startswith(token) for form in hidden)
    )
    unknown = min(unseen, smallest * len(hidden)) + split
    if unknown > most_unknown:
        raise GaveUp(f"up to {unknown:.2f} of the probability may be on {list(forms)} beyond what the server listed")
    return min(1.0, sum(probabilities.get(form, 0.0) for form in set(forms)))


def _listed(answer: Answer, words: Sequence[str]) -> list[tuple[str, float]]:
    """The tokens that may stand first in an answer, with their log-probabilities.

    Raises:
        GaveUp: The list contradicts itself, or the model did not begin with its answer.
    """
    check_spoken(answer["choices"][0])
    entries = [
        (str(entry["token"]), float(entry["logprob"]))
        for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    ]
    listed = [(token, logprob) for token, logprob in entries if not logprob <= SENTINEL]
    asked = {word.strip() for word in words}
    for token, count in Counter(token for token, _ in listed).items():
        if count > 1 and token.strip() in asked:
            raise GaveUp(f"the server lists the token {token!r} {count} times: its probability cannot be told")
    total = 0.0
    for _, logprob in listed:
        if not logprob <= MOST_TOTAL - 1:  # NaN too
            raise GaveUp(f"the server's answer holds a log-probability of {logprob}")
        total += math.exp(logprob)
    if total > MOST_TOTAL:
        raise GaveUp(f"the server's probabilities add up to {total:.4g}")
    return listed


def may_be_split(words: Sequence[str]) -> list[str]:
    """Words whose first token could be taken for another word: "10" on a scale that has "1" as well.

    Example:
        >>> may_be_split(["1", "2", "10"])
        ['10']
    """
    return [word for word in words if any(word != other and word.startswith(other) for other in words)]


def begins_whole(answer: Answer, word: str) -> bool:
    """Whether a server that was asked to write `word` wrote it as its first token."""
    return str(answer["choices"][0]["logprobs"]["content"][0]["token"]).strip() == word
