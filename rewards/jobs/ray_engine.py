"""Jobs on Ray: a pool of judge actors, one device each, fed with shard numbers.

What travels through Ray is the number of a shard; an actor reads the job's folder, the source and the pictures from a
file system that all machines share, and commits its shard itself by the same atomic rename as the local engine. So the
rows are the same either way, memory on the driver does not grow with the data, and whatever dies (an actor, a node, the
driver) leaves whole shards behind. Ray Data streams the numbers, keeps each actor supplied with a few (back-pressure),
and starts a dead actor's shard again on another.

The driver loads the judge too, once, to write down which one it is; its default dtype is float32 without a GPU and the
checkpoint's own with one. Where only the judges have GPUs, name the dtype, or they are refused as other judges.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rewards.errors import InputError, RewardsError
from rewards.jobs.job import Job, Shard
from rewards.jobs.task import Task, Worker
from rewards.judges.loading import unload_judges

# Shards that wait at an actor while it works on one: enough to hide the scheduler, few enough to share out the rest.
_IN_FLIGHT = 2
# Deaths of a judge on one shard after which the job stops: Ray Data starts it again for ever, and a candidate that
# crashes its judge (out of memory, a fault in a kernel) would never be heard of.
_DEATHS = 4
# Tasks that Ray keeps a record of; with more shards than these a task holds several.
_BLOCKS = 2_000


class ShardWorker:
    """A judge in a process of its own; Ray calls it with batches of shard numbers.

    Args:
        folder: of the job, on a file system that all machines share.
        task: what is done with its rows.
    """

    def __init__(self, folder: str, task: Task) -> None:
        # The judge is the whole work of this process: one thread a CPU that Ray gave it, not one a core of the machine.
        import ray
        import torch

        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        torch.set_num_threads(max(1, int(cpus)))
        self.job = Job(folder, task)
        self.worker: Worker | None = None
        self.failure = ""
        try:
            self.worker = self.job.worker()
        except (RewardsError, OSError) as error:
            self.failure = f"a judge on {os.uname().nodename} cannot start: {error}"
        self.shards: dict[int, Shard] = {shard.number: shard for shard in self.job.shards()}

    def __call__(self, batch: dict[str, Any]) -> dict[str, object]:
        """Finish and commit the shards of a batch, unless another attempt has done so; an error goes back as text.

        Raised, it would make Ray print its own pages of advice and hide the one line that helps.
        """
        errors = [self._error(self.shards[number]) for number in batch["shard"].tolist()]
        return {**batch, "error": np.array(errors)}

    def _error(self, shard: Shard) -> str:
        """Finish a shard; "" or why it could not be finished."""
        if self.job.path_of(shard).exists():
            return ""
        if self.worker is None:
            return self.failure
        # Starts without an end are counted in a file, which outlives the process; a new run begins by removing it.
        starts = self.job.path_of(shard).with_suffix(".starts.tmp")
        with starts.open("ab") as file:
            file.write(b".")
        if starts.stat().st_size > _DEATHS:
            items = f"items {shard.start + 1} to {shard.stop}"
            return f"the judge died {_DEATHS} times on shard {shard.number} ({items} of {self.job.source.path})"
        try:
            self.job.run_shard(shard, self.worker)
        except (RewardsError, OSError) as error:
            return str(error) or type(error).__name__
        starts.unlink(missing_ok=True)
        return ""


def run_on_ray(
    job: Job,
    *,
    address: str | None = None,
    actors: int | None = None,
    gpus: float | None = None,
    cpus: float = 1,
    on_shard: Callable[[Shard], object] | None = None,
) -> None:
    """Finish a job on a Ray cluster. Judges that are resident in this process are unloaded: Ray's are other processes,
    perhaps on the same device.

    Args:
        job: from :func:`rewards.jobs.job.start_job`, in a folder that all machines see.
        address: of the cluster; None starts Ray on this machine, or joins one that runs here.
        actors: judges; default: one a GPU of the cluster, or without GPUs one a CPU.
        gpus: GPUs of each judge; default: 1 where the cluster has any. A fraction puts several judges on one.
        cpus: CPUs of each judge.
        on_shard: called after each committed shard.

    Raises:
        InputError: Ray is not installed, or the cluster lacks the devices asked for.
        RewardsError: a judge failed, or died four times on the same shard; what is committed stays. When the whole node
            dies, Ray itself ends this process after about a minute.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        needs = "engine ray needs Ray: install readable-rewards[ray] (in a checkout: pip install '.[ray]')"
        raise InputError(needs) from error
    shards = {shard.number: shard for shard in job.missing()}
    if not shards:
        return
    unload_judges()
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, **_local_options(address), logging_level=logging.WARNING)
        logging.getLogger("ray.data").setLevel(logging.WARNING)
    try:
        found = ray.cluster_resources()
        gpus = gpus if gpus is not None else (1 if found.get("GPU", 0) else 0)
        available = int(found.get("GPU", 0) / gpus) if gpus else int(found.get("CPU", 1) / cpus)
        wanted = actors if actors is not None else available
        if not 1 <= wanted <= available:
            raise InputError(
                f"{wanted} judges with {gpus} GPUs and {cpus} CPUs each do not fit: the cluster has "
                f"{found.get('GPU', 0):g} GPUs and {found.get('CPU', 0):g} CPUs"
            )
        _stream(ray, job, shards, min(wanted, len(shards)), gpus, cpus, on_shard)
    finally:
        if started:
            ray.shutdown()


def _stream(
    ray: Any,
    job: Job,
    shards: dict[int, Shard],
    count: int,
    gpus: float,
    cpus: float,
    on_shard: Callable[[Shard], object] | None,
) -> None:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    numbers = sorted(shards)
    dataset = ray.data.from_items(
        [{"shard": number} for number in numbers], override_num_blocks=min(len(numbers), _BLOCKS)
    )
    ranked = dataset.map_batches(
        ShardWorker,
        fn_constructor_args=(str(Path(job.folder).absolute()), job.task),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=_IN_FLIGHT),
        num_gpus=gpus,
        num_cpus=cpus,
        runtime_env={"env_vars": _environment()},
    )
    try:
        for row in ranked.iter_rows():
            if row["error"]:
                raise RewardsError(f"{row['error']}; finished shards are kept, run the job again to go on")
            if on_shard is not None:
                on_shard(shards[row["shard"]])
    except ray.exceptions.RayError as error:
        what = "a judge died: " if isinstance(error, ray.exceptions.RayActorError) else ""
        raise RewardsError(
            f"Ray: {what}{_cause(error)}; finished shards are kept, run the job again to go on"
        ) from error


def _local_options(address: str | None) -> dict[str, object]:
    """What only a Ray that this process starts takes."""
    return {"include_dashboard": False} if address is None else {}


def _environment() -> dict[str, str]:
    """Settings that a judge's process needs as this one has them."""
    kept = ("HF_HUB_OFFLINE", "HF_HOME", "TOKENIZERS_PARALLELISM", "PYTHONPATH", "OMP_NUM_THREADS")
    return {name: os.environ[name] for name in kept if name in os.environ}


def _cause(error: BaseException) -> str:
    # Not __cause__: Ray Data puts an empty SystemException of its own there.
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(cause).__name__
