"""OpenRLHF: `reward_func(queries, prompts, labels)`, one sample a call (OpenRLHF 0.11, `--reward.remote_url FILE.py`).

    export REWARDS_CONFIG=reward.yaml
    --reward.remote_url $(python -m rewards.hosts openrlhf)

OpenRLHF hands pictures to no reward: put them into the label, as JSON (`{"image": "dog.jpg"}`; `question` and `box`
too, where the task needs them). A query is prompt and completion with the special tokens of the policy in it: the
prompt is cut off, and the tokens named by `REWARDS_SPECIAL_TOKENS` (separated by blanks; default: those of the usual
chat templates) are removed from the completion's end. OpenRLHF cannot leave a sample out and turns every exception into
a missing reward without a word, so an abstention gets the mean of its prompt (:class:`rewards.hosts.shared.Neutral`),
and errors are logged here before they are raised.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from rewards.hosts.shared import PICTURE_KEYS, columns_of, first_of, neutral, read_label, resident_reward

logger = logging.getLogger(__name__)

SPECIAL_TOKENS = "<|im_end|> <|endoftext|> <|eot_id|> <|end_of_text|> </s> <eos> <end_of_turn> <end_of_utterance>"
"""What the templates of Qwen, Llama, LLaVA, Gemma and Idefics put behind a completion."""


def reward_func(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[object], **ignored: object
) -> dict[str, Tensor | dict[str, Tensor]]:
    """The rewards of N completions.

    Args:
        queries: N times prompt and completion, special tokens included.
        prompts: N prompts.
        labels: N labels: JSON objects with the picture.
        ignored: what OpenRLHF adds.

    Returns:
        `rewards` and `scores`, `(N,)`, and `extra_logs`: every part, and `abstained`.

    Raises:
        InputError: a label that is no JSON object.
        RewardsError: nothing could be judged from the start.
    """
    try:
        reward = resident_reward()
        rows = [read_label(label) for label in labels]
        texts = [completion(query, prompt) for query, prompt in zip(queries, prompts, strict=True)]
        pictures = [first_of(row, PICTURE_KEYS) for row in rows]
        groups = [(prompt, str(label)) for prompt, label in zip(prompts, labels, strict=True)]
        filled = neutral(reward).score(pictures, texts, groups, **columns_of(rows))
    except Exception as error:
        logger.error("the reward failed, and OpenRLHF will go on without it: %s", error)
        raise
    values = torch.tensor(filled.overall)
    logs = {name: torch.tensor(part) for name, part in filled.parts.items()}
    return {"rewards": values, "scores": values, "extra_logs": {**logs, "abstained": filled.scores.abstained.float()}}


def completion(query: str, prompt: str) -> str | None:
    """The text that the policy wrote: what follows the prompt, without special tokens at its end.

    A processor writes more image tokens into the query than the prompt has, so that the prompt is found by its end.

    Returns:
        The text, or None where the prompt's end is not in the query.

    Example:
        >>> completion("<|im_start|>user Describe.<|im_end|>a dog<|im_end|>", "<|im_start|>user Describe.<|im_end|>")
        'a dog'
    """
    text = _after(query, prompt)
    tokens = os.environ.get("REWARDS_SPECIAL_TOKENS", SPECIAL_TOKENS).split()
    while text is not None and (ending := next((t for t in tokens if text.rstrip().endswith(t)), None)):
        text = text.rstrip().removesuffix(ending)
    return text


def _after(query: str, prompt: str) -> str | None:
    if query.startswith(prompt):
        return query[len(prompt) :]
    for length in (200, 100, 50, 25, 12):
        # Image tokens only make the query longer: the prompt cannot end earlier than in its own text.
        place = query.find(prompt[-length:], max(0, len(prompt) - length))
        if place >= 0:
            return query[place + len(prompt[-length:]) :]
    return None
