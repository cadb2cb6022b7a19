"""The items of a checklist, and how they stand in a data set."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from rewards.errors import InputError

KINDS: Mapping[str, float] = {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": 0.9}
"""Kinds of items and their weights (Rubrics as Rewards, arXiv 2507.17746)."""


@dataclass(frozen=True)
class RubricItem:
    """One item.

    Attributes:
        item: What is checked, as a question or a statement. A pitfall states a mistake, and earns what is left of it.
        kind: One of :data:`KINDS`.
        weight: Above 0; default: the kind's.
        choices: Possible verdicts from the worst to the best, at least two; choice k of K scores k / (K - 1).
        label: Under which its curve is kept; default: the kind.

    Raises:
        InputError: A field of the wrong type or out of range.

    Example:
        >>> RubricItem("names the colour", weight=2).scored_weight, RubricItem("invents an object", "pitfall").label
        (2.0, 'pitfall')
    """

    item: str
    kind: str = "essential"
    weight: float | None = None
    choices: tuple[str, ...] = ("no", "yes")
    label: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.item, str) or not self.item.strip():
            raise InputError(f"an item of a rubric must be a text that is not blank; got {self.item!r}")
        if self.kind not in KINDS:
            raise InputError(f"item {self.item!r}: kind is {self.kind!r}; expected one of {', '.join(KINDS)}")
        object.__setattr__(self, "choices", tuple(self.choices))
        if len(set(self.choices)) < 2 or not all(isinstance(c, str) and c.strip() for c in self.choices):
            raise InputError(f"item {self.item!r}: choices are {self.choices!r}; expected at least two different texts")
        weight = self.weight
        if weight is not None and (isinstance(weight, bool) or not isinstance(weight, (int, float))):
            raise InputError(f"item {self.item!r}: weight is {weight!r}; expected a number above 0")
        if weight is not None and not (math.isfinite(weight) and weight > 0):
            raise InputError(f"item {self.item!r}: weight is {weight!r}; expected a number above 0")
        object.__setattr__(self, "label", self.label or self.kind)

    @property
    def scored_weight(self) -> float:
        """The weight in the mean."""
        return KINDS[self.kind] if self.weight is None else float(self.weight)

    @property
    def values(self) -> tuple[float, ...]:
        """What each choice scores, in [0, 1]; turned round for a pitfall."""
        steps = [position / (len(self.choices) - 1) for position in range(len(self.choices))]
        return tuple(1 - step for step in steps) if self.kind == "pitfall" else tuple(steps)


def read_items(cell: object) -> tuple[RubricItem, ...]:
    """The items of one row.

    Args:
        cell: A list of items, each a :class:`RubricItem`, a text, or a mapping with its fields (absent or null ones
            take their defaults); or such a list as JSON.

    Raises:
        InputError: Anything else, or an empty list.

    Example:
        >>> [item.kind for item in read_items('["names the colour", {"item": "invents", "kind": "pitfall"}]')]
        ['essential', 'pitfall']
    """
    if isinstance(cell, str):
        written = cell
        try:
            cell = json.loads(written)
        except ValueError as error:
            raise InputError(f"a rubric must be a list of items, or one as JSON; got {written[:60]!r}") from error
    if not isinstance(cell, Sequence) or isinstance(cell, str) or not cell:
        raise InputError(f"a rubric must be a list of items that is not empty; got {cell!r}")
    return tuple(_item(entry) for entry in cell)


def _item(entry: object) -> RubricItem:
    if isinstance(entry, RubricItem):
        return entry
    if isinstance(entry, str):
        return RubricItem(entry)
    if not isinstance(entry, Mapping) or "item" not in tuple(entry):
        raise InputError(f"an item of a rubric must be a text or a mapping with 'item'; got {entry!r}")
    known = [field.name for field in fields(RubricItem)]
    if unknown := [name for name in entry if name not in known]:
        raise InputError(f"item {entry['item']!r} has {unknown[0]!r}; known are {', '.join(known)}")
    return RubricItem(**{name: value for name, value in entry.items() if value is not None})
