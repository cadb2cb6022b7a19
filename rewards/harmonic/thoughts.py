"""A completion without its thoughts: what a reader of the answer sees is what is judged."""

from __future__ import annotations

from rewards.judges.thoughts import CLOSES, OPENS, final_channel


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
    final = final_channel(text)
    if final is None:
        return ""
    ends = [match.end() for match in CLOSES.finditer(final)]
    rest = final[ends[-1] :] if ends else final
    unfinished = OPENS.search(rest)
    if unfinished is not None:
        rest = rest[: unfinished.start()]
    return text if rest == text else rest.strip()
