"""`rewards serve`: judges as an HTTP service."""

from __future__ import annotations

import os

import typer


def serve(
    judge: list[str] = typer.Option(
        ...,
        "--judge",
        help="Judge to serve (name, directory or preset); NAME=CHECKPOINT names it in the URL. Repeat for several.",
    ),
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; the default is reachable from this machine only."
    ),
    port: int = typer.Option(8008, help="Port to listen on."),
    device: list[str] = typer.Option(
        [], help="Device of the judges; default: the first GPU, else the CPU. Repeat for a replica on each."
    ),
    dtype: str | None = typer.Option(
        None, help="Such as bfloat16; default: float32 on the CPU, the checkpoint's own elsewhere."
    ),
    max_megabytes: int = typer.Option(64, help="Largest request."),
    max_rows: int = typer.Option(10_000, help="Most rows of a request."),
    max_megapixels: float = typer.Option(16.8, help="Largest picture; rows about a larger one abstain."),
    max_waiting: int = typer.Option(20_000, help="Rows that may wait for a judge; further requests get a 503."),
) -> None:
    """Serve judges over HTTP; `load_judge("http://HOST:PORT")` is the client.

    The environment variable REWARDS_JUDGE_TOKEN, where set, must be sent by callers as a bearer token; it is needed to
    listen beyond this machine. Requests that arrive together are judged together; /metrics is for Prometheus.
    """
    from rewards.errors import InputError, RewardsError

    try:
        import uvicorn

        from rewards.judges.elsewhere.bodies import Limits
        from rewards.judges.elsewhere.server import LOOPBACK, build_app
    except ImportError as error:
        raise RewardsError(
            f"{error.name} is missing: install readable-rewards[serve] (in a checkout: pip install '.[serve]')"
        ) from error
    from rewards.judges.batching import BatchingJudge
    from rewards.judges.elsewhere.client import TOKEN_ENV
    from rewards.judges.loading import load_judge

    token = os.environ.get(TOKEN_ENV) or None
    if token is None and host not in LOOPBACK:
        raise InputError(f"listening on {host} lets others in: set {TOKEN_ENV} to a secret first")
    judges = {}
    for entry in judge:
        name, _, checkpoint = entry.rpartition("=")
        name = name or _url_name(checkpoint)
        if name in judges:
            raise InputError(f"two judges are named {name!r}: write --judge NAME=CHECKPOINT")
        places: list[str | None] = [*device] or [None]
        replicas = [load_judge(checkpoint, device=place, dtype=dtype) for place in places]
        judges[name] = BatchingJudge(replicas, most_waiting=max_waiting)
    limits = Limits(bytes=max_megabytes * 1_000_000, rows=max_rows, pixels=int(max_megapixels * 1e6))
    app = build_app(judges, token=token, limits=limits, hosts=LOOPBACK if token is None else None)
    typer.echo(f"serving {', '.join(judges)} at http://{host}:{port}")
    uvicorn.run(app, host=host, port=port, log_level="warning")


def _url_name(checkpoint: str) -> str:
    last = checkpoint.rstrip("/").rpartition("/")[2]
    return "".join(character if character.isalnum() or character in "-_." else "-" for character in last)
