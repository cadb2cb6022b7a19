"""From a user's text to what the processor is given: one user turn, the picture first, and no way out of the turn."""

from __future__ import annotations

import re
from typing import Any

from rewards.errors import InputError
from rewards.judges.base import well_formed

_MARKER = "rewards-text-stands-here"
_SAID = "rewards-rating-stands-here"

WHY = "Why? Tell me the reason."
"""How a judge is asked for the reason of a rating (HarmonicEval section 4, after FLEUR)."""


class PlainText:
    """Puts a blank into every control token of a text, so that it is read as the characters that it shows.

    A completion that holds `<image>` or an end-of-turn token must not inject a picture or a turn into the judge
    (trl#3847). Texts without control tokens are returned unchanged.

    Args:
        processor: A transformers processor with a tokenizer: says what the control tokens are.
    """

    def __init__(self, processor: Any) -> None:
        tokens = {str(token) for token in processor.tokenizer.get_added_vocab()}
        tokens |= {str(token) for token in processor.tokenizer.all_special_tokens}
        # Processors replace their placeholder in the string, before the tokenizer sees it.
        names = ("image_token", "video_token")
        tokens |= {str(getattr(processor, name)) for name in names if getattr(processor, name, None)}
        tokens = {token for token in tokens if len(token.strip()) > 1}
        longest_first = sorted(tokens, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def __call__(self, text: str) -> str:
        text = well_formed(text)
        while True:  # breaking one token can complete another: "<im<image>age>"
            broken = self._control.sub(lambda match: match[0][:1] + " " + match[0][1:], text)
            if broken == text:
                return text
            text = broken


class Prompting:
    """Renders texts with a processor's chat template and keeps control tokens in them from acting.

    Args:
        processor: A transformers processor with a tokenizer.

    Raises:
        InputError: The chat template drops the user's text.
    """

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.plain = PlainText(processor)
        self._rendered: dict[int, str] = {}
        self.tail = self._template(1).rpartition(_MARKER)[2]
        """What follows the text: the end of the user's turn and the generation prompt."""
        self.begins_with_bos = bool(self.tokenizer.bos_token) and self._template(1).startswith(self.tokenizer.bos_token)
        """Templates that write the first token themselves must not be given a second one."""

    def render(self, text: str, images: int = 1) -> str:
        """The whole prompt for a text and its pictures, ending right after the generation prompt."""
        head, _, tail = self._template(images).rpartition(_MARKER)
        return head + self.plain(text) + tail

    def why(self) -> str:
        """What stands between a rating that the judge gave and the reason that it is asked for."""
        turns = [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": _MARKER}]},
            {"role": "assistant", "content": [{"type": "text", "text": _SAID}]},
            {"role": "user", "content": [{"type": "text", "text": WHY}]},
        ]
        rendered = self.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        if rendered.count(_SAID) != 1:
            raise InputError("the judge's chat template does not show earlier answers; it cannot explain its ratings")
        return rendered.rpartition(_SAID)[2]

    def _template(self, images: int) -> str:
        if images not in self._rendered:
            self._rendered[images] = _render(self.processor, images)
        return self._rendered[images]


def _render(processor: Any, images: int) -> str:
    if not getattr(processor, "chat_template", None) and not getattr(processor.tokenizer, "chat_template", None):
        image_token = getattr(processor, "image_token", None) or ""
        return f"{str(image_token) * images}{_MARKER}\n"
    content = [{"type": "image"} for _ in range(images)] + [{"type": "text", "text": _MARKER}]
    turn = [{"role": "user", "content": content}]
    rendered = processor.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    if rendered.count(_MARKER) != 1:
        raise InputError("the judge's chat template does not show the user's text exactly once; it cannot be used")
    return rendered
