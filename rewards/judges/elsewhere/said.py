"""What a chat server's answer says in words, and whether it says anything at all."""

from __future__ import annotations

import re
import unicodedata

from rewards.judges.elsewhere.http import Answer, GaveUp
from rewards.judges.thoughts import CLOSES, OPENS, WHOLE, final_channel

_FINISHED = (None, "", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "length", "max_tokens")
"""Reasons to finish that are an end; "error", "abort", "safety" are none."""

_CONTROL = (
    r"(?:<[|｜][^<>|｜]{1,60}[|｜]>|</?s>|</?(?:answer|response)>|\[(?:BOS|EOS|PAD)\]"
    r"|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn|end_of_utterance)>)"
)
_WRITTEN_CONTROL = re.compile(_CONTROL, re.IGNORECASE)
_FRAME = re.compile(
    rf"^(?:\s*(?:<[|｜](?:im_start|start|start_header_id|assistant)[|｜]>\s*assistant\b|{_CONTROL}))+"
    rf"|(?:{_CONTROL}\s*)+$",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"^(?:(?:i['’]?m|i am)\s+(?:very |really |so )?sorry|sorry|i apologi[sz]e|my apologies|unfortunately)?[\s,.;:!]*"
    r"(?:but )?(?:as an? (?:ai|language model)\b[^,.]*,\s*)?"
    r"i(?: can['’]?t|\s?cannot| can not| won['’]?t| will not| am not able to| am unable to|['’]m not able to"
    r"|['’]m unable to) (?:\w+ )?(?:assist|help|comply|fulfill|identify|process|provide|discuss|answer|engage|support"
    r"|continue|respond)\b",
    re.IGNORECASE,
)


def _finish(choice: Answer) -> object:
    reason = choice.get("finish_reason")
    return reason.casefold() if isinstance(reason, str) else reason


def was_cut(choice: Answer) -> bool:
    """Whether the answer ended where no more tokens were allowed."""
    return _finish(choice) in ("length", "max_tokens")


def check_spoken(choice: Answer) -> None:
    """Check that the model spoke for itself: neither refused, nor was filtered, nor began by thinking.

    Raises:
        GaveUp: It did; the row abstains.
    """
    message = choice.get("message") or {}
    if message.get("refusal"):
        raise GaveUp(f"the model refused: {_short(message['refusal'])}")
    if choice.get("error"):
        raise GaveUp(f"the server broke off with an error: {_short(choice['error'])}")
    finish = _finish(choice)
    if finish == "content_filter":
        raise GaveUp("the server's content filter took the answer away")
    if finish not in _FINISHED:
        raise GaveUp(f"the answer ended with finish_reason {finish!r:.100}")
    if message.get("tool_calls") or message.get("function_call"):
        raise GaveUp("the model called a tool instead of answering")


def read_answer(answer: Answer, *, may_be_cut: bool = False) -> str:
    """The text of an answer, without a whole thought in front of it and the control tokens around it.

    Args:
        answer: What the server answered; its content is a text, or a list of blocks of text.
        may_be_cut: Whether the beginning of an answer will do (the reason for a rating; not an answer to a question).

    Raises:
        GaveUp: There is no answer: nothing, half of one, half a thought, a refusal (in a field or in the usual words:
            "I'm sorry, I can't help with that"), or what a filter left.

    Example:
        >>> read_answer({"choices": [{"message": {"content": "<think>Hm.</think> two "}, "finish_reason": "stop"}]})
        'two'
    """
    choice = answer["choices"][0]
    check_spoken(choice)
    if was_cut(choice) and not may_be_cut:
        raise GaveUp("the answer was cut off")
    whole = final_channel(_content(choice["message"]["content"]))
    text = None if whole is None else WHOLE.sub("", whole)
    if text is None or OPENS.search(text) or CLOSES.search(text):
        raise GaveUp("the model did not come to the end of its thoughts")
    text = _FRAME.sub("", text).lstrip()
    if _WRITTEN_CONTROL.search(text):
        raise GaveUp(f"the answer has control tokens in it: {_short(text)}")
    if not any(unicodedata.category(character)[0] not in "CZ" for character in text):
        raise GaveUp("the answer is empty")
    if _REFUSED.match(text):
        raise GaveUp(f"the model refused: {_short(text)}")
    return text if was_cut(choice) else text.rstrip()  # whether the last line is whole is to be seen


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        blocks = [block if isinstance(block, dict) else {"type": "text", "text": block} for block in content]
        for block in blocks:
            if block.get("type") == "refusal":
                raise GaveUp(f"the model refused: {_short(block.get('refusal'))}")
        texts = [block.get("text") for block in blocks if block.get("type") in ("text", "output_text", None)]
        if not all(isinstance(text, str) for text in texts):
            raise GaveUp("the server's answer holds a block of text without text")
        return "".join(map(str, texts))
    raise GaveUp(f"the server's answer is a {type(content).__name__}; expected a text")


def _short(said: object) -> str:
    return " ".join(str(said).split())[:200]
