"""Preferences over the pairs whose pictures are there; the others abstain and are counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rewards.errors import InputError
from rewards.humans.pairs.preferences import Decisions
from rewards.humans.pairs.records import ResponsePair

Prefer = Callable[[Sequence[ResponsePair]], Decisions]


def missing_pictures(pairs: Sequence[ResponsePair]) -> list[int]:
    """The pairs whose picture is no file.

    Raises:
        InputError: not one of the pictures is there.
    """
    missing = [n for n, pair in enumerate(pairs) if not Path(pair.image).is_file()]
    if len(missing) == len(pairs):
        raise InputError(f"none of the {len(pairs)} pictures is there; the first should be {pairs[0].image}")
    return missing


def decide(prefer: Prefer, pairs: Sequence[ResponsePair], missing: Sequence[int]) -> Decisions:
    """Decisions on all pairs; NaN for those whose picture is missing.

    Args:
        prefer: `by_reward` or `by_prompt` with its judge, as a function of pairs.
        pairs: n pairs.
        missing: from :func:`missing_pictures`.
    """
    rows = sorted(set(range(len(pairs))) - set(missing))
    found = prefer([pairs[n] for n in rows])
    forward, backward = np.full(len(pairs), np.nan), np.full(len(pairs), np.nan)
    forward[rows], backward[rows] = found.forward, found.backward
    return Decisions(forward, backward)
