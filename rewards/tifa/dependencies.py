"""DSG: questions that depend on questions (Cho et al. 2024, arXiv 2310.18235, §3.2; released code `dsg/vqa_utils.py`).

"Is the car red?" is valid only if "Is there a car?" is answered yes. With s_q the score of question q by itself and
parents(q) the questions that it depends on:

    hard    s'_q = s_q  if s_p != 0 for every parent p, else 0
    soft    s'_q = s_q * prod_{p in parents(q)} s_p          (the same as hard where every score is 0 or 1)

A parent counts by its own raw answer, not by what its own parents left of it: there is no transitive closure (a list of
propositions names all ancestors that matter). The zeroed questions stay in the mean.

Scores are floats or 0-dim tensors (the product keeps their gradient); NaN is a question that was not answered, and
makes NaN of every question that needs it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rewards.errors import InputError

if TYPE_CHECKING:
    import torch

Score = TypeVar("Score", float, "torch.Tensor")
Parents = Sequence[Sequence[int]]

NO_PARENT = "0"


class ParsedDependency(NamedTuple):
    """A dependency cell of DSG's files: the numbers of the parents, and what could not be read."""

    parents: tuple[int, ...]
    unreadable: tuple[str, ...]


def parse_dependency(cell: str) -> ParsedDependency:
    """Read a cell such as "0" (no parent), "3" or "1,2"; each parent is named once.

    Ten rows of the released DSG-1k hold a cell such as "5, right". The official loader swallows the error and then
    drops *all* dependencies of that prompt; here only "right" is unreadable, and it is for the caller to say so.

    Example:
        >>> parse_dependency("1,2")
        ParsedDependency(parents=(1, 2), unreadable=())
        >>> parse_dependency("5, right")
        ParsedDependency(parents=(5,), unreadable=('right',))
        >>> parse_dependency("0").parents
        ()
    """
    parts = [part.strip().removesuffix(".0") for part in str(cell).split(",")]  # "3.0": a table that was read as floats
    numbers = [int(part) for part in parts if part.isdecimal() and part != NO_PARENT]
    unreadable = tuple(part for part in parts if part and not part.isdecimal())
    return ParsedDependency(tuple(dict.fromkeys(number for number in numbers if number)), unreadable)


def parent_positions(ids: Sequence[Hashable], parents: Sequence[Sequence[Hashable]]) -> list[tuple[int, ...]]:
    """Parents given by id as positions among the questions of one prompt; a question's own id is left out.

    Raises:
        InputError: an id that occurs twice, a parent that is no question of the prompt, or another number of lists than
            questions; the message names the question.

    Example:
        >>> parent_positions(["car", "red"], [[], ["car"]])
        [(), (0,)]
    """
    if len(ids) != len(parents):
        raise InputError(f"{len(ids)} questions and {len(parents)} lists of parents; one list a question is needed")
    place: dict[Hashable, int] = {}
    for position, id_ in enumerate(ids):
        if id_ in place:
            raise InputError(f"question {id_!r} occurs twice, at positions {place[id_]} and {position}")
        place[id_] = position
    for id_, of_question in zip(ids, parents, strict=True):
        if unknown := [parent for parent in of_question if parent not in place]:
            raise InputError(f"question {id_!r} depends on {unknown[0]!r}, which is no question of its prompt")
    return [
        tuple(dict.fromkeys(place[parent] for parent in of_question if parent != id_))
        for id_, of_question in zip(ids, parents, strict=True)
    ]


def hard_zeroing(scores: Sequence[float], parents: Parents) -> list[float]:
    """DSG's rule: a question counts 0 when a parent's own raw score is 0.

    Args:
        scores: (Q,) raw scores of the questions of one prompt, by themselves: 1 right, 0 wrong.
        parents: (Q,) positions of each question's parents.

    Returns:
        (Q,) scores; the zeroed ones stay in the list, and so in the mean. A question whose parent was not answered
        (NaN) is NaN, unless another parent is 0 already.

    Example:
        >>> hard_zeroing([0.0, 1.0, 1.0], [(), (0,), (1,)])
        [0.0, 0.0, 1.0]
    """
    result = []
    for score, of_question in zip(scores, parents, strict=True):
        needed = [scores[parent] for parent in of_question]
        if any(value == 0 for value in needed):
            result.append(0.0)
        elif any(math.isnan(value) for value in needed):
            result.append(math.nan)
        else:
            result.append(score)
    return result


def soft_product(scores: Sequence[Score], parents: Parents) -> list[Score]:
    """The soft form: each question's probability times those of its parents, s_q * prod_p s_p.

    Args:
        scores: (Q,) probabilities in [0, 1] that each question is right by itself; floats or 0-dim tensors.
        parents: (Q,) positions of each question's parents.

    Example:
        >>> soft_product([0.5, 0.8, 1.0], [(), (0,), (0, 1)])
        [0.5, 0.4, 0.4]
    """
    result = []
    for score, of_question in zip(scores, parents, strict=True):
        for parent in of_question:
            score = score * scores[parent]
        result.append(score)
    return result
