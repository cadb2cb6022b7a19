"""Pictures to write about, as a `datasets.Dataset` in TRL's form, each row with the scene that was drawn."""

from __future__ import annotations

import json
import random
from dataclasses import asdict

from datasets import Dataset, Features, Image, Value

from rewards.errors import InputError
from rewards.shapes.language import describe
from rewards.shapes.prompts import SPLITS
from rewards.shapes.render import render
from rewards.shapes.scenes import Scene, Shape, sample_scene

INSTRUCTION = "describe the picture"


def scene_to_json(scene: Scene) -> str:
    """The scene as one line of JSON."""
    return json.dumps(asdict(scene))


def scene_from_json(text: str) -> Scene:
    """The inverse of :func:`scene_to_json`.

    Example:
        >>> scene_from_json(scene_to_json(Scene((), "gray")))
        Scene(shapes=(), background='gray')
    """
    row = json.loads(text)
    shapes = tuple(Shape(**(shape | {"cell": tuple(shape["cell"])})) for shape in row["shapes"])
    return Scene(shapes, row["background"])


def sample_scenes(split: str, n: int, seed: int) -> list[Scene]:
    """Scenes whose meaning belongs to one split.

    Raises:
        InputError: an unknown split.
    """
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}; the shapes world has {', '.join(SPLITS)}")
    rng = random.Random(f"{split}/{seed}")
    scenes: list[Scene] = []
    while len(scenes) < n:
        scene = sample_scene(rng)
        if describe(scene).split() == split:
            scenes.append(scene)
    return scenes


def caption_prompts(split: str, n: int, seed: int) -> Dataset:
    """Pictures for a captioner.

    Args:
        split: "train", "validation" or "test"; no meaning is in two splits.
        n: rows.
        seed: of the draw.

    Returns:
        Columns `prompt` (conversational), `image` (32 x 32 RGB), `scene` (JSON, see :func:`scene_from_json`) and
        `meaning` (equal for scenes that are described alike but for the background: not independent of each other).

    Raises:
        InputError: an unknown split.

    Example:
        >>> caption_prompts("test", 2, seed=0)[0]["prompt"]
        [{'role': 'user', 'content': 'describe the picture'}]
    """
    scenes = sample_scenes(split, n, seed)
    rows = {
        "prompt": [[{"role": "user", "content": INSTRUCTION}]] * n,
        "image": [render(scene) for scene in scenes],
        "scene": [scene_to_json(scene) for scene in scenes],
        "meaning": [describe(scene).key() for scene in scenes],
    }
    message = {"role": Value("string"), "content": Value("string")}
    text = Value("string")
    features = Features({"prompt": [message], "image": Image(), "scene": text, "meaning": text})
    return Dataset.from_dict(rows, features=features)
