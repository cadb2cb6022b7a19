"""Scenes with known truth: coloured shapes on a plain background, 32 x 32 pixels.

A scene holds one to three shapes on a jittered 3 x 3 grid, never touching. Everything that the shapes world says
about a picture (captions, questions, ratings) is computed from its scene.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

IMAGE_SIZE = 32
COLORS = {
    "red": (225, 35, 35),
    "green": (35, 170, 60),
    "blue": (45, 75, 230),
    "yellow": (245, 220, 40),
    "purple": (165, 45, 200),
}
BACKGROUNDS = {"white": (245, 245, 245), "black": (15, 15, 15), "gray": (130, 130, 130)}
SHAPES = ("circle", "square", "triangle")
GRID = (6.5, 16.0, 25.5)  # pixel centres of the rows and columns

Cell = tuple[int, int]  # (row, column), 0 to 2


@dataclass(frozen=True, slots=True)
class Shape:
    """One drawn shape: its colour, its kind, its grid cell, and its centre and radius in pixels."""

    color: str
    shape: str
    cell: Cell
    x: float
    y: float
    radius: float


@dataclass(frozen=True, slots=True)
class Scene:
    """What is in a picture.

    Example:
        >>> scene = sample_scene(random.Random(0))
        >>> 1 <= len(scene.shapes) <= 3 and scene.background in BACKGROUNDS
        True
    """

    shapes: tuple[Shape, ...]
    background: str

    def groups(self) -> dict[tuple[str, str], list[Shape]]:
        """Shapes of one colour and kind together, in drawing order."""
        groups: dict[tuple[str, str], list[Shape]] = {}
        for shape in self.shapes:
            groups.setdefault((shape.color, shape.shape), []).append(shape)
        return groups


def relation(a: Cell | tuple[float, float], b: Cell | tuple[float, float]) -> str | None:
    """How ``a`` lies to ``b``, both (row, column): along the longer axis, or None on an exact diagonal.

    Example:
        >>> relation((0, 1), (2, 1))
        'above'
    """
    down, right = a[0] - b[0], a[1] - b[1]
    if abs(right) > abs(down):
        return "left of" if right < 0 else "right of"
    if abs(down) > abs(right):
        return "above" if down < 0 else "below"
    return None


def sample_scene(rng: random.Random) -> Scene:
    """Draw a scene: one, two or three shapes with 30, 55 and 15 percent; three shapes hold at least one pair of
    equals.
    """
    u = rng.random()
    count = 1 if u < 0.3 else 2 if u < 0.85 else 3
    colors, kinds = list(COLORS), SHAPES
    looks = [(rng.choice(colors), rng.choice(kinds)) for _ in range(count)]
    if count == 2 and rng.random() < 0.3:
        looks[1] = looks[0]
    if count == 3:
        looks[1] = looks[0]
        if rng.random() < 0.5:
            looks[2] = looks[0]
    cells = _free_cells(rng, count)
    # Diagonal pairs have no relation to speak of; keep them rare.
    while count == 2 and relation(*cells) is None and rng.random() < 0.8:
        cells = _free_cells(rng, count)
    rng.shuffle(looks)
    shapes = tuple(
        Shape(color, kind, cell, *jitter(cell, rng), radius=5 + rng.random() * 0.8)
        for (color, kind), cell in zip(looks, cells)
    )
    return Scene(shapes, rng.choice(list(BACKGROUNDS)))


def jitter(cell: Cell, rng: random.Random) -> tuple[float, float]:
    """A centre (x, y) within 0.6 pixels of the cell's own."""
    return GRID[cell[1]] + rng.random() * 1.2 - 0.6, GRID[cell[0]] + rng.random() * 1.2 - 0.6


def _free_cells(rng: random.Random, count: int) -> list[Cell]:
    """Distinct cells that are two steps apart, so that shapes never touch."""
    while True:
        cells = [(rng.randrange(3), rng.randrange(3)) for _ in range(count)]
        if all(max(abs(a[0] - b[0]), abs(a[1] - b[1])) == 2 for i, a in enumerate(cells) for b in cells[:i]):
            return cells
