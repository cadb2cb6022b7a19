"""How a preference between two responses is got: from a reward's scores, or from a judge that is shown both.

Either way a pair is decided twice, in each order, and a decision is a margin: above 0 for the response at index 0,
below 0 for that at index 1, 0 for a tie, NaN where it abstained.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from rewards.errors import InputError
from rewards.humans.pairs.records import ResponsePair
from rewards.humans.statistics.pair_counts import Array
from rewards.judges.base import Judge
from rewards.reward import Reward

POSITIONS = ("1", "2")
_PLACE = re.compile(r"\{(query|first|second)\}")


@dataclass(frozen=True)
class Decisions:
    """Margins (n,) of n pairs, shown in the order of the file (`forward`) and the other way round (`backward`).

    Both are about the same index: above 0 prefers `responses[0]`, wherever it was shown.
    """

    forward: Array
    backward: Array


def by_reward(reward: Reward, pairs: Sequence[ResponsePair]) -> Decisions:
    """The response that a reward scores higher: HarmonicEval, a rubric, a function of one's own, any reward.

    Each response is scored by itself, so that the order cannot matter: `forward` and `backward` are the same.

    Args:
        reward: scores `(images, texts, inputs=requests)`.
        pairs: n pairs.
    """
    images = [pair.image for pair in pairs for _ in pair.responses]
    texts = [response for pair in pairs for response in pair.responses]
    scores = reward.score(images, texts, inputs=[pair.query for pair in pairs for _ in pair.responses])
    overall = scores.overall.double().numpy().reshape(-1, 2)
    margin = overall[:, 0] - overall[:, 1]
    return Decisions(margin, margin)


def by_prompt(
    judge: Judge, pairs: Sequence[ResponsePair], template: str | None = None, min_rating_mass: float = 0.1
) -> Decisions:
    """The response that a judge names when it is shown both, asked in each order.

    Args:
        judge: one that rates; it is read where it would say 1 or 2.
        pairs: n pairs.
        template: with `{query}`, `{first}` and `{second}`; default: `prompts/pairwise.txt`.
        min_rating_mass: less probability than this on 1 and 2 together abstains.

    Raises:
        InputError: the template lacks a place. UnsupportedAbility: the judge cannot rate.
    """
    prompt = template if template is not None else _prompt()
    if missing := {"query", "first", "second"} - set(_PLACE.findall(prompt)):
        raise InputError(f"the pairwise prompt has no place for {', '.join(sorted(missing))}")
    rows = [
        (pair.image, _filled(prompt, pair.query, pair.responses[first], pair.responses[1 - first]))
        for first in (0, 1)
        for pair in pairs
    ]
    rated = judge.rate([image for image, _ in rows], [text for _, text in rows], POSITIONS)
    margin = (rated.probabilities[:, 0] - rated.probabilities[:, 1]).double().numpy()
    margin = np.where(rated.mass.numpy() >= min_rating_mass, margin, np.nan)
    forward, shown_second = margin[: len(pairs)], margin[len(pairs) :]
    return Decisions(forward, -shown_second)


def _filled(template: str, query: str, first: str, second: str) -> str:
    # One pass, so that a placeholder inside a response stays text.
    values = {"query": query, "first": first, "second": second}
    return _PLACE.sub(lambda match: values[match[1]], template)


def _prompt() -> str:
    return (files("rewards.humans.pairs") / "prompts" / "pairwise.txt").read_text(encoding="utf-8").strip()
