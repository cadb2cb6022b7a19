"""Who does the work of a job: this machine or a Ray cluster. The rows are the same either way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rewards.errors import InputError
from rewards.rerank.job import Job, Shard, run_local


@dataclass(frozen=True)
class Engine:
    """Where a job's shards are ranked; nothing in the result depends on it.

    Attributes:
        name: "local", all devices of this machine, or "ray".
        address: of a Ray cluster; None starts Ray on this machine, or joins one that runs here.
        actors: judges on Ray; default: one a GPU of the cluster, or without GPUs one a CPU.
        gpus: GPUs of each judge on Ray; default: 1 where there are any.
    """

    name: str = "local"
    address: str | None = None
    actors: int | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ("local", "ray"):
            raise InputError(f"engine is {self.name!r}; local or ray is needed")
        for name in ("address", "actors", "gpus"):
            if self.name == "local" and getattr(self, name) is not None:
                raise InputError(f"{name} is {getattr(self, name)!r}, which needs engine ray")

    def finish(self, job: Job, on_shard: Callable[[Shard], Any] | None = None) -> None:
        """Rank what is missing of a job.

        Args:
            job: from :func:`rewards.rerank.job.start_job`.
            on_shard: called after each committed shard.
        """
        if self.name == "local":
            run_local(job, on_shard)
            return
        from rewards.rerank.ray_engine import run_on_ray

        run_on_ray(job, address=self.address, actors=self.actors, gpus=self.gpus, on_shard=on_shard)
