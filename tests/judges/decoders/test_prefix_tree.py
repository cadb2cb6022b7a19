import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewards.judges.decoders.prefix_tree import Branch, Plan, plan

sequences_strategy = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=7).map(tuple), min_size=1, max_size=6, unique=True
)


@given(sequences_strategy, st.data())
@settings(max_examples=300, deadline=None)
def test_every_plan_is_valid(sequences, data):
    reserve = [data.draw(st.integers(1, len(sequence))) for sequence in sequences]
    tree = plan(sequences, reserve)
    assert sorted(member for branch in tree.branches for member in branch.members) == list(range(len(sequences)))
    for branch in tree.branches:
        assert branch.start == tree.root <= branch.stop
        for member in branch.members:
            assert sequences[member][: branch.stop] == sequences[branch.members[0]][: branch.stop]
            assert sequences[member][: tree.root] == sequences[0][: tree.root]
            assert branch.stop <= len(sequences[member]) - reserve[member]


def partitions(items):
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            remaining = [item for item in rest if item not in others]
            for partition in partitions(remaining):
                yield [[first, *others], *partition]


def deepest(sequences, members):
    depth = 0
    while all(
        len(sequences[at]) - 1 > depth and sequences[at][depth] == sequences[members[0]][depth] for at in members
    ):
        depth += 1
    return depth


@given(sequences_strategy)
@example([(0,), (1,), (0, 0), (0, 0, 0, 0), (0, 0, 0, 0, 0)])  # one leaves its neighbours for a branch further up
@settings(max_examples=60, deadline=None)
def test_no_other_two_level_plan_is_cheaper(sequences):
    sequences = [(*sequence, 100 + at) for at, sequence in enumerate(sequences)]  # prompts end in ways of their own
    lengths = [len(sequence) for sequence in sequences]
    tree = plan(sequences, [1] * len(sequences))
    cheapest = min(
        Plan(
            tree.root,
            [
                Branch(
                    tree.root, max(tree.root, deepest(sequences, members)) if len(members) > 1 else tree.root, members
                )
                for members in partition
            ],
        ).cost(lengths)
        for partition in partitions(list(range(len(sequences))))
    )
    assert tree.cost(lengths) == cheapest


def test_best_of_eight_with_five_criteria_computes_what_it_must():
    picture, instruction = [7] * 400, list(range(1000, 1060))
    candidates = [[2000 + at] * 40 for at in range(8)]
    criteria = [[3000 + at] * 60 for at in range(5)]
    sequences = [picture + instruction + candidate + criterion for candidate in candidates for criterion in criteria]
    tree = plan(sequences, [1] * 40)
    assert tree.root == 460
    assert len(tree.branches) == 8
    assert tree.cost([len(sequence) for sequence in sequences]) == 460 + 8 * 40 + 40 * 60


@pytest.mark.parametrize("levels", [1, 2])
def test_one_sequence_keeps_its_reserve(levels):
    tree = plan([[1, 2, 3, 4]], [2], levels)
    assert (tree.root, tree.branches) == (2, [Branch(2, 2, [0])])


def test_a_thousand_sequences_are_planned_quickly():
    sequences = [[5] * 600 + [at % 10] * 20 + [at] * 3 for at in range(1000)]
    assert plan(sequences, [1] * 1000).root == 600


def test_a_thousand_nested_prefixes_are_planned_quickly():
    sequences = [[0] * length + [1] for length in range(1000)]
    tree = plan(sequences, [1] * 1000)
    assert sorted(member for branch in tree.branches for member in branch.members) == list(range(1000))
