"""Prompts of the shapes world with their fixed questions, by split."""

from __future__ import annotations

import random
from pathlib import Path

from rewards.errors import InputError
from rewards.shapes.language import describe, vary
from rewards.shapes.questions import questions_for
from rewards.shapes.scenes import sample_scene
from rewards.tifa.store.store import QuestionStore

SPLITS = ("train", "validation", "test")


def generator_prompts(split: str, count: int, seed: int) -> list[str]:
    """Different captions to draw, all of one split.

    Args:
        split: "train", "validation" or "test": 80, 10 and 10 percent of all meanings, disjoint.
        count: how many.
        seed: of the draw.

    Raises:
        InputError: an unknown split, or one with fewer captions than that.

    Example:
        >>> len(set(generator_prompts("test", 8, seed=0)))
        8
    """
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}; the shapes world has {', '.join(SPLITS)}")
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


def question_store(path: str | Path, prompts: list[str], surplus: bool = False) -> QuestionStore:
    """A question store that holds what the grammar asks about each prompt.

    Args:
        path: of the SQLite file; made where absent.
        prompts: captions of the grammar.
        surplus: ask about surplus objects too (:func:`rewards.shapes.questions.questions_for`).

    Example:
        >>> import tempfile
        >>> store = question_store(Path(tempfile.mkdtemp()) / "questions.sqlite", ["a red circle"])
        >>> len(store.get("a red circle"))
        4
    """
    store = QuestionStore(path)
    questions = [question for prompt in prompts for question in questions_for(prompt, surplus)]
    store.add(questions, {"source": "rewards.shapes.questions"}, on_conflict="keep")
    return store
