"""A job: work on rows, cut into shards, each committed by one atomic rename, so that any process may be killed.

A job's folder holds `manifest.json` (what the lines depend on), `index.sqlite` (which rows make which item), and
`shards/000000.jsonl` for every finished shard. A shard's content depends on the manifest and the source only, so that
it does not matter who writes it, how often, or after how many deaths: a resumed job ends with the same bytes. Starting
a job in the folder of another one (another judge, prompts, questions, source or cut) is refused, with the difference
named, before anything is written.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from filelock import FileLock

from rewards.errors import InputError
from rewards.jobs.index import Index
from rewards.jobs.manifest import OWN_FILES, Identity, Manifest, mark_folder, read_manifest, write_manifest
from rewards.jobs.sources import Source, open_source
from rewards.jobs.task import Task, Worker
from rewards.runs.files import Row, numbered_lines, write_lines
from rewards.runs.identity import as_json, check_same
from rewards.runs.locks import locked


@dataclass(frozen=True)
class Shard:
    """Items `start` to `stop - 1`; the last shard also reports rows after the last item."""

    number: int
    start: int
    stop: int
    last: bool


class Job:
    """A folder in which a task is done on the rows of one source.

    :func:`start_job` makes one; a process that helps opens it with the folder and the task.

    Args:
        folder: of a job that was started.
        task: what is done with the rows.
        lock: of the process that started it; released by :meth:`close`, or when the job is a context that ends.
    """

    def __init__(self, folder: str | Path, task: Task, lock: FileLock | None = None) -> None:
        self.folder = Path(folder)
        self.task = task
        manifest = read_manifest(self.folder, task.name)
        if manifest is None:
            raise InputError(f"{self.folder} holds no job")
        self.identity = manifest.identity
        self.items = manifest.items
        self.source = open_source(manifest.path)
        self.index = Index(self.folder / "index.sqlite")
        self._lock = lock

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes work on the folder."""
        if self._lock is not None:
            self._lock.release()

    def shards(self) -> Iterator[Shard]:
        """All shards, finished or not. A source without items has one, for its problems."""
        size = self.task.shard_size
        count = max(1, math.ceil(self.items / size))
        for number in range(count):
            yield Shard(number, number * size, min((number + 1) * size, self.items), number == count - 1)

    def missing(self) -> list[Shard]:
        """Shards that are not committed."""
        return [shard for shard in self.shards() if not self.path_of(shard).exists()]

    def path_of(self, shard: Shard) -> Path:
        """Where a shard's lines are once it is committed."""
        return self.folder / "shards" / f"{shard.number:06d}.jsonl"

    def worker(self, device: str | None = None) -> Worker:
        """The task with its rewards loaded in this process and compared with those of the manifest."""
        worker = self.task.start(device)
        check_same({"rewards": self.identity.rewards}, {"rewards": as_json(worker.identity())}, str(self.folder))
        return worker

    def run_shard(self, shard: Shard, worker: Worker) -> None:
        """Do a shard's work and commit its lines.

        Raises:
            RewardsError: the task stops the job; nothing is committed.
        """
        items = list(self.index.items(shard.start, shard.stop))
        lost = self.index.problems(shard.start, shard.stop + shard.last)
        write_lines(self.path_of(shard), list(worker.lines(self.source, items, lost, f"shard {shard.number}")))

    def lines(self) -> Iterator[Row]:
        """The lines of all shards, in the order of the source.

        Raises:
            InputError: shards are missing.
        """
        if missing := self.missing():
            raise InputError(f"{self.folder}: {len(missing)} shards are not finished; run the job again")
        for shard in self.shards():
            for _, line in numbered_lines(self.path_of(shard)):
                yield line


@dataclass(frozen=True)
class Plan:
    """A job that has not begun: nothing is written yet.

    Attributes:
        source, task: the rows, and what is done with them.
        identity: what the lines depend on.
    """

    source: Source
    task: Task
    identity: Identity


def plan_job(source: str | Path, task: Task, device: str | None = None) -> Plan:
    """Find out whether a job can be done and what its lines depend on.

    Args:
        source: the rows, see :func:`rewards.jobs.sources.open_source`.
        task: what is done with the rows; its rewards are loaded to know which they are.
        device: for the judge, if the settings leave it open.

    Raises:
        InputError: the source is broken, has no rows, or is not what the task needs; or the rewards cannot be built.
    """
    opened = open_source(Path(source).absolute())
    task.check(opened)
    if next(opened.entries(None), None) is None:
        raise InputError(f"{opened.path} has no rows")
    # On the device where a local run finds them again.
    rewards = task.start(device or task.devices()[0]).identity()
    identity = Identity(task.name, opened.fingerprint(), as_json(task.settings(opened)), as_json(rewards))
    return Plan(opened, task, identity)


def claim(folder: Path, task: str) -> FileLock:
    """Make a folder for a job, or take the one of the same task, and lock it.

    Raises:
        InputError: it holds something else, or another process works in it.
    """
    begun = read_manifest(folder, task) is not None
    folder.mkdir(parents=True, exist_ok=True)
    lock = locked(folder)
    try:
        if not begun and read_manifest(folder, task) is not None:
            raise InputError(f"another process has just begun a job in {folder}; run the command again")
        mark_folder(folder, task)
        (folder / "shards").mkdir(exist_ok=True)
    except BaseException:
        lock.release()
        raise
    return lock


def start_job(plan: Plan, folder: str | Path, lock: FileLock | None = None) -> Job:
    """Begin a planned job in a new or empty folder, or go on with it.

    Args:
        plan: from :func:`plan_job`.
        folder: of the job; made where absent, and locked until the job is closed.
        lock: of the folder, where the caller holds it already.

    Raises:
        InputError: the folder holds a job that differs, with the difference named; it belongs to something else, or
            another process works on it.
    """
    folder = Path(folder)
    known = read_manifest(folder, plan.task.name)
    if known is not None:
        check_same(asdict(known.identity), asdict(plan.identity), f"the job in {folder}")
    lock = lock or claim(folder, plan.task.name)
    try:
        return _begin(folder, plan, known, lock)
    except BaseException:
        lock.release()
        raise


def refuse_other_work(folder: Path, task: str) -> None:
    """Refuse a folder that holds something else, or in which another process works, before a judge is loaded.

    Raises:
        InputError: either.
    """
    if read_manifest(folder, task) is not None:
        locked(folder).release()


def _begin(folder: Path, plan: Plan, known: Manifest | None, lock: FileLock) -> Job:
    for leftover in (folder / "shards").glob("*.tmp"):
        leftover.unlink(missing_ok=True)
    try:
        items = Index(folder / "index.sqlite").build(plan.source, key=plan.task.key, grouped=plan.task.grouped)
    except BaseException:
        if known is None:  # what an earlier run has finished stays
            remove_job(folder)
        raise
    begun = Manifest(plan.identity, str(plan.source.path), items)
    if begun != known:
        write_manifest(folder, begun)
    return Job(folder, plan.task, lock)


def remove_job(folder: Path) -> None:
    """Remove a job's own files, the manifest last, and the folders unless something else is in them."""
    for pattern in OWN_FILES:
        for path in folder.glob(pattern):
            if path.is_dir():
                with contextlib.suppress(OSError):
                    path.rmdir()
            else:
                path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def run_local(job: Job, on_shard: Callable[[Shard], object] | None = None) -> None:
    """Finish a job on this machine: one worker a device, shards in any order.

    Args:
        job: from :func:`start_job`.
        on_shard: called after each committed shard, e.g. by a progress bar.
    """
    missing = job.missing()
    if not missing:
        return
    devices = job.task.devices()

    def work(number: int) -> None:
        worker = job.worker(devices[number])
        for shard in missing[number :: len(devices)]:
            job.run_shard(shard, worker)
            if on_shard is not None:
                on_shard(shard)

    if len(devices) == 1:
        work(0)
        return
    with ThreadPoolExecutor(len(devices)) as pool:
        list(pool.map(work, range(len(devices))))
