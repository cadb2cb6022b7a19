"""The whole of best-of-n in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rewards.errors import InputError
from rewards.functions import RewardLike, as_reward
from rewards.rerank.items import Item, as_item
from rewards.rerank.ranking import Ranking, Score, rank
from rewards.rerank.scoring import score_items
from rewards.reward import Reward


def best_of_n(
    reward: RewardLike, items: Iterable[Item | Mapping[str, object]], *, batch_size: int = 128
) -> list[Ranking]:
    """Rank the candidates of each item by a reward.

    Args:
        reward: a reward, or a function in either convention of :class:`rewards.functions.FunctionReward`.
        items: items, or mappings with the same names (`candidates`, `image` or `prompt`, ...).
        batch_size: candidates handed to the reward at a time; the ranks do not depend on it, except that candidates
            within the judge's own noise (1e-5) of each other may change places.

    Returns:
        One ranking an item, in the order given. Equal candidates of an item are judged once and stay in the order in
        which they came; candidates on which the reward abstains stand last, with the reason.

    Raises:
        InputError: an item without candidates, of a kind that the reward cannot judge, or malformed; by its index.

    Example:
        >>> def shortest(prompts, completions, **columns):
        ...     return [-len(text) for text in completions]
        >>> ranking = best_of_n(shortest, [{"image": "x.png", "candidates": ["a red circle", "a circle"]}])[0]
        >>> ranking.best.candidate, ranking.margin
        ('a circle', 4.0)
    """
    return list(
        rank_stream(as_reward(reward), (as_item(item, n) for n, item in enumerate(items)), batch_size=batch_size)
    )


def rank_stream(reward: Reward, items: Iterable[Item], *, batch_size: int = 128) -> Iterator[Ranking]:
    """As :func:`best_of_n`, holding one batch in memory at a time."""
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; at least 1 candidate at a time is needed")
    batch: list[Item] = []
    size = 0
    for item in items:
        if batch and (size + len(item.candidates) > batch_size or item.kind != batch[0].kind):
            yield from _rank_batch(reward, batch)
            batch, size = [], 0
        batch.append(item)
        size += len(item.candidates)
    if batch:
        yield from _rank_batch(reward, batch)


def _rank_batch(reward: Reward, items: Sequence[Item]) -> Iterator[Ranking]:
    twins = [_twins(item.candidates) for item in items]
    distinct = [
        replace(item, candidates=tuple(c for c, twin in zip(item.candidates, same, strict=True) if twin is None))
        for item, same in zip(items, twins, strict=True)
    ]
    for item, same, scores in zip(items, twins, _scores(reward, distinct), strict=True):
        fresh = iter(scores)
        by_index: list[Score] = []
        for twin in same:
            by_index.append(next(fresh) if twin is None else by_index[twin])
        yield rank(item, by_index, same)


def _scores(reward: Reward, items: Sequence[Item]) -> list[list[Score]]:
    """Scores of a batch; if the reward refuses it, item by item, so that one bad item does not spoil its neighbours."""
    _check(reward, items[0].kind)
    try:
        return score_items(reward, items)
    except InputError as error:
        if len(items) == 1:
            return [[Score(None, reason=str(error))] * len(items[0].candidates)]
        return [_scores(reward, [item])[0] for item in items]


def _check(reward: Reward, kind: str) -> None:
    """Refuse a reward that cannot rank such candidates at all."""
    if reward.remembers:
        raise InputError(f"{reward.__name__} ranks by what it saw before; use a reward with standardize='none'")
    if reward.judges == "texts" and kind == "pictures":
        raise InputError(f"{reward.__name__} ranks texts about a picture: give each item its image")
    if reward.judges == "pictures" and kind == "texts":
        raise InputError(f"{reward.__name__} ranks pictures of a prompt: give each item its prompt and no image")


def _twins(candidates: Sequence[object]) -> list[int | None]:
    """For each candidate the index of the first equal one, None for the first itself.

    Texts and paths are compared as they are. Pictures in memory are compared by identity only: hashing every picture
    to find a copy would cost more than it saves.
    """
    first: dict[object, int] = {}
    result: list[int | None] = []
    for index, candidate in enumerate(candidates):
        key = candidate if isinstance(candidate, str | bytes) else ("object", id(candidate))
        earlier = first.setdefault(key, index)
        result.append(None if earlier == index else earlier)
    return result
