"""Who does the work of a job: this machine or a Ray cluster. The rows are the same either way."""

from __future__ import annotations

from dataclasses import dataclass

from rewards.errors import InputError
from rewards.jobs.job import Job, run_local


@dataclass(frozen=True)
class Engine:
    """Where a job's shards are worked on; nothing in the result depends on it.

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

    def finish(self, job: Job, title: str) -> None:
        """Do what is missing of a job, with a progress bar.

        Args:
            job: from :func:`rewards.jobs.job.start_job`.
            title: of the bar.
        """
        from tqdm import tqdm

        total, missing = sum(1 for _ in job.shards()), len(job.missing())
        with tqdm(total=total, initial=total - missing, unit="shard", desc=title) as bar:
            if self.name == "local":
                run_local(job, lambda _: bar.update())
                return
            from rewards.jobs.ray_engine import run_on_ray

            run_on_ray(job, address=self.address, actors=self.actors, gpus=self.gpus, on_shard=lambda _: bar.update())
