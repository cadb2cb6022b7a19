"""A rubric as a reward: a judge checks a text about a picture against a checklist of its prompt."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import torch
from PIL import Image

from rewards.calling import PartFunction, part_functions
from rewards.errors import InputError
from rewards.images import content_hash, to_pil
from rewards.judges.base import Judge
from rewards.reward import Reward
from rewards.rubric.aggregation import (
    certain_weights,
    contrast_weights,
    verdict_deviation,
    verdict_score,
    weighted_mean,
)
from rewards.rubric.items import KINDS, RubricItem, read_items
from rewards.runs.files import Json
from rewards.scores import Details, Scores, number_or_none

WEIGHTINGS = ("stated", "harmonic", "contrast")
COLUMN = "rubric"
"""The column that holds each row's checklist, where the reward has none of its own."""


@dataclass(frozen=True)
class Verdict:
    """One item of one text: which choice the judge took, what it scores, and how certain it was."""

    item: RubricItem
    choice: str | None
    score: float
    deviation: float


class Rubric(Reward):
    """The weighted share of a checklist that a text fulfils (Rubrics as Rewards, explicit aggregation).

    All items of all texts about a picture go to the judge in one call, which reads what they share once.

    Args:
        judge: chooses among the verdicts of an item.
        items: the checklist of every text, in any form that :func:`rewards.rubric.items.read_items` takes; None: each
            row brings its own in a column.
        column: name of that column.
        soft: an item scores its expected value under the judge's probabilities instead of that of the likeliest choice.
        weighting: "stated": the items' weights. "harmonic": times HarmonicEval's, so that certain verdicts count more.
            "contrast": times the item's spread among the texts of the batch that answer the same request about the same
            picture by the same checklist: for training in groups; the score then depends on the group, and
            :meth:`for_evaluation` takes the stated weights.
        gamma: of the harmonic weights.
        name: of its curves.

    Raises:
        UnsupportedAbility: A judge that cannot choose.
        InputError: A checklist that cannot be used, an unknown weighting, or gamma outside [0, 1].

    Example:
        >>> rubric = Rubric(judge, ["names the colour", {"item": "invents", "kind": "pitfall"}])  # doctest: +SKIP
        >>> rubric.score([picture], ["a red circle"]).overall  # doctest: +SKIP
        tensor([1.])
    """

    judges = "texts"

    def __init__(
        self,
        judge: Judge,
        items: object = None,
        column: str = COLUMN,
        soft: bool = False,
        weighting: str = "stated",
        gamma: float = 0.75,
        name: str = "Rubric",
    ) -> None:
        if weighting not in WEIGHTINGS:
            raise InputError(f"weighting is {weighting!r}; expected one of {', '.join(map(repr, WEIGHTINGS))}")
        if not 0 <= gamma <= 1:
            raise InputError(f"gamma must lie in [0, 1], got {gamma}")
        self.judge = Judge.checked(judge, "choose")
        self.items = None if items is None else read_items(items)
        self.column = column
        self.soft = soft
        self.weighting = weighting
        self.gamma = gamma
        self.__name__ = name

    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """Judge, prompt, checklist (or the column that brings it) and aggregation."""
        fixed = None if self.items is None else [_described(item) for item in self.items]
        return {
            "reward": self.__name__,
            "judge": self.judge.identity(),
            "prompt": _prompt("{text}", "{input}", RubricItem("{item}")),
            "items": fixed,
            "column": self.column if self.items is None else None,
            "soft": self.soft,
            "weighting": self.weighting,
            "gamma": self.gamma,
        }

    def per_item(self) -> list[PartFunction]:
        """One TRL reward function a label, all judged in one pass."""
        return part_functions(self, self._labels(self.items or ()))

    def parts_to_train(self) -> dict[str, float]:
        """The labels of the reward's own items, each with its share of the weight; none where rows bring their own."""
        if self.items is None:
            return {}
        shares = dict.fromkeys(self._labels(self.items), 0.0)
        for item in self.items:
            shares[item.label] += item.scored_weight / sum(other.scored_weight for other in self.items)
        return shares

    def for_evaluation(self) -> Rubric:
        """With the stated weights, where they follow the group's contrast in training."""
        if self.weighting != "contrast":
            return self
        stated = copy.copy(self)
        stated.weighting = "stated"
        return stated

    def check_columns(self, columns: Mapping[str, Sequence[object]]) -> None:
        """See :meth:`rewards.reward.Reward.check_columns`: every row has a checklist."""
        if self.items is not None:
            return
        if self.column not in columns:
            raise InputError(
                f"{self.__name__} has no items of its own and there is no column {self.column!r}; the columns are "
                f"{', '.join(columns)}"
            )
        for row, cell in enumerate(columns[self.column]):
            try:
                read_items(cell)
            except InputError as error:
                raise InputError(f"row {row}, column {self.column!r}: {error}") from error

    def score(
        self,
        images: Sequence[object],
        texts: Sequence[str | None],
        /,
        inputs: Sequence[object] | None = None,
        **columns: Sequence[object],
    ) -> Scores:
        """Check N texts.

        Args:
            images: N pictures in any form that :func:`rewards.images.to_pil` takes.
            texts: N texts. None abstains.
            inputs: N requests that the texts answer, shown to the judge where they are texts.
            columns: the column of the checklists, unless the reward has its own.

        Returns:
            Scores in [0, 1], with parts by label and every verdict in the details. A text whose picture or checklist
            cannot be used, or one of whose items the judge could not decide, abstains.

        Raises:
            InputError: The lists differ in length, or there is no column of checklists.
        """
        given = self._checklists(len(texts), columns)
        for what, values in (("images", images), ("inputs", inputs)):
            if values is not None and len(values) != len(texts):
                raise InputError(f"got {len(values)} {what} for {len(texts)} texts: expected one a text")
        reasons: list[str | None] = [None] * len(texts)
        rows: list[tuple[int, Image.Image, str, tuple[RubricItem, ...]]] = []
        for row, text in enumerate(texts):
            try:
                rows.append((row, *_usable(row, images[row], text, given[row])))
            except (InputError, OSError) as error:
                reasons[row] = f"text {row}: {error}"
        requests = [inputs[row] if inputs is not None else None for row in range(len(texts))]
        verdicts = self._judge(rows, requests)
        for row, found in verdicts.items():
            failed = [verdict.item.item for verdict in found if verdict.choice is None]
            if failed:
                reasons[row] = f"text {row}: the judge could not decide {failed[0]!r}"
        groups = {row: (content_hash(image), str(requests[row]), items) for row, image, _, items in rows}
        return self._scores(verdicts, self._weights(verdicts, groups), reasons)

    def _checklists(self, count: int, columns: dict[str, Sequence[object]]) -> Sequence[object]:
        if self.items is not None:
            return [self.items] * count
        if self.column not in columns:
            raise InputError(f"{self.__name__} has no items of its own and there is no column {self.column!r}")
        if len(columns[self.column]) != count:
            raise InputError(f"got {len(columns[self.column])} checklists for {count} texts: expected one a text")
        return columns[self.column]

    def _judge(
        self, rows: Sequence[tuple[int, Image.Image, str, tuple[RubricItem, ...]]], requests: Sequence[object]
    ) -> dict[int, list[Verdict]]:
        """Every row's verdicts, from one call of the judge."""
        asked = [(row, image, text, item) for row, image, text, items in rows for item in items]
        if not asked:
            return {}
        found = self.judge.choose(
            [image for _, image, _, _ in asked],
            [_prompt(text, requests[row], item) for row, _, text, item in asked],
            [list(item.choices) for *_, item in asked],
        )
        verdicts: dict[int, list[Verdict]] = {}
        for (row, _, _, item), logs in zip(asked, found, strict=True):
            verdicts.setdefault(row, []).append(self._verdict(item, logs))
        return verdicts

    def _verdict(self, item: RubricItem, logs: torch.Tensor) -> Verdict:
        if logs.isnan().any() or not logs.isfinite().any():
            return Verdict(item, None, math.nan, math.nan)
        probabilities = logs.double().softmax(0)
        return Verdict(
            item,
            item.choices[int(probabilities.argmax())],
            verdict_score(probabilities, item.values, self.soft),
            verdict_deviation(probabilities, item.values),
        )

    def _weights(
        self, verdicts: dict[int, list[Verdict]], groups: Mapping[int, tuple[object, ...]]
    ) -> dict[int, list[float]]:
        stated = {row: [verdict.item.scored_weight for verdict in found] for row, found in verdicts.items()}
        decided = {row: found for row, found in verdicts.items() if all(v.choice is not None for v in found)}
        if self.weighting == "harmonic":
            certain = {
                row: certain_weights(stated[row], [verdict.deviation for verdict in found], self.gamma)
                for row, found in decided.items()
            }
            return stated | certain
        if self.weighting == "contrast":
            for group in set(groups.values()):
                members = [row for row in decided if groups[row] == group]
                scores = torch.tensor([[verdict.score for verdict in decided[row]] for row in members])
                stated |= {row: contrast_weights(stated[row], scores) for row in members}
        return stated

    def _scores(
        self, verdicts: dict[int, list[Verdict]], weights: dict[int, list[float]], reasons: Sequence[str | None]
    ) -> Scores:
        labels = self._labels([verdict.item for found in verdicts.values() for verdict in found])
        overall = torch.full((len(reasons),), math.nan)
        parts = torch.full((len(reasons), len(labels)), math.nan, dtype=torch.float64)
        counts = torch.zeros(len(reasons), len(labels), dtype=torch.float64)
        details: list[Details] = [{} for _ in reasons]
        for row, found in verdicts.items():
            overall[row] = weighted_mean([verdict.score for verdict in found], weights[row])
            details[row] = {"items": [_shown(v, w) for v, w in zip(found, weights[row], strict=True)]}
            for column, label in enumerate(labels):
                of_label = [verdict.score for verdict in found if verdict.item.label == label]
                if of_label and not any(map(math.isnan, of_label)):
                    parts[row, column], counts[row, column] = sum(of_label) / len(of_label), len(of_label)
        return Scores(overall, reasons, labels, parts, counts, details=details)

    def _labels(self, items: Sequence[RubricItem]) -> tuple[str, ...]:
        """Names of the parts: of fixed items theirs; else every kind, so that all batches have the same, and more."""
        if self.items is not None:
            return tuple(dict.fromkeys(item.label for item in self.items))
        return tuple(dict.fromkeys([*KINDS, *sorted(item.label for item in items)]))


def _usable(row: int, image: object, text: object, cell: object) -> tuple[Image.Image, str, tuple[RubricItem, ...]]:
    if not isinstance(text, str):
        raise InputError(f"is not a string but {type(text).__name__}")
    if image is None:
        raise InputError("has no image")
    return to_pil(image, row), text, read_items(cell)


def _prompt(text: str, request: object, item: RubricItem) -> str:
    """What is shared comes first: the frame, the request and the text; then the item."""
    parts = [files("rewards.rubric").joinpath("frame.txt").read_text("utf-8").strip()]
    if isinstance(request, str) and request.strip():
        parts.append(f"The text answers this request: {request}")
    parts.append(f"Text: {text}")
    parts.append(f"Item: {item.item}\nIs it so? Answer with one of: {', '.join(item.choices)}.")
    return "\n\n".join(parts)


def _described(item: RubricItem) -> dict[str, Json]:
    return {
        "item": item.item,
        "kind": item.kind,
        "weight": item.scored_weight,
        "choices": list(item.choices),
        "label": item.label,
    }


def _shown(verdict: Verdict, weight: float) -> dict[str, Json]:
    return {
        "item": verdict.item.item,
        "kind": verdict.item.kind,
        "label": verdict.item.label,
        "weight": weight,
        "choice": verdict.choice,
        "score": number_or_none(verdict.score),
    }
