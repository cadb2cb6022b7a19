"""Prompts and questions of the shapes world for DDPO: any number of captions of one split, none in two splits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import rewards
from rewards.errors import InputError
from rewards.shapes.language import describe, vary
from rewards.shapes.questions import questions_for
from rewards.shapes.scenes import sample_scene
from rewards.tifa.questions import Question

SHAPES_PIPELINE = Path(rewards.__file__).parent / "shapes" / "weights" / "stable_diffusion"


def shapes_prompts(split: str, count: int, seed: int) -> list[str]:
    """Different captions of scenes drawn at random, all of one split.

    Args:
        split: "train", "validation" or "test"; their meanings are disjoint.
        count: How many.
        seed: Of the draw.

    Returns:
        ``count`` captions.

    Raises:
        InputError: The split has fewer captions than that.

    Example:
        >>> len(set(shapes_prompts("test", 8, seed=0)))
        8
    """
    rng = random.Random(f"{split}/{seed}")
    captions: dict[str, None] = {}
    for _ in range(1000 + 1000 * count):
        if len(captions) >= count:
            return list(captions)
        full = describe(sample_scene(rng))
        said = vary(full, rng)
        if full.split() == split and said.split() == split:
            captions[str(said)] = None
    raise InputError(f"the shapes world has only about {len(captions)} {split} captions, {count} were asked for")


def shapes_questions(captions: Sequence[str]) -> list[Question]:
    """All questions that the captions fix, in their order."""
    return [question for caption in captions for question in questions_for(caption)]
