"""What a result depends on: every difference is named, what may change is let through, weights count by content."""

import dataclasses
from pathlib import Path

import pytest

from rewards.errors import InputError
from rewards.runs.identity import as_json, check_same, content_hash, differences

IDENTITY = {
    "settings": {"seed": 0, "policy": {"path": "org/model", "lora_alpha": 4}, "trainer": {"max_steps": 10}},
    "rewards": [{"kind": "tifa", "judge": {"name": "blip", "device": "cpu"}, "weight": 1.0}],
    "prompts": ["a", "b"],
    "questions": None,
}


def changed(path: str, value: object) -> dict[str, object]:
    """The identity with one entry set otherwise."""
    copy = as_json(IDENTITY)
    place = copy
    *parents, last = path.split(".")
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("settings.seed", 1, "settings.seed was 0 and is now 1"),
        ("settings.policy.lora_alpha", 64, "settings.policy.lora_alpha was 4 and is now 64"),
        ("rewards.0.judge.name", "git", "rewards.0.judge.name was 'blip' and is now 'git'"),
        ("rewards.0.weight", 1, None),
        ("prompts", ["b", "a"], "prompts was ['a', 'b'] and is now ['b', 'a']"),
        ("questions", "fe", "questions was None and is now 'fe'"),
        ("settings.trainer.beta", 0.1, "settings.trainer.beta was not set and is now 0.1"),
        ("rewards", [], "rewards was [{'kind': 'tifa'"),
    ],
)
def test_each_difference_is_named(path, value, said):
    found = differences(as_json(IDENTITY), changed(path, value))
    assert found == [] if said is None else len(found) == 1 and found[0].startswith(said)


def test_what_may_change_is_let_through_and_nothing_else():
    now = changed("settings.trainer.max_steps", 20)
    now["rewards"][0]["judge"] |= {"device": "cuda", "name": "git"}
    found = differences(as_json(IDENTITY), now, ["settings.trainer.*", "rewards.*.device"])
    assert found == ["rewards.0.judge.name was 'blip' and is now 'git'"]
    with pytest.raises(InputError, match=r"the run in runs/a was begun otherwise: rewards.0.judge.name was 'blip'"):
        check_same(as_json(IDENTITY), now, "the run in runs/a", ["settings.trainer.*", "rewards.*.device"])
    check_same(as_json(IDENTITY), now, "the run", ["settings.trainer", "rewards.*"])


def test_settings_become_json():
    @dataclasses.dataclass
    class Settings:
        path: Path
        weights: tuple[float, ...] = (1.0, 2.0)

    assert as_json({"a": Settings(Path("x/y"))}) == {"a": {"path": "x/y", "weights": [1.0, 2.0]}}
    assert as_json(b"1") == as_json(b"1") != as_json(b"2")
    with pytest.raises(TypeError, match="no JSON value"):
        as_json({"a": object()})


def test_a_hash_depends_on_content_and_order_of_lists_alone():
    one = content_hash({"prompts": ["a", "b"], "seed": 1})
    assert one == content_hash({"seed": 1, "prompts": ("a", "b")}) and len(one) == 32
    others = {content_hash({"prompts": p, "seed": 1}) for p in (["b", "a"], ["ab"], ["a", "b", ""], ["a,", "b"])}
    assert one not in others and len(others) == 4
