"""One thing in a picture that the prompt does not say: scenes beside a true one, each wrong in one way.

What :mod:`rewards.shapes.false_details` is for texts. Surplus and repeated objects break no claim of a prompt that
states no number: questions about what the prompt says do not see them, and a policy that draws finds that out.
"""

from __future__ import annotations

import random
from dataclasses import replace

from rewards.shapes.questions import meaning
from rewards.shapes.scenes import BACKGROUNDS, COLORS, SHAPES, Scene, Shape, jitter


def false_pictures(scene: Scene, prompt: str, rng: random.Random) -> dict[str, Scene]:
    """A scene for each kind that the scene and the prompt allow.

    Args:
        scene: what the prompt is true of.
        prompt: words of the grammar.
        rng: chooses objects, places and colours.

    Returns:
        `surplus` (an object of another look more), `duplicated` (one of the objects once more), `missing`, `color`,
        `shape`, and where the prompt states them `background` and `swapped` (two related objects in each other's
        place).

    Example:
        >>> scene = Scene((Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0),), "white")
        >>> found = false_pictures(scene, "a red circle", random.Random(0))
        >>> [(kind, len(other.shapes)) for kind, other in found.items()]
        [('surplus', 2), ('duplicated', 2), ('color', 1), ('shape', 1)]
    """
    said = meaning(prompt)
    shapes = list(scene.shapes)
    at = rng.randrange(len(shapes))
    own = shapes[at]
    looks = {(shape.color, shape.shape) for shape in shapes}
    found: dict[str, list[Shape]] = {}
    free = [
        (row, column)
        for row in range(3)
        for column in range(3)
        if all(max(abs(row - s.cell[0]), abs(column - s.cell[1])) == 2 for s in shapes)
    ]
    if free:
        cell = rng.choice(free)
        x, y = jitter(cell, rng)
        color, kind = rng.choice([(c, s) for c in COLORS for s in SHAPES if (c, s) not in looks])
        found["surplus"] = [*shapes, Shape(color, kind, cell, x, y, own.radius)]
        found["duplicated"] = [*shapes, replace(own, cell=cell, x=x, y=y)]
    if len(shapes) > 1:
        found["missing"] = shapes[:at] + shapes[at + 1 :]
    color = rng.choice([c for c in COLORS if (c, own.shape) not in looks])
    found["color"] = [*shapes[:at], replace(own, color=color), *shapes[at + 1 :]]
    kind = rng.choice([s for s in SHAPES if (own.color, s) not in looks])
    found["shape"] = [*shapes[:at], replace(own, shape=kind), *shapes[at + 1 :]]
    if said.relation and len(shapes) == 2:
        first, second = shapes
        found["swapped"] = [
            replace(first, cell=second.cell, x=second.x, y=second.y),
            replace(second, cell=first.cell, x=first.x, y=first.y),
        ]
    scenes = {kind: Scene(tuple(drawn), scene.background) for kind, drawn in found.items()}
    if said.background:
        other = rng.choice([name for name in BACKGROUNDS if name != scene.background])
        scenes["background"] = replace(scene, background=other)
    return scenes
