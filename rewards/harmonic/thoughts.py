"""A completion without its thoughts: what a reader of the answer sees is what is judged."""

from __future__ import annotations

import re

_OPEN = re.compile(r"(?:<\|?|\[|◁)(?:begin_of_)?(?:think|thinking|thought|reasoning)\s*(?:\|?>|\]|▷)", re.IGNORECASE)
_CLOSE = re.compile(r"(?:<\|?/|\[/|◁/|<\|?end_of_)(?:think|thinking|thought|reasoning)\s*(?:\|?>|\]|▷)", re.IGNORECASE)


def without_thoughts(text: str) -> str:
    """What stands after the last thought of a text; nothing where the last thought does not end.

    A chat template may open the thought for the model, so that a completion holds its end only. A text without
    thoughts is returned as it is.

    Example:
        >>> without_thoughts("<think>A dog, or a wolf?</think>\\n\\nA dog.")
        'A dog.'
        >>> without_thoughts("A dog, I think.</think>A dog."), without_thoughts("A cat. <think>Or")
        ('A dog.', 'A cat.')
    """
    ends = [match.end() for match in _CLOSE.finditer(text)]
    rest = text[ends[-1] :] if ends else text
    unfinished = _OPEN.search(rest)
    if unfinished is not None:
        rest = rest[: unfinished.start()]
    return rest.strip() if ends or unfinished else text
