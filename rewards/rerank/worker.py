"""Items of a shard -> ranked items and reported rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rewards.jobs.guarded import Guarded
from rewards.jobs.index import IndexedItem
from rewards.jobs.sources import Source
from rewards.jobs.task import Line, Worker
from rewards.rerank.items import Item
from rewards.rerank.ranking import Ranking, Score, rank
from rewards.rerank.records import ranked_row
from rewards.rerank.rows import Parsed, unjudged
from rewards.rerank.selection import rank_stream
from rewards.rerank.settings import RerankSettings
from rewards.reward import Reward
from rewards.runs.files import Json

Problem = dict[str, Json]


class RerankWorker(Worker):
    """Ranks items by a reward, with an audit's scores beside.

    Args:
        settings: of the job.
        parse: reads an item.
        reward: what ranks.
        audit: what scores the same candidates and never ranks.
    """

    def __init__(
        self,
        settings: RerankSettings,
        parse: Callable[[Source, IndexedItem], Parsed],
        reward: Reward,
        audit: Reward | None,
    ) -> None:
        self.settings = settings
        self.parse = parse
        self.reward = Guarded(reward, settings.max_abstained)
        self.audit = Guarded(audit) if audit is not None else None

    def identity(self) -> Mapping[str, Json]:
        """See :meth:`Worker.identity`."""
        return {
            "reward": self.reward.identity(),
            "audit": self.audit.identity() if self.audit is not None else None,
        }

    def lines(
        self, source: Source, items: Sequence[IndexedItem], lost: Sequence[tuple[int, str]], shard: str
    ) -> Iterator[Line]:
        """See :meth:`Worker.lines`: `{"problem": ...}` by line, then ranked rows."""
        problems = [_problem(source, line, None, reason, ranked=False) for line, reason in lost]
        usable: list[tuple[IndexedItem, Item, Parsed]] = []
        for indexed in items:
            parsed = self.parse(source, indexed)
            problems += _problems(source, indexed, parsed)
            if parsed.item is not None:
                usable.append((indexed, parsed.item, parsed))
        rankings = _ranked(self.reward, usable, self.settings.batch_size)
        audited = _ranked(self.audit, usable, self.settings.batch_size) if self.audit is not None else None
        ranked: list[Line] = []
        verdicts: list[str | None] = []
        for at, (indexed, item, parsed) in enumerate(usable):
            ranking = rankings[at]
            for index, reason in unjudged(ranking, parsed.blocked):
                problems.append(_problem(source, _line(indexed, index), item.id, reason, ranked=True))
            verdicts += [_verdict(place.score) for place in ranking.candidates if place.index not in parsed.blocked]
            ranked.append(ranked_row(ranking, indexed.seq, indexed.rows[0][1], audited[at] if audited else None))
        self.reward.check(shard, verdicts)
        problems.sort(key=lambda problem: int(str(problem["line"])))
        yield from ({"problem": problem} for problem in problems)
        yield from ranked


def _problems(source: Source, indexed: IndexedItem, parsed: Parsed) -> Iterator[Problem]:
    ranked = parsed.item is not None
    identity = parsed.item.id if parsed.item is not None else indexed.key
    for index, reason in parsed.blocked.items():
        yield _problem(source, _line(indexed, index), identity, f"candidate {index}: {reason}", ranked)
    for reason in parsed.notes:
        yield _problem(source, indexed.rows[0][1], identity, reason, ranked)


def _problem(source: Source, line: int, identity: str | int | None, reason: str, ranked: bool) -> Problem:
    return {"file": str(source.path), "line": line, "id": identity, "reason": reason, "ranked": ranked}


def _line(indexed: IndexedItem, index: int | None) -> int:
    """The line of a candidate: its own where rows are grouped, else that of its item."""
    return indexed.rows[index if index is not None and len(indexed.rows) > 1 else 0][1]


def _verdict(score: Score) -> str | None:
    return None if score.overall is not None else score.reason or "no reason given"


def _ranked(reward: Reward, usable: Sequence[tuple[IndexedItem, Item, Parsed]], batch_size: int) -> list[Ranking]:
    """Rank items, keeping candidates that must not be judged away from the reward."""
    clean = [
        replace(item, candidates=tuple(c for n, c in enumerate(item.candidates) if n not in parsed.blocked))
        for _, item, parsed in usable
    ]
    rankings = rank_stream(reward, (item for item in clean if item.candidates), batch_size=batch_size)
    found = [next(rankings) if item.candidates else None for item in clean]
    return [
        ranking if ranking is not None and not parsed.blocked else _with_blocked(item, parsed.blocked, ranking)
        for (_, item, parsed), ranking in zip(usable, found, strict=True)
    ]


def _with_blocked(item: Item, blocked: Mapping[int, str], ranking: Ranking | None) -> Ranking:
    allowed = [n for n in range(len(item.candidates)) if n not in blocked]
    scores = {n: Score(None, reason=reason) for n, reason in blocked.items()}
    same: dict[int, int | None] = {}
    for ranked in ranking.candidates if ranking is not None else ():
        scores[allowed[ranked.index]] = ranked.score
        same[allowed[ranked.index]] = None if ranked.same_as is None else allowed[ranked.same_as]
    count = range(len(item.candidates))
    return rank(item, [scores[n] for n in count], [same.get(n) for n in count])
