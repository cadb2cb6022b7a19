import pytest

from rewards.errors import InputError
from rewards.rubric.items import RubricItem, read_items


def test_weights_and_values() -> None:
    assert [RubricItem("a", kind).scored_weight for kind in ("essential", "important", "optional", "pitfall")] == [
        1.0, 0.7, 0.3, 0.9,
    ]  # fmt: skip
    three = RubricItem("a", choices=("no", "partly", "yes"))
    assert three.values == (0.0, 0.5, 1.0)
    assert RubricItem("a", "pitfall", choices=("no", "partly", "yes")).values == (1.0, 0.5, 0.0)


def test_items_in_every_form() -> None:
    expected = (RubricItem("a"), RubricItem("b", "pitfall", 2.0, label="invents"))
    mapping = {"item": "b", "kind": "pitfall", "weight": 2.0, "label": "invents", "choices": None}
    assert read_items(["a", mapping]) == expected
    assert read_items('["a", {"item": "b", "kind": "pitfall", "weight": 2.0, "label": "invents"}]') == expected
    assert read_items([RubricItem("a"), expected[1]]) == expected


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ([], "not empty"),
        (None, "list of items"),
        ("[", "as JSON"),
        ([3], "a text or a mapping"),
        ([" "], "not blank"),
        ([{"item": "a", "kind": "vital"}], "kind is 'vital'"),
        ([{"item": "a", "wieght": 1}], "has 'wieght'"),
        ([{"item": "a", "weight": 0}], "above 0"),
        ([{"item": "a", "weight": True}], "above 0"),
        ([{"item": "a", "weight": "1"}], "above 0"),
        ([{"item": "a", "choices": ["yes"]}], "at least two"),
    ],
)
def test_what_cannot_be_used(cell: object, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_items(cell)
