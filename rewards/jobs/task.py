"""What a job does with its rows: the part that `score`, `rerank` and `tifa-bench` each bring along."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from rewards.jobs.index import IndexedItem
from rewards.jobs.sources import Source
from rewards.runs.files import Json

Line = Mapping[str, Json]
"""One object of a shard's file."""


class Worker(ABC):
    """A task with its rewards loaded, in the process and on the device where the work is done."""

    @abstractmethod
    def identity(self) -> Mapping[str, Json]:
        """What the rewards are, as JSON; compared with those that the job was started with."""

    @abstractmethod
    def lines(
        self, source: Source, items: Sequence[IndexedItem], lost: Sequence[tuple[int, str]], shard: str
    ) -> Iterable[Line]:
        """The lines of one shard.

        Args:
            source: where the rows are.
            items: the shard's items, as places in the source.
            lost: (line, reason) of rows of the shard that the scan found unusable.
            shard: what the shard is called in errors.

        Raises:
            RewardsError: the job must stop; nothing of the shard is committed.
        """


class Task(ABC):
    """A kind of job and its settings. Picklable: it travels to the processes that do the work.

    Attributes:
        name: of the kind.
        shard_size: items committed together; a killed run repeats one shard at most.
        key: the column that names items; None where rows are what they are by their place alone.
        grouped: rows with the same key make one item, wherever they stand.
    """

    name: str
    shard_size: int
    key: str | None = None
    grouped: bool = False

    @abstractmethod
    def settings(self, source: Source) -> Mapping[str, Json]:
        """What the lines depend on beside the content of the source and the rewards; compared on resumption."""

    def check(self, source: Source) -> None:  # noqa: B027 - most rows speak for themselves
        """Refuse a source that this task cannot work on, before a judge is loaded.

        Raises:
            InputError: what the source lacks.
        """

    @abstractmethod
    def start(self, device: str | None = None) -> Worker:
        """Load the rewards in this process.

        Args:
            device: for the judges, where the settings leave it open.
        """

    def devices(self) -> list[str | None]:
        """Devices of this machine, each of which gets a worker; None is the rewards' own default."""
        return [None]
