"""From the keywords with which TRL calls a reward function to flat lists of texts, images, questions and boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rewards.errors import InputError

INPUT_COLUMNS = ("question", "query", "input")
BOX_COLUMNS = ("box", "bbox")


def completion_text(completion: Any) -> str | None:
    """The text of a completion: a string, or a conversation whose assistant messages are joined.

    Returns:
        The text, or None where there is none (a message without content).

    Example:
        >>> completion_text([{"role": "assistant", "content": "a red circle"}])
        'a red circle'
    """
    if completion is None or isinstance(completion, str):
        return completion
    parts = [_message_text(message) for message in completion if message.get("role", "assistant") == "assistant"]
    found = [part for part in parts if part is not None]
    return "\n".join(found) if found else None


def row_images(columns: Mapping[str, Any], prompts: Sequence[Any]) -> list[Any]:
    """The image, or list of images, of every row: from column `images`, `image`, or the prompt's image blocks.

    Returns:
        One entry a prompt; None where a row has no image.

    Raises:
        InputError: if no row has an image.
    """
    rows: list[Any]
    if columns.get("images") is not None:
        rows = list(columns["images"])
    elif columns.get("image") is not None:
        rows = list(columns["image"])
    else:
        rows = [_prompt_images(prompt) for prompt in prompts]
    rows = [None if isinstance(row, list | tuple) and not row else row for row in rows]
    if prompts and all(row is None for row in rows):
        raise InputError(
            "HarmonicEval rates texts about images, but no row has one: give the dataset an 'image' or 'images' column "
            "(and set remove_unused_columns=False)"
        )
    return rows


def row_inputs(columns: Mapping[str, Any], prompts: Sequence[Any]) -> list[str | None]:
    """The question of every row: from column `question`, `query` or `input`, else the prompt's last user message.

    Example:
        >>> row_inputs({}, [[{"role": "user", "content": "How many?"}]])
        ['How many?']
    """
    for name in INPUT_COLUMNS:
        if columns.get(name) is not None:
            return list(columns[name])
    return [_question_in_prompt(prompt) for prompt in prompts]


def row_boxes(columns: Mapping[str, Any]) -> list[Any]:
    """The target box of every row, from column `box` or `bbox`.

    Raises:
        InputError: if there is no such column.
    """
    for name in BOX_COLUMNS:
        if columns.get(name) is not None:
            return list(columns[name])
    raise InputError(
        "task 'referring' needs the target of every row: give the dataset a 'box' column (left, top, right, bottom)"
    )


def _prompt_images(prompt: Any) -> list[Any] | None:
    if isinstance(prompt, str):
        return None
    blocks = [
        block for message in prompt if isinstance(message.get("content"), list | tuple) for block in message["content"]
    ]
    found = [block["image"] for block in blocks if block.get("type") == "image" and block.get("image") is not None]
    return found or None


def _question_in_prompt(prompt: Any) -> str | None:
    if isinstance(prompt, str):
        return prompt
    asked = [message for message in prompt if message.get("role") == "user"]
    return _message_text(asked[-1]) if asked else None


def _message_text(message: Mapping[str, Any]) -> str | None:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content
    texts = [block["text"] for block in content if block.get("type") == "text"]
    return "\n".join(texts) if texts else None
