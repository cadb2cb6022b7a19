"""From the keywords with which TRL calls a reward function to flat lists of pictures, texts, questions and boxes.

A row that is malformed (no text, no picture, a message without content) is None here and abstains in the reward; it
never ends a training run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from PIL import Image
from torch import Tensor

from rewards.images import as_list

INPUT_COLUMNS = ("question", "query", "input")
BOX_COLUMNS = ("box", "bbox")


def completion_text(completion: object) -> str | None:
    """The text of a completion: a string, or a conversation whose assistant messages are joined.

    Returns:
        The text, or None where there is none (a message without content, anything that is no message).

    Example:
        >>> completion_text([{"role": "assistant", "content": "a red circle"}])
        'a red circle'
    """
    if isinstance(completion, str):
        return completion
    texts = [_message_text(m) for m in _messages(completion) if m.get("role", "assistant") == "assistant"]
    found = [text for text in texts if text is not None]
    return "\n".join(found) if found else None


def completion_picture(completion: object) -> object | None:
    """The picture of a completion: itself, or the last image block of a conversation; None where there is none."""
    if isinstance(completion, Image.Image | np.ndarray | Tensor):
        return completion
    pictures = [picture for message in _messages(completion) for picture in _pictures(message)]
    return pictures[-1] if pictures else None


def prompt_text(prompt: object) -> str | None:
    """The text of a prompt: itself, or that of its last user message.

    Example:
        >>> prompt_text([{"role": "user", "content": "How many?"}])
        'How many?'
    """
    if isinstance(prompt, str):
        return prompt
    asked = [message for message in _messages(prompt) if message.get("role") == "user"]
    return _message_text(asked[-1]) if asked else None


def row_images(columns: Mapping[str, object], prompts: Sequence[object]) -> list[object]:
    """The image, or list of images, of every row: from column `images`, `image`, or the prompt's image blocks.

    Returns:
        One entry a prompt; None where a row has no image.
    """
    column = columns.get("images") if columns.get("images") is not None else columns.get("image")
    rows: Iterable[object] = _prompt_images(prompts) if column is None else _listed(column)
    return [None if isinstance(row, list | tuple) and not row else row for row in rows]


def row_inputs(columns: Mapping[str, object], prompts: Sequence[object]) -> list[object]:
    """The question of every row: from column `question`, `query` or `input`, else the prompt's last user message.

    Example:
        >>> row_inputs({}, [[{"role": "user", "content": "How many?"}]])
        ['How many?']
    """
    given = _first_column(columns, INPUT_COLUMNS)
    return [prompt_text(prompt) for prompt in prompts] if given is None else given


def row_boxes(columns: Mapping[str, object]) -> list[object] | None:
    """The target box of every row, from column `box` or `bbox`; None without such a column."""
    return _first_column(columns, BOX_COLUMNS)


def _first_column(columns: Mapping[str, object], names: Sequence[str]) -> list[object] | None:
    return next((_listed(columns[name]) for name in names if columns.get(name) is not None), None)


def _listed(column: object) -> list[object]:
    """A column by row; a single value (a path, a picture) is the one row of a batch of one."""
    if isinstance(column, np.ndarray | Tensor) and column.ndim > 1:
        return list(column)
    found = as_list(column)
    return [column] if found is None else found


def _prompt_images(prompts: Sequence[object]) -> list[object]:
    return [[picture for message in _messages(prompt) for picture in _pictures(message)] for prompt in prompts]


def _messages(conversation: object) -> list[Mapping[str, object]]:
    if not isinstance(conversation, list | tuple):
        return []
    return [message for message in conversation if isinstance(message, Mapping)]


def _blocks(message: Mapping[str, object], kind: str) -> list[object]:
    content = message.get("content")
    blocks = content if isinstance(content, list | tuple) else []
    return [block.get(kind) for block in blocks if isinstance(block, Mapping) and block.get("type") == kind]


def _pictures(message: Mapping[str, object]) -> list[object]:
    return [picture for picture in _blocks(message, "image") if picture is not None]


def _message_text(message: Mapping[str, object]) -> str | None:
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [text for text in _blocks(message, "text") if isinstance(text, str)]
    return "\n".join(texts) if texts else None
