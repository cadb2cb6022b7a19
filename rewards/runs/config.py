"""YAML to a dataclass, strictly: an unknown key or a value of the wrong kind is one clear line.

The examples and the command line share this loader, so that a mistyped key never trains for an hour with a default
in its place.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import operator
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rewards.errors import InputError

T = TypeVar("T")


def load_config(
    cls: type[T],
    path: str | Path | None = None,
    overrides: Mapping[str, object] | Sequence[str] | None = None,
    block: str | None = None,
) -> T:
    """Build a dataclass from a YAML file and overrides.

    Args:
        cls: A dataclass. Fields may be dataclasses themselves; YAML mirrors the nesting.
        path: The YAML file, or None to start from the defaults.
        overrides: Values that win over the file: a mapping (nested, or with dotted keys), or command-line words such as
            ``["trainer.num_epochs=3", "seed=1"]`` whose right side is read as YAML.
        block: A key whose mapping is read instead of the whole file where the file has it: the ``reward`` block of any
            config is a config of its own.

    Returns:
        An instance of ``cls``.

    Raises:
        InputError: An unknown key (with the nearest known one), a value of the wrong type, a missing required field, or
            text that is not YAML. The message is one line and names the file and the key.
        OSError: The file cannot be read.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Config:
        ...     seed: int = 0
        ...     lr: float = 1e-3
        >>> load_config(Config, overrides=["lr=3e-4"])
        Config(seed=0, lr=0.0003)
    """
    where = str(path) if path is not None else "overrides"
    values: dict[str, Any] = {}
    if path is not None:
        values = _read_yaml(Path(path))
        if block is not None and isinstance(values.get(block), dict):
            values = values[block]
    for key, value in parse_overrides(overrides).items():
        _set_dotted(values, key, value)
    return typing.cast(T, _build(cls, values, where, prefix=""))


def save_config(config: Any, path: str | Path) -> None:
    """Write a resolved dataclass as YAML beside what it made; :func:`load_config` reads it back.

    Args:
        config: A dataclass instance whose values are plain (numbers, strings, lists, mappings, dataclasses, paths).
        path: The file to write.
    """
    plain = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    Path(path).write_text(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), encoding="utf-8")


def check_number(
    name: str,
    value: float | None,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> None:
    """Refuse a setting out of its range; None (not set) is always fine, NaN never.

    Raises:
        InputError: names the setting, the range and the value.

    Example:
        >>> check_number("rate", 0.5, at_least=0, at_most=1)
    """
    if value is None:
        return
    rules = ((above, "above", operator.gt), (at_least, "at least", operator.ge), (at_most, "at most", operator.le))
    for bound, words, holds in rules:
        if bound is not None and not holds(value, bound):
            raise InputError(f"{name} must be {words} {bound}, got {value}")


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a YAML file: {error}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected a mapping of keys to values, found {type(loaded).__name__}")
    return loaded


def parse_overrides(overrides: Mapping[str, object] | Sequence[str] | None) -> dict[str, Any]:
    """Command-line words (`key=value`, the value read as YAML) as a mapping; a mapping stays what it is.

    Raises:
        InputError: a word without a key, or a value that is not YAML.

    Example:
        >>> parse_overrides(["seed=1", "--gamma=0.5"])
        {'seed': 1, 'gamma': 0.5}
    """
    if overrides is None:
        return {}
    if isinstance(overrides, Mapping):
        return dict(overrides)
    parsed: dict[str, Any] = {}
    for word in overrides:
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals or not key:
            raise InputError(f"override {word!r}: expected key=value")
        try:
            parsed[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"override {word!r}: the value is not YAML: {error}") from error
    return parsed


def _set_dotted(values: dict[str, Any], key: str, value: object) -> None:
    *parents, last = str(key).split(".")
    for depth, parent in enumerate(parents, start=1):
        child = values.setdefault(parent, {})
        if not isinstance(child, dict):
            raise InputError(f"override {key!r}: {'.'.join(parents[:depth])!r} is not a group of keys")
        values = child
    if isinstance(value, Mapping) and isinstance(values.get(last), dict):
        for inner, inner_value in value.items():
            _set_dotted(values[last], inner, inner_value)
    else:
        values[last] = value


def _build(cls: Any, values: Mapping[str, object], where: str, prefix: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"; did you mean {prefix + near[0]!r}?" if near else f"; known keys: {', '.join(sorted(fields))}"
            raise InputError(f"{where}: unknown key {prefix + str(key)!r}{hint}")
    hints = typing.get_type_hints(cls)
    arguments = {key: _convert(hints[key], value, where, prefix + key) for key, value in values.items()}
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in arguments:
            raise InputError(f"{where}: missing required key {prefix + name!r}")
    try:
        return cls(**arguments)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {prefix.rstrip('.') or cls.__name__}: {error}") from error


def _convert(hint: Any, value: object, where: str, key: str) -> object:
    """``value`` as the type that ``hint`` names; only conversions that lose nothing."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(arguments, value, where, key)
    if origin is typing.Literal:
        if value in arguments and type(value) in {type(choice) for choice in arguments}:
            return value
        raise InputError(f"{where}: {key!r} must be one of {', '.join(map(repr, arguments))}, got {value!r}")
    if dataclasses.is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            return value
        if isinstance(value, Mapping):
            return _build(hint, value, where, prefix=key + ".")
        raise InputError(f"{where}: {key!r} must be a group of keys, got {value!r}")
    if origin in (list, tuple, Sequence):
        return _convert_sequence(origin, arguments, value, where, key)
    if (origin or hint) in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: {key!r} must be a mapping, got {value!r}")
        inner = arguments[1] if len(arguments) == 2 else Any
        return {name: _convert(inner, item, where, f"{key}.{name}") for name, item in value.items()}
    return _convert_scalar(hint, value, where, key)


def _convert_union(choices: tuple[object, ...], value: object, where: str, key: str) -> object:
    if value is None and type(None) in choices:
        return None
    failure: InputError | None = None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _convert(choice, value, where, key)
        except InputError as error:
            failure = error
    raise failure if failure is not None else InputError(f"{where}: {key!r}: cannot use {value!r}")


def _convert_sequence(origin: object, arguments: tuple[object, ...], value: object, where: str, key: str) -> object:
    if not isinstance(value, (list, tuple)):
        raise InputError(f"{where}: {key!r} must be a list, got {value!r}")
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise InputError(f"{where}: {key!r} must have {len(arguments)} entries, got {len(value)}")
        hints: Sequence[object] = arguments
    else:
        hints = [arguments[0] if arguments else Any] * len(value)
    items = [_convert(hint, item, where, f"{key}[{i}]") for i, (hint, item) in enumerate(zip(hints, value))]
    return tuple(items) if origin is tuple else items


def _convert_scalar(hint: Any, value: object, where: str, key: str) -> object:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str):
        # YAML 1.1 reads "1e-3" (no dot) as text; a learning rate written so is still a number.
        try:
            return float(value)
        except ValueError:
            pass
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is Path and isinstance(value, (str, Path)):
        return Path(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if hint not in names:
        if isinstance(hint, type) and isinstance(value, hint):
            return value
        raise InputError(f"{where}: {key!r} cannot be set from a file (type {getattr(hint, '__name__', hint)})")
    raise InputError(f"{where}: {key!r} must be {names[hint]}, got {value!r}")
