"""What a chat server's answer says in words, and whether it says anything at all."""

from __future__ import annotations

import re
import unicodedata

from rewards.judges.elsewhere.http import Answer, GaveUp

_NAMES = r"(?:begin_of_|end_of_)?(?:seed:)?(?:think|thinking|thought|reasoning)"
_OPEN = rf"(?:<\|?|\[|◁){_NAMES}\s*(?:\|?>|\]|▷)"
_CLOSE = rf"(?:<\|?/|\[/|◁/|<\|?(?=end_of_)){_NAMES}\s*(?:\|?>|\]|▷)"
_THOUGHT = re.compile(rf"(?!{_CLOSE}){_OPEN}.*?{_CLOSE}", re.DOTALL | re.IGNORECASE)
_HALF_THOUGHT = re.compile(f"{_OPEN}|{_CLOSE}", re.IGNORECASE)
_FINISHED = (None, "", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "length", "max_tokens")
"""Reasons to finish that are an end; "error", "abort", "safety" are none."""


def _finish(choice: Answer) -> object:
    reason = choice.get("finish_reason")
    return reason.casefold() if isinstance(reason, str) else reason


def check_spoken(choice: Answer) -> None:
    """Check that the model spoke for itself: neither refused, nor was filtered, nor began by thinking.

    Raises:
        GaveUp: It did; the row abstains.
    """
    message = choice.get("message") or {}
    if message.get("refusal"):
        raise GaveUp(f"the model refused: {' '.join(str(message['refusal']).split())[:200]}")
    if choice.get("error"):
        raise GaveUp(f"the server broke off with an error: {' '.join(str(choice['error']).split())[:200]}")
    finish = _finish(choice)
    if finish == "content_filter":
        raise GaveUp("the server's content filter took the answer away")
    if finish not in _FINISHED:
        raise GaveUp(f"the answer ended with finish_reason {finish!r:.100}")
    if message.get("tool_calls") or message.get("function_call"):
        raise GaveUp("the model called a tool instead of answering")


def read_answer(answer: Answer, *, may_be_cut: bool = False) -> str:
    """The text of an answer, without a whole thought in front of it.

    Args:
        answer: What the server answered; its content is a text, or a list of blocks of text.
        may_be_cut: Whether the beginning of an answer will do (the reason for a rating; not an answer to a question).

    Raises:
        GaveUp: There is no answer: nothing, half of one, half a thought, a refusal, or what a filter left.

    Example:
        >>> read_answer({"choices": [{"message": {"content": "<think>Hm.</think> two "}, "finish_reason": "stop"}]})
        'two'
    """
    choice = answer["choices"][0]
    check_spoken(choice)
    if _finish(choice) in ("length", "max_tokens") and not may_be_cut:
        raise GaveUp("the answer was cut off")
    text = _THOUGHT.sub("", _content(choice["message"]["content"]))
    if _HALF_THOUGHT.search(text):
        raise GaveUp("the model did not come to the end of its thoughts")
    if not any(unicodedata.category(character)[0] not in "CZ" for character in text):
        raise GaveUp("the answer is empty")
    return text.strip()


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        blocks = [block if isinstance(block, dict) else {"type": "text", "text": block} for block in content]
        for block in blocks:
            if block.get("type") == "refusal":
                raise GaveUp(f"the model refused: {block.get('refusal')}")
        texts = [block.get("text") for block in blocks if block.get("type") in ("text", "output_text", None)]
        if not all(isinstance(text, str) for text in texts):
            raise GaveUp("the server's answer holds a block of text without text")
        return "".join(map(str, texts))
    raise GaveUp(f"the server's answer is a {type(content).__name__}; expected a text")
