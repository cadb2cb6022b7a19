"""What HarmonicEval returns: the overall score of each text and everything that it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class HarmonicScores:
    """Scores of N texts on C criteria with R ratings. All tensors are float32 on the CPU.

    Args:
        overall: overall score S, shape (N,), in the range of the ratings (with `normalize=False`, from 0).
        criteria: expected rating of each criterion, shape (N, C), same range.
        sigma: deviation of each criterion's rating, shape (N, C), at least 0.
        weights: weight of each criterion in the overall score, shape (N, C), rows sum to 1.
        probabilities: the judge's probability of each rating, shape (N, C, R), renormalised unless `normalize=False`.
        rating_mass: probability that the judge gave to all ratings together, shape (N, C), in [0, 1].
        criterion_names: names of the C criteria.
        abstained: whether a text could not be judged, shape (N,), bool. Its row in `overall`, `criteria`, `sigma` and
            `weights` is NaN; `probabilities` and `rating_mass` keep what the judge said, NaN where it said nothing.
        reasons: for each text, why it was not judged, or None.
        prompt_hash: fingerprint of the prompts and ratings that were used.
    """

    overall: Tensor
    criteria: Tensor
    sigma: Tensor
    weights: Tensor
    probabilities: Tensor
    rating_mass: Tensor
    criterion_names: tuple[str, ...]
    abstained: Tensor
    reasons: list[str | None]
    prompt_hash: str

    def __len__(self) -> int:
        return len(self.reasons)

    def records(self) -> list[dict[str, Any]]:
        """One JSON-able record a text, for files and logs; numbers that do not exist are None.

        Returns:
            Dicts with `overall`, `criteria`, `sigma`, `weights` and `rating_mass` (the last four by criterion name),
            `abstained` (the reason, or None) and `prompt_hash`.
        """
        return [
            {
                "overall": _number(self.overall[row].item()),
                "criteria": self._by_name(self.criteria[row]),
                "sigma": self._by_name(self.sigma[row]),
                "weights": self._by_name(self.weights[row]),
                "rating_mass": self._by_name(self.rating_mass[row]),
                "abstained": reason,
                "prompt_hash": self.prompt_hash,
            }
            for row, reason in enumerate(self.reasons)
        ]

    def metrics(self, name: str) -> dict[str, float]:
        """Means over the judged texts, as flat keys for `metrics.jsonl` and trackers.

        Args:
            name: name of the reward, the second part of every key.

        Returns:
            `rewards/<name>/overall/mean` and, for each criterion, `rewards/<name>/<criterion>/mean`, `/weight` and
            `/deviation`, with the number of judged texts as `/count` beside each mean; `rewards/<name>/rating_mass`;
            `rewards/<name>/abstained` (texts not judged). Means over nothing are left out.
        """
        judged = ~self.abstained
        count = float(judged.sum())
        prefix = f"rewards/{name}"
        logged = {f"{prefix}/overall/count": count, f"{prefix}/abstained": float(self.abstained.sum())}
        logged |= {f"{prefix}/{criterion}/count": count for criterion in self.criterion_names}
        if count:
            logged[f"{prefix}/overall/mean"] = self.overall[judged].mean().item()
            for column, criterion in enumerate(self.criterion_names):
                logged[f"{prefix}/{criterion}/mean"] = self.criteria[judged, column].mean().item()
                logged[f"{prefix}/{criterion}/weight"] = self.weights[judged, column].mean().item()
                logged[f"{prefix}/{criterion}/deviation"] = self.sigma[judged, column].mean().item()
        # Texts that abstained for lack of mass count here: a falling mass is the first sign of a judge gone astray.
        mass = self.rating_mass[~self.rating_mass.isnan()]
        if len(mass):
            logged[f"{prefix}/rating_mass"] = mass.mean().item()
        return logged

    def _by_name(self, row: Tensor) -> dict[str, float | None]:
        return {name: _number(value) for name, value in zip(self.criterion_names, row.tolist())}


def _number(value: float) -> float | None:
    return None if value != value else value
