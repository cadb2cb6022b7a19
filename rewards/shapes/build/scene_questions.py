"""Random questions on a scene for training the VQA judge, true and false, with where each noun points."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rewards.shapes.language import NUMBERS, RELATIONS
from rewards.shapes.questions import SIDE
from rewards.shapes.scenes import COLORS, SHAPES, Cell, Scene, relation

ABSENT: Cell = (3, 3)  # the noun names something that is not in the picture
_COLORS = list(COLORS)


@dataclass(frozen=True, slots=True)
class TrainingQuestion:
    """A question with its answer; ``grounds`` holds the cell of each noun, None where it is not one cell."""

    kind: str
    text: str
    answer: str
    grounds: tuple[Cell | None, ...]


def sample_questions(scene: Scene, rng: random.Random, count: int) -> list[TrainingQuestion]:
    """``count`` questions of all types, half of the yes/no ones false.

    Example:
        >>> from rewards.shapes.scenes import sample_scene
        >>> len(sample_questions(sample_scene(random.Random(0)), random.Random(0), 8))
        8
    """
    makers = [_object] * 2 + [_color] * 2 + [_shape] * 2 + [_counting] * 3 + [_spatial] * 4 + [_background]
    out: list[TrainingQuestion] = []
    while len(out) < count:
        question = rng.choice(makers)(scene, rng)
        if question is not None:
            out.append(question)
    return out


def _object(scene: Scene, rng: random.Random) -> TrainingQuestion:
    groups = scene.groups()
    color, shape = rng.choice(list(groups))
    if rng.random() < 0.5:
        other = rng.choice(_COLORS), rng.choice(SHAPES)
        u = rng.random()  # 60 percent of the false ones differ in one attribute only
        color, shape = (color, other[1]) if u < 0.3 else (other[0], shape) if u < 0.6 else other
    found = groups.get((color, shape), [])
    ground = ABSENT if not found else found[0].cell if len(found) == 1 else None
    return TrainingQuestion("object", f"is there a {color} {shape}?", "yes" if found else "no", (ground,))


def _color(scene: Scene, rng: random.Random) -> TrainingQuestion | None:
    groups = scene.groups()
    color, shape = rng.choice(list(groups))
    if sum(s == shape for _, s in groups) > 1:
        return None
    found = groups[color, shape]
    if len(found) == 1:
        return TrainingQuestion("color", f"what color is the {shape}?", color, (found[0].cell,))
    return TrainingQuestion("color", f"what color are the {shape}s?", color, (None,))


def _shape(scene: Scene, rng: random.Random) -> TrainingQuestion | None:
    groups = scene.groups()
    color, shape = rng.choice(list(groups))
    if sum(c == color for c, _ in groups) > 1:
        return None
    found = groups[color, shape]
    if len(found) == 1:
        return TrainingQuestion("shape", f"what shape is the {color} object?", shape, (found[0].cell,))
    return TrainingQuestion("shape", f"what shape are the {color} objects?", shape, (None,))


def _counting(scene: Scene, rng: random.Random) -> TrainingQuestion:
    color, shape = rng.choice(list(scene.groups()))
    if rng.random() < 0.35:
        color, shape = rng.choice(_COLORS), rng.choice(SHAPES)
    what, wanted_color, wanted_shape = rng.choice(
        [
            (f"{color} {shape}s", color, shape),
            (f"{shape}s", None, shape),
            (f"{color} objects", color, None),
            ("objects", None, None),
        ]
    )
    count = sum(wanted_color in (None, s.color) and wanted_shape in (None, s.shape) for s in scene.shapes)
    return TrainingQuestion("counting", f"how many {what} are there?", NUMBERS[count], (None,))


def _spatial(scene: Scene, rng: random.Random) -> TrainingQuestion | None:
    single = [shapes[0] for shapes in scene.groups().values() if len(shapes) == 1]
    if len(single) < 2:
        return None
    a, b = rng.sample(single, 2)
    true = relation(a.cell, b.cell)
    if true is None:
        return None
    first, second = f"{a.color} {a.shape}", f"{b.color} {b.shape}"
    if rng.random() < 0.25:
        return TrainingQuestion(
            "spatial", f"where is the {first} relative to the {second}?", SIDE[true], (a.cell, b.cell)
        )
    asked = true if rng.random() < 0.5 else rng.choice([r for r in RELATIONS if r != true])
    return TrainingQuestion(
        "spatial", f"is the {first} {asked} the {second}?", "yes" if asked == true else "no", (a.cell, b.cell)
    )


def _background(scene: Scene, rng: random.Random) -> TrainingQuestion:
    return TrainingQuestion("location", "what color is the background?", scene.background, (None,))
