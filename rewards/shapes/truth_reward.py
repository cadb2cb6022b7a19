"""The truth about captions as a TRL reward function: for auditing a judge, never for training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rewards.shapes.datasets import scene_from_json
from rewards.shapes.truth import CRITERIA, caption_truth


def caption_truth_reward(
    completions: Sequence[Any],
    scene: Sequence[str],
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Mean of the five true ratings, 1 to 5, a completion a row.

    Args:
        completions: texts, or conversations whose last message is the text.
        scene: the `scene` column of :func:`rewards.shapes.datasets.caption_prompts`.
        log_extra: TRL's; gets each criterion's true ratings as `caption_truth_reward/<criterion>`.
        columns: what else TRL passes.

    Example:
        >>> from rewards.shapes.datasets import scene_to_json
        >>> from rewards.shapes.scenes import Scene
        >>> caption_truth_reward([""], [scene_to_json(Scene((), "gray"))])
        [1.0]
    """
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    rows = [caption_truth(scene_from_json(s), text) for s, text in zip(scene, texts)]
    if log_extra is not None:
        for criterion in CRITERIA:
            log_extra(f"caption_truth_reward/{criterion}", [row[criterion] for row in rows])
    return [sum(row.values()) / len(row) for row in rows]
