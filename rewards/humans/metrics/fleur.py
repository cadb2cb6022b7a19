"""FLEUR (Lee et al. 2024): a judge writes a caption's score from 0.0 to 1.0, and its digits are smoothed.

With P_1 and P_2 the judge's probabilities of the digits at the first and second decimal, among all tokens and not
renormalised, after the digits that it wrote before:

    s = sum_i 0.1 i P_1(i) + sum_j 0.01 j P_2(j)        the second sum only if a second decimal is written
    s = 0.9 P(0) + 1.0 P(1)                             if it writes 1.0, from the digit before the point

(github.com/Yebin46/FLEUR, fleur.py). The released script generates the number and looks the positions up in it; here
the same positions are read directly, after "0." and after "0." with the likeliest first decimal. The one thing that is
not read is whether the judge would stop after one decimal: a second one counts as written where the digits together
have more than half of the probability. The wording of the prompt is our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import torch
from torch import Tensor

from rewards.harmonic.criteria import render
from rewards.humans.metrics.base import MetricScores, TextItem
from rewards.judges.base import Judge

DIGITS = tuple(str(digit) for digit in range(10))


def fleur_score(lead: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The smoothed score from the judge's probabilities, none of them renormalised.

    Args:
        lead: (N, 2) of 0 and 1 before the point.
        first: (N, 10) of the digits at the first decimal, after "0.".
        second: (N, 10) of the digits at the second decimal, after "0." and the likeliest first decimal.

    Returns:
        (N,) in [0, 1].

    Example:
        >>> first = torch.zeros(1, 10); first[0, 8] = 1.0
        >>> second = torch.zeros(1, 10); second[0, 5] = 1.0
        >>> round(fleur_score(torch.tensor([[1.0, 0.0]]), first, second).item(), 4)
        0.85
    """
    digits = torch.arange(10, dtype=first.dtype)
    written = second.sum(-1) > 0.5
    decimals = (first * digits).sum(-1) / 10 + torch.where(written, (second * digits).sum(-1) / 100, 0.0)
    whole = 0.9 * lead[:, 0] + lead[:, 1]
    return torch.where(lead[:, 1] > lead[:, 0], whole, decimals)


class FLEUR:
    """FLEUR with any judge that can go on from words put into its mouth.

    Args:
        judge: one with the ability `rate_after`.
        prompt: a template with `{text}`; default: `prompts/fleur.txt`.
        min_rating_mass: a text abstains if the judge puts less probability than this on a number at all, before the
            point or at the first decimal.

    Raises:
        UnsupportedAbility: the judge cannot.
    """

    name = "FLEUR"
    needs_references = False

    def __init__(self, judge: Judge, prompt: str | None = None, min_rating_mass: float = 0.1) -> None:
        judge.require("rate", "rate_after")
        self.judge = judge
        self.prompt = prompt if prompt is not None else _prompt()
        self.min_rating_mass = min_rating_mass

    def __call__(self, items: Sequence[TextItem]) -> MetricScores:
        """Score n texts, each in [0, 1]; NaN where the judge gave no number."""
        images = [item.image for item in items]
        prompts = [render(self.prompt, item.text, item.input) for item in items]
        lead = self.judge.rate(images, prompts, ("0", "1"))
        first = self.judge.rate_after(images, prompts, ["0."] * len(items), DIGITS)
        likeliest = first.probabilities.nan_to_num(-1.0).argmax(-1).tolist()
        second = self.judge.rate_after(images, prompts, [f"0.{digit}" for digit in likeliest], DIGITS)
        scores = fleur_score(lead.probabilities, first.probabilities, second.probabilities)
        writes_one = lead.probabilities[:, 1] > lead.probabilities[:, 0]
        sure = (lead.mass >= self.min_rating_mass) & (writes_one | (first.mass >= self.min_rating_mass))
        return MetricScores(torch.where(sure, scores, torch.nan).double().numpy())


def _prompt() -> str:
    return (files("rewards.humans.metrics") / "prompts" / "fleur.txt").read_text(encoding="utf-8").strip()
