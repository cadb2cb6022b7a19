"""Several continuations of a prefix as one row: who sees whom."""

import torch

from rewards.judges.decoders.packing import Segment, pack, rows_of, tokens_of
from rewards.judges.decoders.prefix_tree import plan

SEQUENCES = [[1, 2, 3, 10], [1, 2, 3, 11, 12], [1, 4, 5, 6], [1, 4, 5, 7], [1, 9]]


def test_a_token_sees_its_own_segment_and_the_one_it_continues_up_to_itself():
    row = pack([Segment([5, 6]), Segment([7], parent=0), Segment([8, 9], parent=0), Segment([4])])
    assert row.tokens.tolist() == [5, 6, 7, 8, 9, 4]
    assert row.depths.tolist() == [0, 1, 2, 2, 3, 0]
    assert row.stops == [2, 3, 5, 6]
    expected = ["100000", "110000", "111000", "110100", "110110", "000001"]
    assert torch.equal(row.visible, torch.tensor([[cell == "1" for cell in line] for line in expected]))


def told(row: list[Segment]) -> list[list[int]]:
    """Each member's tokens after the prefix, read back from a row."""
    return [
        [*(row[segment.parent].tokens if segment.parent is not None else ()), *segment.tokens]
        for segment in row
        if segment.member is not None
    ]


def test_rows_hold_every_sequence_once_whatever_the_room():
    tree = plan(SEQUENCES, [1] * len(SEQUENCES))
    assert sorted(tokens_of(branch, SEQUENCES) for branch in tree.branches) == [1, 4, 5]
    for room in (-3, 1, 5, 7, 100):
        rows = list(rows_of(tree.branches, SEQUENCES, room))
        members = [segment.member for row in rows for segment in row if segment.member is not None]
        assert sorted(members) == list(range(len(SEQUENCES)))
        read = [tokens for row in rows for tokens in told(row)]
        assert [SEQUENCES[member][tree.root :] for member in members] == read
        sizes = [sum(len(segment.tokens) for segment in row) for row in rows]
        assert all(size <= room for size in sizes if size > 5)
        assert len(rows) == {-3: 3, 1: 3, 5: 2, 7: 2, 100: 1}[room]
