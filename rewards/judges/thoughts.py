"""Where a text written by a model thinks, and where it answers: the marks of the usual chat formats."""

from __future__ import annotations

import re

_NAMES = r"(?:seed:)?(?:think|thinking|thought|reasoning)"
_OPEN = rf"(?:<\|?|\[|◁)(?:begin_of_|start_)?{_NAMES}\s*(?:\|?>|\]|▷)"
_CLOSE = rf"(?:<\|?/|\[/|◁/|<\|?end_(?:of_)?){_NAMES}\s*(?:\|?>|\]|▷)"

OPENS = re.compile(_OPEN, re.IGNORECASE)
"""The beginning of a thought: `<think>`, `[THINK]`, `◁think▷`, `<|begin_of_thought|>`, `<|START_THINKING|>`."""

CLOSES = re.compile(_CLOSE, re.IGNORECASE)
"""Its end."""

WHOLE = re.compile(rf"(?!{_CLOSE}){_OPEN}.*?{_CLOSE}", re.DOTALL | re.IGNORECASE)
"""A thought from its beginning to its end."""

_FINAL = re.compile(
    r"^.*<\|channel\|>\s*final\b[^<]*<\|message\|>|^(?:assistant)?analysis(?=[A-Z]).*assistantfinal", re.DOTALL
)
_CHANNEL = re.compile(r"<\|channel\|>|^(?:assistant)?analysis(?=[A-Z])")


def final_channel(text: str) -> str | None:
    """What a text in OpenAI's harmony format says in its final channel; other texts as they are.

    The format's tokens may have been dropped on the way ("analysisThe picture ...assistantfinaltwo").

    Returns:
        The text; None where it has other channels only.

    Example:
        >>> final_channel("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>two")
        'two'
        >>> final_channel("<|channel|>analysis<|message|>Hm."), final_channel("two")
        (None, 'two')
    """
    rest = _FINAL.sub("", text, count=1)
    return None if _CHANNEL.search(rest) else rest
