"""Strict YAML loading: unknown keys, wrong types and overrides."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from rewards.errors import InputError
from rewards.runs.config import load_config, save_config


@dataclass
class Inner:
    num_epochs: int = 10
    lr: float = 1e-3


@dataclass
class Outer:
    name: str = "x"
    kind: Literal["local", "hub"] = "local"
    flag: bool = False
    path: Path | None = None
    words: list[str] = field(default_factory=list)
    pair: tuple[int, int] = (1, 2)
    inner: Inner = field(default_factory=Inner)


@dataclass
class Required:
    model: str


def write(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_nested_values_and_numbers_without_a_dot(tmp_path):
    path = write(tmp_path, "name: y\npath: a/b\nwords: [a, b]\npair: [3, 4]\ninner:\n  lr: 1e-4\n")
    config = load_config(Outer, path)
    assert config == Outer(name="y", path=Path("a/b"), words=["a", "b"], pair=(3, 4), inner=Inner(lr=1e-4))


def test_overrides_win_over_the_file(tmp_path):
    path = write(tmp_path, "inner:\n  num_epochs: 3\n  lr: 0.5\n")
    assert load_config(Outer, path, ["inner.num_epochs=7", "--flag=true"]) == Outer(flag=True, inner=Inner(7, 0.5))
    assert load_config(Outer, path, {"inner": {"num_epochs": 7}}).inner == Inner(7, 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inner:\n  num_epoch: 3\n", "unknown key 'inner.num_epoch'; did you mean 'inner.num_epochs'?"),
        ("inner:\n  num_epochs: 3.5\n", "'inner.num_epochs' must be a whole number, got 3.5"),
        ("inner: 3\n", "'inner' must be a group of keys, got 3"),
        ("flag: 1\n", "'flag' must be true or false, got 1"),
        ("kind: remote\n", "'kind' must be one of 'local', 'hub', got 'remote'"),
        ("words: abc\n", "'words' must be a list, got 'abc'"),
        ("pair: [1]\n", "'pair' must have 2 entries, got 1"),
        ("- a\n", "expected a mapping"),
        ("a: [\n", "not a YAML file"),
    ],
)
def test_mistakes_name_the_file_and_the_key(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_config(Outer, path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_missing_required_key_and_bad_override():
    with pytest.raises(InputError, match="missing required key 'model'"):
        load_config(Required)
    with pytest.raises(InputError, match="expected key=value"):
        load_config(Required, None, ["model"])


def test_saved_config_loads_back(tmp_path):
    config = Outer(name="é", path=Path("a"), inner=Inner(lr=1e-9))
    save_config(config, tmp_path / "saved.yaml")
    assert load_config(Outer, tmp_path / "saved.yaml") == config
