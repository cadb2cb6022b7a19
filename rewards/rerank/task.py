"""Reranking as a job: items in, ranked items and reported rows out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rewards.build import build_reward, judge_devices
from rewards.jobs.index import IndexedItem
from rewards.jobs.job import Job, plan_job, refuse_other_work, start_job
from rewards.jobs.rewards import checklist_columns, described
from rewards.jobs.sources import Source
from rewards.jobs.task import Task, Worker
from rewards.rerank.rows import Parsed, parse_rows
from rewards.rerank.settings import RerankSettings
from rewards.rerank.worker import RerankWorker
from rewards.runs.files import Json


class RerankTask(Task):
    """Rank the candidates of every item of a source.

    Args:
        settings: of the job; relative paths are those of this process, whichever does the work.
    """

    name = "rerank"
    key: str

    def __init__(self, settings: RerankSettings) -> None:
        self.chosen = settings.placed()
        self.shard_size = settings.shard_size
        self.key = settings.group_by or settings.columns.get("id", "id")
        self.grouped = settings.group_by is not None

    def settings(self, source: Source) -> Mapping[str, Json]:
        """See :meth:`Task.settings`. The path of the source belongs to it: rows name their pictures in full."""
        chosen = self.chosen
        named = ("group_by", "images", "columns", "shard_size", "batch_size", "max_text")
        return {
            **{name: getattr(chosen, name) for name in named},
            "reward": described(chosen.reward),
            "audit": described(chosen.audit) if chosen.audit is not None else None,
            "source": str(source.path),
        }

    def check(self, source: Source) -> None:
        """See :meth:`Task.check`."""
        names = [self.chosen.columns.get(name, name) for name in ("candidates", "candidate", "folder")]
        rewards = [reward for reward in (self.chosen.reward, self.chosen.audit) if reward is not None]
        checklists = [group for reward in rewards for group in checklist_columns(reward)]
        source.check_columns(names, *([[self.key]] if self.grouped else []), *checklists)

    def start(self, device: str | None = None) -> Worker:
        """See :meth:`Task.start`."""
        audit = build_reward(self.chosen.audit, device) if self.chosen.audit is not None else None
        return RerankWorker(self.chosen, self.parse, build_reward(self.chosen.reward, device), audit)

    def devices(self) -> list[str | None]:
        """See :meth:`Task.devices`."""
        return judge_devices(self.chosen.reward)

    def parse(self, source: Source, indexed: IndexedItem) -> Parsed:
        """Read an item's rows."""
        try:
            rows = source.read([position for position, _ in indexed.rows])
        except ValueError as error:
            return Parsed(None, [f"cannot be read: {error}"], {})
        return parse_rows(
            rows,
            id=indexed.key if indexed.key is not None else f"line-{indexed.rows[0][1]}",
            folder=Path(self.chosen.images) if self.chosen.images is not None else source.path.parent,
            columns=self.chosen.columns,
            max_text=self.chosen.max_text,
            kind=self.chosen.kind,
        )


def read_item(job: Job, seq: int) -> Parsed:
    """Read one item of a job of reranking again, for outputs that need its picture."""
    assert isinstance(job.task, RerankTask)
    return job.task.parse(job.source, next(job.index.items(seq, seq + 1)))


def start_rerank(source: str | Path, folder: str | Path, settings: RerankSettings, device: str | None = None) -> Job:
    """Start a job of reranking, or go on with it; see :func:`rewards.jobs.job.start_job`."""
    task = RerankTask(settings)
    refuse_other_work(Path(folder), task.name)  # before a judge is loaded
    return start_job(plan_job(source, task, device), folder)
