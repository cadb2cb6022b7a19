"""Whole trees as rows: every token sees exactly what stands before it in one of the sequences that it is part of."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from rewards.judges.decoders.forest import grow, plant

TOKENS = st.integers(1, 3)


@st.composite
def families(draw):
    """Distinct sequences with a common beginning, and how many last positions of each are read."""
    root = draw(st.lists(TOKENS, min_size=1, max_size=3))
    tails = draw(st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=6))
    sequences = [[*root, 9, *tail, 10 + at] for at, tail in enumerate(tails)]
    keep = [draw(st.integers(1, len(tail) + 1)) for tail in tails]
    return sequences, keep


@given(st.lists(families(), min_size=1, max_size=4))
def test_every_position_that_is_read_sees_its_own_sequence_and_nothing_else(groups):
    trees = [grow(sequences, keep) for sequences, keep in groups]
    forest = plant(trees)
    visible = forest.mask(torch.float32)[:, 0] == 0
    width = forest.tokens.shape[1]
    kept = iter(forest.kept.tolist())
    for sequences, keep in groups:
        for sequence, last in zip(sequences, keep):
            for end in range(len(sequence) - last + 1, len(sequence) + 1):
                row, place = divmod(next(kept), width)
                seen = visible[row, place].nonzero()[:, 0]
                assert forest.tokens[row, seen].tolist() == sequence[:end]
                assert forest.depths[row, seen].tolist() == list(range(end))
    assert next(kept, None) is None


@given(st.lists(families(), min_size=1, max_size=4))
def test_a_row_that_is_over_sees_something(groups):
    """A row of a mask without anything visible would be NaN in a softmax."""
    visible = plant([grow(sequences, keep) for sequences, keep in groups]).mask(torch.float32)[:, 0] == 0
    assert visible.any(-1).all()


def test_what_is_shared_is_there_once():
    tree = grow([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [1, 2, 7, 8, 9]], [1, 1, 1])
    assert sorted(tree.tokens.tolist()) == [1, 2, 3, 4, 5, 6, 7, 8, 9] and tree.root == 2
    assert torch.equal(torch.tensor(tree.tokens[tree.kept]), torch.tensor([5, 6, 9]))
