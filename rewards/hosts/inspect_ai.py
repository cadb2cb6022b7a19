"""inspect-ai: a scorer for what a model says about a picture.

    from rewards.hosts.inspect_ai import reward_scorer
    Task(dataset, solver=generate(), scorer=reward_scorer("reward.yaml"))

The picture is the last `ContentImage` of the sample's messages (a path or a data URI), or `image` in its metadata. A
sample that cannot be judged is `Score.unscored()`: inspect leaves it out of every metric, the same rule as ours.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections.abc import Mapping, Sequence

from inspect_ai.model import ChatMessage, ContentImage
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from rewards.calling import score_guarded
from rewards.hosts.shared import columns_of, first_of, resident_reward


@scorer(metrics={"*": [mean(), stderr()]})
def reward_scorer(config: str | None = None, **settings: object) -> Scorer:
    """Overall score and every part of a model's answer, one metric each.

    Args:
        config, settings: of :func:`rewards.hosts.shared.resident_reward`.

    Returns:
        A scorer. The picture is the sample's last one (`ContentImage`: a path or a data URI), or `image` in its
        metadata; `question` and `box` are read from the metadata, a question else from the sample's input.
    """
    reward = resident_reward(config, **settings)

    async def score(state: TaskState, target: Target) -> Score:
        metadata: Mapping[str, object] = state.metadata or {}
        picture = first_of(metadata, ("image",)) or _picture(state.messages)
        columns = {"inputs": [state.input_text], **columns_of([metadata])}
        text = state.output.completion
        scores = await asyncio.to_thread(score_guarded, reward, [picture], [text], **columns)
        if scores.abstained[0]:
            return Score.unscored(explanation=scores.reasons[0])
        named = zip(scores.part_names, scores.parts[0].tolist(), strict=True)
        parts = {name: value for name, value in named if math.isfinite(value)}
        return Score(value={"overall": float(scores.overall[0]), **parts}, answer=text)

    return score


def _picture(messages: Sequence[ChatMessage]) -> object | None:
    """The last picture of a conversation as a path or bytes; one that is elsewhere on the net is not fetched."""
    found = [
        content.image
        for message in messages
        for content in (message.content if isinstance(message.content, list) else [])
        if isinstance(content, ContentImage)
    ]
    if not found:
        return None
    if not found[-1].startswith("data:"):
        return found[-1]
    try:
        return base64.b64decode(found[-1].partition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        return b""  # abstains, with the reason that it is no picture
