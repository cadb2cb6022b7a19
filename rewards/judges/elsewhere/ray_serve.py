"""`rewards serve` on a cluster: Ray Serve starts, watches and scales the replicas; clients speak the same protocol.

    serve run rewards.judges.elsewhere.ray_serve:from_environment
    load_judge("http://HEAD:8000/rater")

Every replica is a process (or a GPU) of its own with the judges in it and a queue each, so that requests which arrive
together at a replica are judged together. A replica that dies is started again; requests that it held fail with a
status on which :class:`~rewards.judges.elsewhere.client.RemoteJudge` tries again. Needs `ray[serve]` and
`readable-rewards[serve]`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fastapi import FastAPI
from ray import serve

from rewards.errors import InputError
from rewards.judges.elsewhere.bodies import Limits
from rewards.judges.elsewhere.client import TOKEN_ENV
from rewards.judges.elsewhere.server import LOOPBACK, build_app

CHECKPOINTS_ENV = "REWARDS_JUDGES"
"""Environment variable with the judges of :func:`from_environment`: `NAME=CHECKPOINT`, separated by blanks."""


def application(
    checkpoints: Mapping[str, str],
    *,
    replicas: tuple[int, int] = (1, 1),
    waiting: float = 16,
    gpus: float = 0,
    dtype: str | None = None,
    limits: Limits | None = None,
    hosts: Sequence[str] | None = LOOPBACK,
) -> serve.Application:
    """The judges as a Ray Serve application.

    Args:
        checkpoints: Judge by its name in the URL; anything that :func:`rewards.load_judge` takes.
        replicas: Fewest and most replicas. Between them Ray Serve follows the load.
        waiting: Requests that are at work or wait at a replica when another one is started: about as many as make a
            good batch.
        gpus: GPUs of a replica; 0 runs on the CPU.
        dtype: As for :func:`rewards.load_judge`.
        limits: What a request may cost.
        hosts: As for :func:`rewards.judges.elsewhere.server.build_app`. With the token of :data:`TOKEN_ENV` any name
            will do.

    Example:
        >>> serve.run(application({"rater": "shapes-rater"}, replicas=(1, 4)))  # doctest: +SKIP
    """
    token = os.environ.get(TOKEN_ENV) or None

    def build() -> FastAPI:
        from rewards.judges.loading import load_judge

        device = "cuda" if gpus else "cpu"
        judges = {name: load_judge(checkpoint, device=device, dtype=dtype) for name, checkpoint in checkpoints.items()}
        return build_app(judges, token=token, limits=limits, hosts=None if token is not None else hosts)

    deployment = serve.deployment(
        name="judges",
        ray_actor_options={"num_gpus": gpus},
        max_ongoing_requests=256,
        autoscaling_config={
            "min_replicas": replicas[0],
            "max_replicas": replicas[1],
            "target_ongoing_requests": waiting,
        },
    )
    return deployment(serve.ingress(build)(Judges)).bind()


class Judges:
    """One replica: what answers is the service that is built in it."""


def from_environment(options: Mapping[str, str]) -> serve.Application:
    """The application of `serve run`, with `replicas=FEWEST-MOST`, `gpus=N` and `dtype=NAME` after it.

    Raises:
        InputError: :data:`CHECKPOINTS_ENV` names no judge.
    """
    entries = os.environ.get(CHECKPOINTS_ENV, "").split()
    if not entries or not all("=" in entry for entry in entries):
        raise InputError(f"set {CHECKPOINTS_ENV} to NAME=CHECKPOINT, separated by blanks; it is {' '.join(entries)!r}")
    fewest, _, most = options.get("replicas", "1-1").partition("-")
    return application(
        {name: checkpoint for name, _, checkpoint in (entry.partition("=") for entry in entries)},
        replicas=(int(fewest), int(most or fewest)),
        gpus=float(options.get("gpus", 0)),
        dtype=options.get("dtype"),
    )
