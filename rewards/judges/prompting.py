"""From a user's text to what the processor is given: one user turn, the picture first, and no way out of the turn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rewards.errors import InputError
from rewards.judges.base import well_formed

if TYPE_CHECKING:
    from transformers import ProcessorMixin

_MARKER = "rewards-text-stands-here"
_SAID = "rewards-rating-stands-here"

WHY = "Why? Tell me the reason."
"""How a judge is asked for the reason of a rating (HarmonicEval section 4, after FLEUR)."""


_QUIET = ("enable_thinking", "thinking")
"""Variables of chat templates that are False where a model is to answer at once (Qwen3's, DeepSeek's). They are given
to templates that know them: what a template does not know, transformers takes for an argument of the processor."""

_OPENING = re.compile(
    r"(<\|?/?|\[/?|◁/?)(begin_of_|end_of_)?(think|thinking|thought|reasoning)(\|?>|\]|▷)", re.IGNORECASE
)
"""A tag of a thought: `<think>`, `[THINK]`, `◁think▷`, `<|begin_of_thought|>`."""


class Tokenizer(Protocol):
    """What is used of a transformers tokenizer."""

    eos_token_id: int | None
    unk_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text."""

    def decode(self, token_ids: list[int]) -> str:
        """The text of some ids."""

    def convert_tokens_to_ids(self, tokens: str) -> int | None:
        """The id of a token."""

    def get_added_vocab(self) -> dict[str, int]:
        """The tokens beside the ordinary vocabulary."""


def added_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """The tokens beside a tokenizer's ordinary vocabulary, control tokens among them, and their ids.

    Raises:
        InputError: The tokenizer does not tell them (mistral-common's does not).
    """
    if not hasattr(tokenizer, "get_added_vocab"):
        raise InputError(
            f"the judge's tokenizer ({type(tokenizer).__name__}) does not tell its control tokens, so that a text "
            "could not be kept from using them; load the checkpoint where mistral-common is not installed, with its "
            "tokenizer.json"
        )
    return {str(token): int(token_id) for token, token_id in tokenizer.get_added_vocab().items()}


class PlainText:
    """Puts a blank into every control token of a text, so that it is read as the characters that it shows.

    A completion that holds `<image>` or an end-of-turn token must not inject a picture or a turn into the judge
    (trl#3847). Texts without control tokens are returned unchanged.

    Args:
        processor: A transformers processor with a tokenizer: says what the control tokens are.
    """

    def __init__(self, processor: ProcessorMixin) -> None:
        tokens = set(added_tokens(processor.tokenizer))
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

    A rating is read right after the generation prompt. Where a template opens a thought there, it is asked not to, or
    the thought is closed at once: the first token must be the answer's.

    Args:
        processor: A transformers processor with a tokenizer.

    Raises:
        InputError: The chat template drops the user's text, or opens a thought that cannot be closed; or the tokenizer
            does not tell its control tokens.
    """

    def __init__(self, processor: ProcessorMixin) -> None:
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
        rendered = _without_thought(self.processor, turns)
        if rendered.count(_SAID) != 1:
            raise InputError("the judge's chat template does not show earlier answers; it cannot explain its ratings")
        return rendered.rpartition(_SAID)[2]

    def _template(self, images: int) -> str:
        if images not in self._rendered:
            self._rendered[images] = _render(self.processor, images)
        return self._rendered[images]


def _render(processor: ProcessorMixin, images: int) -> str:
    if not getattr(processor, "chat_template", None) and not getattr(processor.tokenizer, "chat_template", None):
        image_token = getattr(processor, "image_token", None) or ""
        return f"{str(image_token) * images}{_MARKER}\n"
    content = [{"type": "image"} for _ in range(images)] + [{"type": "text", "text": _MARKER}]
    turn = [{"role": "user", "content": content}]
    rendered = _without_thought(processor, turn)
    if rendered.count(_MARKER) != 1:
        raise InputError("the judge's chat template does not show the user's text exactly once; it cannot be used")
    return rendered


def _without_thought(processor: Any, turns: Sequence[Mapping[str, object]]) -> str:
    """The turns and a generation prompt after which the model answers, and does not think first."""
    template = str(getattr(processor, "chat_template", None) or processor.tokenizer.chat_template)
    quiet = {name: False for name in _QUIET if re.search(rf"\b{name}\b", template)}
    rendered = str(processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **quiet))
    if (opened := _open_thought(rendered)) is None:
        return rendered
    closing = _closing(opened)
    if closing not in template and closing not in added_tokens(processor.tokenizer):
        raise InputError(
            f"the judge's chat template opens a thought ({opened}) for the model and knows no end of it ({closing}): a "
            "rating would be read in the middle of its thoughts; use a checkpoint that answers at once"
        )
    return f"{rendered.rstrip()}\n\n{closing}\n\n"


def _open_thought(rendered: str) -> str | None:
    """The tag of a thought that the generation prompt opens and does not close."""
    tags = list(_OPENING.finditer(rendered.rpartition(_MARKER)[2]))
    return tags[-1][0] if tags and "/" not in tags[-1][0] and tags[-1][2] != "end_of_" else None


def _closing(opening: str) -> str:
    """`</think>` for `<think>`, `<|end_of_thought|>` for `<|begin_of_thought|>`."""
    if "begin_of_" in opening:
        return opening.replace("begin_of_", "end_of_")
    return opening[0] + "/" + opening[1:]
