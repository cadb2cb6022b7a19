"""The target box is on the picture, and only there."""

import numpy as np
import pytest
from PIL import Image

from rewards.errors import InputError
from rewards.harmonic.boxes import draw_box

RED = (255, 0, 0)


def red_pixels(image: Image.Image) -> set[tuple[int, int]]:
    rows, columns = np.where((np.asarray(image) == RED).all(-1))
    return set(zip(columns.tolist(), rows.tolist()))


def test_draws_the_outline_on_a_copy():
    image = Image.new("RGB", (20, 10))
    red = red_pixels(draw_box(image, (2, 3, 8, 7)))
    assert red == {(x, y) for x in range(2, 8) for y in range(3, 7) if x in (2, 7) or y in (3, 6)}
    assert not red_pixels(image)


def test_cuts_the_box_at_the_border_and_widens_the_line_with_the_image():
    assert red_pixels(draw_box(Image.new("RGB", (4, 4)), (-5, -5, 50, 50))) == {
        (x, y) for x in range(4) for y in range(4) if x in (0, 3) or y in (0, 3)
    }
    assert (102, 150) in red_pixels(draw_box(Image.new("RGB", (400, 300)), (100, 100, 300, 200)))
    assert red_pixels(draw_box(Image.new("RGB", (4, 4)), (1.2, 1.2, 1.4, 1.4)))


@pytest.mark.parametrize("box", [(1, 2, 3), (5, 1, 2, 8), (1, 1, 1, 4), (0, 0, float("nan"), 3), (20, 0, 30, 5)])
def test_refuses_boxes_that_mark_nothing(box):
    with pytest.raises(InputError):
        draw_box(Image.new("RGB", (20, 10)), box)
