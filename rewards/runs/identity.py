"""What a result depends on, as JSON: compared before anything is written, with each difference named.

A run or a job that is continued, and a cache that is asked again, must have been begun with the same settings, rewards,
questions, data and weights. Each of them keeps such an identity beside what it makes, and states which entries may
change without making its result another one.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase

from rewards.errors import InputError
from rewards.runs.files import Json

_SHOWN = 5
_ABSENT = object()


def as_json(value: object) -> Json:
    """Settings as JSON values: dataclasses and mappings become objects, tuples lists, paths, dates and
    enums text; of bytes only a hash is kept.

    Raises:
        TypeError: A value that has no such form.

    Example:
        >>> as_json({"model": ("a", 1.5), 3: None})
        {'model': ['a', 1.5], '3': None}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return as_json(value.value)
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if isinstance(value, bytes):
        return f"blake2b:{hashlib.blake2b(value, digest_size=16).hexdigest()}"
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} {value!r:.80} is no JSON value")


def content_hash(value: object) -> str:
    """32 hexadecimal digits that stand for a long value (all prompts of a run, say).

    Args:
        value: What :func:`as_json` takes; the order of keys does not count.

    Example:
        >>> content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
        True
    """
    text = json.dumps(as_json(value), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def differences(before: Json, now: Json, may_change: Sequence[str] = ()) -> list[str]:
    """Every entry that differs, as "settings.reward.judge was 'A' and is now 'B'".

    Args:
        before: The identity that was kept.
        now: The identity of what is about to go on.
        may_change: Patterns of entries that may differ (`settings.trainer.max_steps`, `rewards.*.device`); an entry's
            name is its path with dots, entries of a list by their place. What lies under such an entry may differ too.

    Example:
        >>> differences({"seed": 1, "steps": 5}, {"seed": 2, "steps": 9, "gamma": 0.5}, ["steps"])
        ['gamma was not set and is now 0.5', 'seed was 1 and is now 2']
    """
    return list(_differences(before, now, "", may_change))


def check_same(before: Json, now: Json, what: str, may_change: Sequence[str] = ()) -> None:
    """Refuse to go on with something that was begun otherwise.

    Args:
        before, now, may_change: As in :func:`differences`.
        what: What was begun, for the message.

    Raises:
        InputError: Names what differs.
    """
    if changed := differences(before, now, may_change):
        more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise InputError(
            f"{what} was begun otherwise: {'; '.join(changed[:_SHOWN])}{more}. Go on with the old settings, or begin "
            "anew in another place"
        )


def _differences(before: object, now: object, path: str, may_change: Sequence[str]) -> Iterator[str]:
    if any(fnmatchcase(path, pattern) for pattern in may_change):
        return
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in sorted({*before, *now}):
            yield from _differences(before.get(name, _ABSENT), now.get(name, _ABSENT), _below(path, name), may_change)
    elif _list_of_objects(before) and _list_of_objects(now) and len(before) == len(now):  # type: ignore[arg-type]
        for place, (old, new) in enumerate(zip(before, now, strict=True)):  # type: ignore[call-overload]
            yield from _differences(old, new, _below(path, str(place)), may_change)
    elif before != now:
        yield f"{path or 'it'} was {_shown(before)} and is now {_shown(now)}"


def _list_of_objects(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "not set"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
