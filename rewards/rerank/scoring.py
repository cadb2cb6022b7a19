"""Any reward -> scores of all candidates of some items, each distinct candidate judged once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from rewards.errors import InputError, RewardsError
from rewards.rerank.items import Item
from rewards.rerank.ranking import Score


@runtime_checkable
class ScoresItems(Protocol):
    """A reward that scores the candidates of items itself, parts and all."""

    def score_items(self, items: Sequence[Item]) -> list[list[Score]]:
        """One list of scores an item, in the order of its candidates."""


def score_items(reward: Any, items: Sequence[Item]) -> list[list[Score]]:
    """Score every candidate of every item in one call of the reward.

    Args:
        reward: HarmonicEval (items of texts), TIFA (items of pictures), Combined, an object with `score_items`,
            or a function: for texts in TRL's convention (keywords `prompts`, `completions`, `image`, `question`, `box`
            and the columns in `extra`; a list of numbers or None), for pictures `(images, prompts, metadata)` (an
            array, or an array and a dict).
        items: all of one kind.

    Returns:
        One list of scores an item.

    Raises:
        InputError: a reward that cannot score this kind of candidates, or input that the reward refuses.
        RewardsError: another number of scores than candidates.
    """
    if isinstance(reward, ScoresItems):
        return reward.score_items(items)
    kind = items[0].kind
    flat = [(item, candidate) for item in items for candidate in item.candidates]
    scores = _adapter(reward, kind)(reward, flat)
    if len(scores) != len(flat):
        raise RewardsError(f"reward {_name(reward)} returned {len(scores)} scores for {len(flat)} candidates")
    result, start = [], 0
    for item in items:
        result.append(scores[start : start + len(item.candidates)])
        start += len(item.candidates)
    return result


def check_reward(reward: Any, kind: str) -> None:
    """Raise InputError unless the reward can score "texts" or "pictures" at all, whatever the items."""
    if not isinstance(reward, ScoresItems):
        _adapter(reward, kind)


Flat = Sequence[tuple[Item, Any]]


def _adapter(reward: Any, kind: str) -> Callable[[Any, Flat], list[Score]]:
    # Looked at only for our own classes: a plain function needs neither torch nor transformers.
    own = any(base.__module__.startswith("rewards.") for base in type(reward).__mro__)
    if own and (ours := _own_adapter(reward, kind)) is not None:
        return ours
    if not callable(reward):
        raise InputError(f"{type(reward).__name__} is not a reward: it cannot be called")
    return _text_function if kind == "texts" else _picture_function


def _own_adapter(reward: Any, kind: str) -> Callable[[Any, Flat], list[Score]] | None:
    from rewards.combined import Combined
    from rewards.harmonic.reward import HarmonicEval
    from rewards.tifa.reward import TIFA

    if isinstance(reward, Combined):
        if reward.standardize != "none":
            raise InputError("a Combined with standardize='running' ranks by what it saw before; use 'none'")
        for part in reward.rewards:
            _adapter(part, kind)
        return _weighted
    if isinstance(reward, HarmonicEval):
        if kind != "texts":
            raise InputError("HarmonicEval ranks texts about a picture: give each item its image")
        return _harmonic
    if isinstance(reward, TIFA):
        if kind != "pictures":
            raise InputError("TIFA ranks pictures of a prompt: give each item its prompt and no image")
        return _tifa
    return None


def _harmonic(reward: Any, flat: Flat) -> list[Score]:
    with_box = any(item.box is not None for item, _ in flat)
    scores = reward.score(
        [item.image for item, _ in flat],
        [text for _, text in flat],
        inputs=[item.question for item, _ in flat] if reward.takes_input else None,
        boxes=[item.box for item, _ in flat] if with_box or reward.task.needs_box else None,
    )
    return [
        Score(
            record["overall"],
            record["parts"] or dict.fromkeys(reward.criteria),
            {name: record[name] for name in ("sigma", "weights", "rating_mass")},
            record["abstained"],
        )
        for record in scores.records()
    ]


def _tifa(reward: Any, flat: Flat) -> list[Score]:
    pictures, reasons = [], []
    for item, picture in flat:
        pictures.append(picture)
        reasons.append(item.prompt)
    scores = reward.score(pictures, reasons)
    answers: list[list[Any]] = [[] for _ in flat]
    for row in scores.answers:
        answers[row.image].append(row)
    return [
        Score(overall, _by_element_type(rows), {"wrong": [_wrong(row) for row in rows if row.right is False]}, reason)
        for overall, rows, reason in zip(scores.overall.tolist(), answers, scores.reasons, strict=True)
    ]


def _by_element_type(rows: Sequence[Any]) -> dict[str, float | None]:
    by_type: dict[str, list[float]] = {}
    for row in rows:
        by_type.setdefault(row.question.element_type or "other", []).append(row.score)
    return {name: math.fsum(values) / len(values) for name, values in sorted(by_type.items())}


def _wrong(row: Any) -> dict[str, Any]:
    asked = row.question
    return {
        "question": asked.text,
        "answer": asked.answer,
        "given": row.choice if row.choice is not None else row.free_form,
        "element_type": asked.element_type,
    }


def _weighted(reward: Any, flat: Flat) -> list[Score]:
    import numpy as np

    columns = [_adapter(part, flat[0][0].kind)(part, flat) for part in reward.rewards]
    values = np.array([[math.nan if s.overall is None else s.overall for s in column] for column in columns]).T
    combined = reward.combine(values)
    result = []
    for row, overall in enumerate(combined.tolist()):
        parts: dict[str, float | None] = {}
        reasons = []
        for name, column in zip(reward.names, columns, strict=True):
            score = column[row]
            parts |= {name: score.overall, **{f"{name}/{part}": value for part, value in score.parts.items()}}
            if score.overall is None or math.isnan(score.overall):
                reasons.append(f"{name}: {score.reason or 'abstained'}")
        undecided = math.isnan(overall)
        result.append(Score(None if undecided else overall, parts, {}, "; ".join(reasons) if undecided else None))
    return result


def _text_function(reward: Any, flat: Flat) -> list[Score]:
    items = [item for item, _ in flat]
    shared = set.intersection(*(set(item.extra) for item in items)) - {"prompts", "completions"}
    columns: dict[str, Any] = {name: [item.extra[name] for item in items] for name in sorted(shared)}
    values = reward(
        prompts=[item.prompt for item in items],
        completions=[text for _, text in flat],
        image=[item.image for item in items],
        question=[item.question for item in items],
        box=[item.box for item in items],
        **columns,
    )
    return [_plain(value) for value in values]


def _picture_function(reward: Any, flat: Flat) -> list[Score]:
    from rewards.images import to_pil

    pictures: list[Any] = []
    scores: list[Score | None] = []
    for index, (_, picture) in enumerate(flat):
        try:
            pictures.append(to_pil(picture, index))
            scores.append(None)
        except (InputError, OSError) as error:
            scores.append(Score(None, reason=str(error)))
    judged = [item for (item, _), score in zip(flat, scores, strict=True) if score is None]
    returned = (
        reward(pictures, [item.prompt for item in judged], [dict(item.extra) for item in judged]) if judged else []
    )
    values = iter(returned[0] if isinstance(returned, tuple) else returned)
    return [score if score is not None else _plain(next(values)) for score in scores]


def _plain(value: Any) -> Score:
    number = math.nan if value is None else float(value)
    return Score(None, reason="the reward abstained") if math.isnan(number) else Score(number)


def _name(reward: Any) -> str:
    return str(getattr(reward, "__name__", type(reward).__name__))
