"""Models of many equal layers, counted from few: what a phase holds and computes grows by the same with every layer.

So a phase is measured with a few layers of each kind, and again with one more of each kind in turn. The sum is exact
as long as a phase is at its largest in the same place with few layers as with many; the weights always are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

Known = dict[str, Any]
"""A model as in the table: see :func:`rewards.preflight.models.described`."""

Numbers = dict[str, float]
"""What was counted: bytes and FLOPs by name."""

FEW = 4
"""Up to so many layers of a kind, all are built: fewer would not be quicker."""


@dataclass(frozen=True)
class Stack:
    """Equal layers.

    Attributes:
        total: Their number.
        few: How many are measured first.
        put: Changes the number in a model's description.
    """

    total: int
    few: int
    put: Callable[[Known, int], None]


def stacks(known: Known) -> list[Stack]:
    """The kinds of layers of which a model has many; none for small ones.

    Example:
        >>> from rewards.preflight.models import described
        >>> [(stack.total, stack.few) for stack in stacks(described("Qwen/Qwen2.5-VL-7B-Instruct"))]
        [(28, 2), (28, 1)]
    """
    found = _of_pipeline(known["parts"]) if "parts" in known else _of_vlm(known["config"])
    return [stack for stack in found if stack.total > FEW + stack.few]


def shortened(known: Known) -> Known:
    """The model with a few layers of each kind."""
    found = stacks(known)
    return _with(known, found, [stack.few for stack in found])


def by_layers(known: Known, measured: Callable[[Known], Numbers]) -> Numbers:
    """What would be measured of the whole model.

    Args:
        known: The model.
        measured: Measures one of any number of layers.
    """
    found = stacks(known)
    few = [stack.few for stack in found]
    total = first = measured(_with(known, found, few))
    for at, stack in enumerate(found):
        more = measured(_with(known, found, [count + (at == place) for place, count in enumerate(few)]))
        total = {name: total[name] + (stack.total - stack.few) * (more[name] - first[name]) for name in total}
    return total


def _with(known: Known, found: list[Stack], counts: list[int]) -> Known:
    changed = copy.deepcopy(known)
    for stack, count in zip(found, counts):
        stack.put(changed, count)
    return changed


def _of_pipeline(parts: Known) -> list[Stack]:
    if "unet" in parts:
        layers = parts["unet"]["config"].get("transformer_layers_per_block")
        if not isinstance(layers, list):
            return []
        return [_at(layers[-1], 1, ("parts", "unet", "config", "transformer_layers_per_block"), -1)]
    config = parts["transformer"]["config"]
    if dual := config.get("dual_attention_layers"):  # they come first, the last layer of all is another one
        return [Stack(len(dual), 1, _put_dual), Stack(config["num_layers"] - len(dual), 2, _put_plain)]
    names = [name for name in ("num_layers", "num_single_layers", "n_layers") if name in config]
    return [_at(config[name], 2, ("parts", "transformer", "config"), name) for name in names]


def _of_vlm(config: Known) -> list[Stack]:
    if "text_config" not in config:
        return []
    text, vision = config["text_config"], config["vision_config"]
    marked = next((name for name in ("fullatt_block_indexes", "deepstack_visual_indexes") if name in vision), None)
    found = []
    if len(set(text.get("layer_types", ()))) <= 1:
        # As many as take up features of the vision tower's marked layers.
        few = len(vision.get("deepstack_visual_indexes", ())) + 2
        found.append(_at(text["num_hidden_layers"], few, ("config", "text_config"), "num_hidden_layers"))
    if marked:
        return [*found, Stack(vision["depth"] - len(vision[marked]), 1, partial(_put_unmarked, marked=marked))]
    return [*found, _at(vision["num_hidden_layers"], 3, ("config", "vision_config"), "num_hidden_layers")]


def _at(total: int, few: int, path: tuple[str, ...], key: Any) -> Stack:
    """Layers whose number is a value of the description."""

    def put(known: Known, count: int) -> None:
        part = known
        for step in path:
            part = part[step]
        part[key] = count
        if isinstance(part, dict):
            part.pop("layer_types", None)

    return Stack(total, few, put)


def _put_dual(known: Known, count: int) -> None:
    config = known["parts"]["transformer"]["config"]
    config["num_layers"] += count - len(config["dual_attention_layers"])
    config["dual_attention_layers"] = list(range(count))


def _put_plain(known: Known, count: int) -> None:
    config = known["parts"]["transformer"]["config"]
    config["num_layers"] = len(config["dual_attention_layers"]) + count


def _put_unmarked(known: Known, count: int, marked: str) -> None:
    """Layers of a vision tower, those with a mark (whole attention, features for the text tower) after the others."""
    vision = known["config"]["vision_config"]
    own = len(vision[marked])
    vision |= {"depth": count + own, marked: list(range(count, count + own))}
