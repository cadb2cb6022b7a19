"""A job of reranking: work cut into shards, each committed by one atomic rename, so that any process may be killed.

A job's folder holds `manifest.json` (what the result depends on), `index.sqlite` (which rows make which item), and
`shards/000000.jsonl` for every finished shard. A shard's content depends on the manifest and the source only, so that
it does not matter who writes it, how often, or after how many deaths: a resumed job ends with the same bytes. Starting
a job in the folder of another one (another judge, prompts, questions, source or cut) is refused, with the difference
named.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rewards.errors import RewardsError
from rewards.rerank.index import Index, IndexedItem
from rewards.rerank.manifest import identities, known_manifest, portable, refuse_changes, write_manifest
from rewards.rerank.ranking import Ranking, Score, rank
from rewards.rerank.records import ranked_row
from rewards.rerank.rows import Parsed, parse_rows, unjudged
from rewards.rerank.selection import rank_stream
from rewards.rerank.settings import RerankSettings, build_rewards, local_devices, with_absolute_paths
from rewards.rerank.sources import Source, open_source
from rewards.runs.config import load_config

FORMAT = 1
# Fewer candidates than these say nothing about the judge: one broken folder of pictures would stop the job.
_LARGE = 200


@dataclass(frozen=True)
class Shard:
    """Items `start` to `stop - 1`; the last shard also reports rows after the last item."""

    number: int
    start: int
    stop: int
    last: bool


class Job:
    """A folder in which the candidates of one source are ranked.

    Open one with :func:`start_job`, or with the folder alone in a worker process.

    Args:
        folder: of a job that was started.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        self.settings = load_config(RerankSettings, overrides=self.manifest["settings"])
        self.source: Source = open_source(self.manifest["source"]["path"])
        self.index = Index(self.folder / "index.sqlite")
        self.items: int = self.manifest["source"]["items"]

    def shards(self) -> Iterator[Shard]:
        """All shards, finished or not. A source without items has one, for its problems."""
        size = self.settings.shard_size
        count = max(1, math.ceil(self.items / size))
        for number in range(count):
            yield Shard(number, number * size, min((number + 1) * size, self.items), number == count - 1)

    def missing(self) -> list[Shard]:
        """Shards that are not committed."""
        return [shard for shard in self.shards() if not self.path_of(shard).exists()]

    def path_of(self, shard: Shard) -> Path:
        """Where a shard's rows are once it is committed."""
        return self.folder / "shards" / f"{shard.number:06d}.jsonl"

    def rewards(self, device: str | None = None) -> tuple[Any, Any]:
        """The reward and the audit (or None), built in this process and checked against the manifest."""
        built = build_rewards(self.settings, device)
        refuse_changes(self.manifest["rewards"], identities(self.settings, built), "judge, prompts or questions")
        return built

    def run_shard(self, shard: Shard, rewards: tuple[Any, Any]) -> None:
        """Rank a shard's items and commit its rows.

        Raises:
            RewardsError: the reward abstained on more than `max_abstained` of a large shard; nothing is committed.
        """
        rows = list(self._rows(shard, *rewards))
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
        path = self.path_of(shard)
        partial = path.with_suffix(f".{os.uname().nodename}.{os.getpid()}.{shard.number}.tmp")
        with partial.open("w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def item_rows(self, seq: int) -> Parsed:
        """Read one item again, for outputs that need its picture."""
        return self._parse(next(self.index.items(seq, seq + 1)))

    def _rows(self, shard: Shard, reward: Any, audit: Any) -> Iterator[dict[str, Any]]:
        parsed = [(indexed, self._parse(indexed)) for indexed in self.index.items(shard.start, shard.stop)]
        usable = [(indexed, result) for indexed, result in parsed if result.item is not None]
        lost = self.index.problems(shard.start, shard.stop + shard.last)
        problems = [self._problem(line, None, reason, False) for line, reason in lost]
        for indexed, result in parsed:
            problems += self._problems(indexed, result)
        audited = _ranked(audit, usable, self.settings.batch_size) if audit is not None else None
        ranked: list[dict[str, Any]] = []
        verdicts: list[Score] = []
        for (indexed, result), ranking in zip(usable, _ranked(reward, usable, self.settings.batch_size), strict=True):
            for index, reason in unjudged(ranking, result.blocked):
                problems.append(self._problem(_line(indexed, index), ranking.item.id, reason, True))
            verdicts += [place.score for place in ranking.candidates if place.index not in result.blocked]
            other = next(audited) if audited is not None else None
            ranked.append(ranked_row(ranking, indexed.seq, indexed.rows[0][1], other))
        _refuse_failing_judge(verdicts, shard, self.settings.max_abstained)
        problems.sort(key=lambda problem: problem["line"])
        yield from ({"problem": problem} for problem in problems)
        yield from ranked

    def _problems(self, indexed: IndexedItem, result: Parsed) -> Iterator[dict[str, Any]]:
        ranked = result.item is not None
        identity = result.item.id if result.item is not None else indexed.key
        for index, reason in result.blocked.items():
            yield self._problem(_line(indexed, index), identity, f"candidate {index}: {reason}", ranked)
        for reason in result.notes:
            yield self._problem(indexed.rows[0][1], identity, reason, ranked)

    def _problem(self, line: int, identity: str | None, reason: str, ranked: bool) -> dict[str, Any]:
        return {"file": str(self.source.path), "line": line, "id": identity, "reason": reason, "ranked": ranked}

    def _parse(self, indexed: IndexedItem) -> Parsed:
        settings = self.settings
        try:
            rows = self.source.read([position for position, _ in indexed.rows])
        except (ValueError, RecursionError) as error:
            return Parsed(None, [f"cannot be read: {error}"], {})
        return parse_rows(
            rows,
            id=indexed.key if indexed.key is not None else f"line-{indexed.rows[0][1]}",
            folder=Path(settings.images) if settings.images is not None else self.source.path.parent,
            columns=settings.columns,
            max_text=settings.max_text,
            kind=settings.kind,
        )


def start_job(source: str | Path, folder: str | Path, settings: RerankSettings, device: str | None = None) -> Job:
    """Start a job in an empty folder, or go on with the same job.

    Args:
        source: a JSON lines or Parquet file, or a dataset folder.
        folder: of the job; made where absent.
        settings: of the job.
        device: for the judge, if the settings leave it open.

    Raises:
        InputError: the folder holds a job that differs, with the difference named; or a broken source.
    """
    folder = Path(folder)
    settings = with_absolute_paths(settings)  # judges on Ray have other working directories
    known = known_manifest(folder)
    opened = open_source(Path(source).absolute())
    key, grouped = settings.group_by or settings.columns.get("id", "id"), settings.group_by is not None
    # Everything that can be refused is refused before anything is written, and a missing column before a judge loads.
    next(opened.scan(key, required=grouped), None)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "source": {"path": str(opened.path), "fingerprint": opened.fingerprint()},
        "settings": asdict(settings),
        "rewards": _checked(settings, device),
    }
    if known is not None:
        refuse_changes(portable(known), portable(manifest), f"the job in {folder}")
    _make_folder(folder)
    try:
        manifest["source"]["items"] = Index(folder / "index.sqlite").build(opened, key=key, grouped=grouped)
    except BaseException:
        _remove_empty(folder)
        raise
    if manifest != known:
        write_manifest(folder, manifest)
    return Job(folder)


def _checked(settings: RerankSettings, device: str | None) -> dict[str, Any]:
    """Identities of the reward and the audit, which are loaded for it on the device where a local run finds them."""
    rewards = build_rewards(settings, device or local_devices(settings.reward)[0])
    found = identities(settings, rewards)
    for reward in rewards:
        # Ray's judges are other processes, perhaps on the same device: do not stand in their way.
        offload = getattr(getattr(reward, "judge", None), "offload", None)
        if offload is not None:
            offload()
    return found


def _make_folder(folder: Path) -> None:
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    for leftover in (folder / "shards").glob("*.tmp"):
        leftover.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    """Leave nothing behind of a job that never started."""
    for place in (folder / "shards", folder):
        with contextlib.suppress(OSError):
            place.rmdir()


def run_local(job: Job, on_shard: Any = None) -> None:
    """Finish a job on this machine: one worker a device, shards in any order.

    Args:
        job: from :func:`start_job`.
        on_shard: called after each committed shard, e.g. by a progress bar.
    """
    devices = local_devices(job.settings.reward)
    missing = job.missing()

    def work(number: int) -> None:
        rewards = job.rewards(devices[number])
        for shard in missing[number :: len(devices)]:
            job.run_shard(shard, rewards)
            if on_shard is not None:
                on_shard(shard)

    if len(devices) == 1:
        work(0)
        return
    with ThreadPoolExecutor(len(devices)) as pool:
        list(pool.map(work, range(len(devices))))


def _line(indexed: IndexedItem, index: int | None) -> int:
    """The line of a candidate: its own where rows are grouped, else that of its item."""
    return indexed.rows[index if index is not None and len(indexed.rows) > 1 else 0][1]


def _ranked(reward: Any, parsed: list[tuple[IndexedItem, Parsed]], batch_size: int) -> Iterator[Ranking]:
    """Rank items, keeping candidates that must not be judged away from the reward."""
    clean = []
    for _, result in parsed:
        assert result.item is not None
        kept = tuple(c for n, c in enumerate(result.item.candidates) if n not in result.blocked)
        clean.append(replace(result.item, candidates=kept))
    rankings = rank_stream(reward, (item for item in clean if item.candidates), batch_size=batch_size)
    for (_, result), item in zip(parsed, clean, strict=True):
        assert result.item is not None
        ranking = next(rankings) if item.candidates else None
        yield ranking if ranking is not None and not result.blocked else _with_blocked(result, ranking)


def _with_blocked(result: Parsed, ranking: Ranking | None) -> Ranking:
    assert result.item is not None
    allowed = [n for n in range(len(result.item.candidates)) if n not in result.blocked]
    scores = {n: Score(None, reason=reason) for n, reason in result.blocked.items()}
    same: dict[int, int | None] = {}
    for ranked in ranking.candidates if ranking is not None else ():
        scores[allowed[ranked.index]] = ranked.score
        same[allowed[ranked.index]] = None if ranked.same_as is None else allowed[ranked.same_as]
    count = len(result.item.candidates)
    return rank(result.item, [scores[n] for n in range(count)], [same.get(n) for n in range(count)])


def _refuse_failing_judge(verdicts: list[Score], shard: Shard, allowed: float) -> None:
    """A judge that fails throughout (a dead server, a broken checkpoint) must not fill the output with abstentions."""
    failed = [score.reason for score in verdicts if score.overall is None]
    if len(verdicts) >= _LARGE and len(failed) > allowed * len(verdicts):
        raise RewardsError(
            f"shard {shard.number}: the reward abstained on {len(failed)} of {len(verdicts)} candidates, more than "
            f"max_abstained={allowed:g}; the first reason: {failed[0]}"
        )
