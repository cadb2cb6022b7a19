"""What the first token of a chat server's answer says: a rating, or the letter of a choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from rewards.judges.elsewhere.http import GaveUp

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


def read_listed(answer: dict[str, Any], words: Sequence[str], most_unknown: float, what: str) -> list[float]:
    """Probability of each word in the first token's list of log-probabilities.

    Args:
        answer: What the server answered.
        words: The ratings, or letters; blanks around a token do not matter.
        most_unknown: Largest probability that words outside the list may have together.
        what: What the words are, for messages.

    Raises:
        GaveUp: The list has none of the words, or hides too much.

    Example:
        >>> listed = [{"token": "4", "logprob": math.log(0.75)}, {"token": " 5", "logprob": math.log(0.25)}]
        >>> answer = {"choices": [{"logprobs": {"content": [{"top_logprobs": listed}]}}]}
        >>> [round(p, 2) for p in read_listed(answer, ("3", "4", "5"), 0.05, "ratings")]
        [0.0, 0.75, 0.25]
    """
    listed = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    found = dict.fromkeys(words, 0.0)
    total, smallest = 0.0, 1.0
    present = set()
    for entry in listed:
        probability = math.exp(float(entry["logprob"]))
        if not 0 <= probability <= 1.001:
            raise GaveUp(f"the server's answer holds a log-probability of {entry['logprob']}")
        total, smallest = total + probability, min(smallest, probability)
        word = str(entry["token"]).strip()
        if word in found:
            found[word] += probability
            present.add(word)
    if not present:
        raise GaveUp(f"none of the {what} {list(words)} is among the server's {len(listed)} likeliest tokens")
    # Each hidden word has at most the smallest listed probability; all of them at most what the list leaves.
    unknown = min(max(0.0, 1 - total), smallest * (len(found) - len(present)))
    if unknown > most_unknown:
        raise GaveUp(f"up to {unknown:.2f} of the probability may be on {what} that the server did not list")
    return [found[word] for word in words]
