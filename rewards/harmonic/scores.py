"""What HarmonicEval returns: the overall score of each text and everything that it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rewards.scores import Details, Scores, number_or_none


@dataclass
class HarmonicScores(Scores):
    """Scores of N texts on C criteria with R ratings. All tensors are float32 on the CPU.

    Attributes:
        sigma: deviation of the judge's rating on each criterion (HarmonicEval eq. 1), `(N, C)`; NaN where abstained.
        weights: harmonic weight of each criterion (eq. 2), `(N, C)`, a row sums to 1; NaN where abstained.
        probabilities: of each rating, renormalised over the ratings unless `normalize=False`, `(N, C, R)`; NaN where
            the judge said nothing.
        rating_mass: probability that the judge gave to all ratings together, `(N, C)`, in [0, 1]; kept for a text
            that abstains for lack of it.
        prompt_hash: fingerprint of the prompts and ratings that were used.
    """

    sigma: Tensor = field(default_factory=lambda: torch.empty(0))
    weights: Tensor = field(default_factory=lambda: torch.empty(0))
    probabilities: Tensor = field(default_factory=lambda: torch.empty(0))
    rating_mass: Tensor = field(default_factory=lambda: torch.empty(0))
    prompt_hash: str = ""

    @property
    def criteria(self) -> Tensor:
        """Expected rating on each criterion (HarmonicEval section 2.2), `(N, C)`; NaN where the text abstained."""
        return self.parts

    @property
    def criterion_names(self) -> tuple[str, ...]:
        """Names of the C criteria."""
        return self.part_names

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        overall: Tensor,
        reasons: Sequence[str | None],
        criteria: Tensor,
        sigma: Tensor,
        weights: Tensor,
        probabilities: Tensor,
        rating_mass: Tensor,
        prompt_hash: str,
    ) -> HarmonicScores:
        """Scores from HarmonicEval's own quantities, as described at the class."""
        by_criterion = {f"{name}/weight": weights[:, column] for column, name in enumerate(names)}
        by_criterion |= {f"{name}/deviation": sigma[:, column] for column, name in enumerate(names)}
        # Texts that abstained for lack of mass count here: a falling mass is the first sign of a judge gone astray.
        means = {**by_criterion, "rating_mass": rating_mass.nanmean(-1)}
        return cls(
            overall,
            reasons,
            part_names=names,
            parts=criteria,
            counts=(~criteria.isnan()).float(),
            means=means,
            details=[_details(names, row) for row in zip(sigma, weights, rating_mass, probabilities, strict=True)],
            sigma=sigma,
            weights=weights,
            probabilities=probabilities,
            rating_mass=rating_mass,
            prompt_hash=prompt_hash,
        )


def _details(names: tuple[str, ...], row: tuple[Tensor, Tensor, Tensor, Tensor]) -> Details:
    sigma, weights, mass, probabilities = row
    return {
        "sigma": _by_name(names, sigma),
        "weights": _by_name(names, weights),
        "rating_mass": _by_name(names, mass),
        "probabilities": {
            name: [number_or_none(value) for value in values]
            for name, values in zip(names, probabilities.tolist(), strict=True)
        },
    }


def _by_name(names: tuple[str, ...], row: Tensor) -> dict[str, float | None]:
    return {name: number_or_none(value) for name, value in zip(names, row.tolist(), strict=True)}
