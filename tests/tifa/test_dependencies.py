"""DSG's dependencies: hand-made tables, the hard limit of the soft product, gradients, and bad cells by name."""

import itertools
import math

import pytest
import torch

from rewards.errors import InputError
from rewards.tifa.dependencies import (
    hard_zeroing,
    parent_positions,
    parse_dependency,
    soft_product,
)

# car; red car; man; man in car; hat of the man
PARENTS = [(), (0,), (), (0, 2), (2,)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([1, 1, 1, 1, 1], [1, 1, 1, 1, 1]),
        ([0, 1, 1, 1, 1], [0, 0, 1, 0, 1]),
        ([1, 0, 1, 1, 1], [1, 0, 1, 1, 1]),
        ([1, 1, 0, 1, 1], [1, 1, 0, 0, 0]),
        ([0, 1, 0, 1, 1], [0, 0, 0, 0, 0]),
    ],
)
def test_a_wrong_parent_lowers_exactly_its_own_children(raw, expected):
    assert hard_zeroing(raw, PARENTS) == expected


def test_parents_count_by_their_own_raw_answer_not_by_what_is_left_of_it():
    chain = [(), (0,), (1,)]
    # The middle question is zeroed by the first, yet it was answered yes: the last one stands.
    assert hard_zeroing([0, 1, 1], chain) == [0, 0, 1]
    assert soft_product([0.0, 1.0, 1.0], chain) == [0.0, 0.0, 1.0]


def test_the_soft_product_has_the_hard_rule_as_its_limit():
    for raw in itertools.product([0.0, 1.0], repeat=len(PARENTS)):
        assert soft_product(raw, PARENTS) == hard_zeroing(raw, PARENTS)


def test_the_soft_product_by_hand_with_its_gradient():
    scores = torch.tensor([0.5, 0.8, 0.9, 1.0, 0.2], dtype=torch.float64, requires_grad=True)
    result = torch.stack(soft_product(list(scores), PARENTS))
    assert result.tolist() == pytest.approx([0.5, 0.4, 0.9, 0.45, 0.18])
    result.sum().backward()
    # d/ds_0 of s_0 + s_1 s_0 + s_3 s_0 s_2 is 1 + 0.8 + 0.9.
    assert scores.grad[0].item() == pytest.approx(2.7)


def test_a_parent_without_an_answer_leaves_its_children_open_unless_another_parent_is_wrong():
    result = hard_zeroing([math.nan, 1.0, 0.0, 1.0, 1.0], PARENTS)
    assert math.isnan(result[0]) and math.isnan(result[1])
    assert result[2:] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("cell", "parents", "unreadable"),
    [
        ("0", (), ()),
        ("", (), ()),
        ("3", (3,), ()),
        (" 1, 2 ", (1, 2), ()),
        ("2,2", (2,), ()),
        ("0.0", (), ()),
        ("3.0", (3,), ()),
        ("0,4", (4,), ()),
        ("5, right", (5,), ("right",)),
        ("1, baseball bat", (1,), ("baseball bat",)),
        ("-1", (), ("-1",)),
        ("1.5", (), ("1.5",)),
    ],
)
def test_cells_as_they_occur(cell, parents, unreadable):
    assert parse_dependency(cell) == (parents, unreadable)


def test_positions_leave_the_question_itself_out():
    assert parent_positions([4, 7, 9], [(), (4, 7), (7, 4, 7)]) == [(), (0,), (1, 0)]


@pytest.mark.parametrize(
    ("ids", "parents", "message"),
    [
        ([1, 2], [(), (3,)], "question 2 depends on 3, which is no question"),
        ([1, 1], [(), ()], "question 1 occurs twice, at positions 0 and 1"),
        ([1, 2], [()], "2 questions and 1 lists"),
    ],
)
def test_bad_parents_are_named(ids, parents, message):
    with pytest.raises(InputError, match=message):
        parent_positions(ids, parents)
