"""Any reward -> scores of all candidates of some items."""

from __future__ import annotations

from collections.abc import Sequence

from rewards.errors import RewardsError
from rewards.rerank.items import Item
from rewards.rerank.ranking import Score
from rewards.reward import Reward
from rewards.scores import Scores, number_or_none


def score_items(reward: Reward, items: Sequence[Item]) -> list[list[Score]]:
    """Score every candidate of every item in one call of the reward.

    A candidate about a picture is scored with the picture, `inputs` (its question), `boxes` and `prompts`; a candidate
    that is a picture, with the prompt it was made from. Columns of `extra` go along; an item without one has None.

    Args:
        reward: what scores.
        items: all of one kind.

    Returns:
        One list of scores an item, in the order of its candidates.

    Raises:
        InputError: the reward refuses the call.
        RewardsError: another number of scores than candidates.
    """
    of = [item for item in items for _ in item.candidates]
    candidates = [candidate for item in items for candidate in item.candidates]
    columns: dict[str, list[object]] = {
        name: [item.extra.get(name) for item in of]
        for name in sorted({name for item in items for name in item.extra} - {"prompts", "completions"})
    }
    if items[0].kind == "texts":
        columns["prompts"] = [item.prompt for item in of]
        if any(item.question is not None for item in items):
            columns["inputs"] = [item.question for item in of]
        if any(item.box is not None for item in items):
            columns["boxes"] = [item.box for item in of]
        scores = reward.score([item.image for item in of], candidates, **columns)
    else:
        # A prompt may be the number by which a question store knows it.
        scores = reward.score(candidates, [item.prompt for item in of], **columns)  # type: ignore[misc]
    if len(scores) != len(candidates):
        raise RewardsError(f"reward {reward.__name__} returned {len(scores)} scores for {len(candidates)} candidates")
    flat, start, result = _plain(scores), 0, []
    for item in items:
        result.append(flat[start : start + len(item.candidates)])
        start += len(item.candidates)
    return result


def _plain(scores: Scores) -> list[Score]:
    """A sample's own parts; those of all, as None, where it abstained."""
    result = []
    for row, overall in enumerate(scores.overall.tolist()):
        values, counts = scores.parts[row].tolist(), scores.counts[row].tolist()
        named = zip(scores.part_names, values, counts, strict=True)
        parts = {name: number_or_none(value) for name, value, count in named if count}
        result.append(
            Score(
                number_or_none(overall),
                parts or dict.fromkeys(scores.part_names),
                scores.details[row],
                scores.reasons[row],
            )
        )
    return result
