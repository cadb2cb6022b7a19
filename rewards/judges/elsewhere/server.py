"""The HTTP service of `rewards serve`: judges for processes that cannot hold one themselves.

Protocol: `GET /health` describes the judges. `POST /judges/NAME/ABILITY` takes JSON
`{"pictures": {key: base64 of an encoded picture}, "rows": [{"pictures": [key], "prompt": str, ...}]}` and answers
`{"rows": [...]}`, one object a row. Numbers that JSON lacks are written as in :mod:`rewards.judges.elsewhere.wire`.
`GET /metrics` is for Prometheus.

Requests that arrive together are judged together (:mod:`rewards.judges.batching`). While a judge works, the event loop
only receives, so that `/health` answers at once, and a request that finds the queue full is sent away with 503.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import SplitResult, urlsplit

import torch
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from rewards.errors import InputError
from rewards.images import Picture
from rewards.judges.base import Ability, Judge, Ratings, UnsupportedAbility
from rewards.judges.batching import BatchingJudge, Call, Outcome, QueueFull
from rewards.judges.elsewhere.bodies import (
    Body,
    Limits,
    Refused,
    as_images,
    decoding,
    give_memory_back,
    read_bytes,
    read_rows,
)
from rewards.judges.elsewhere.exposition import exposition
from rewards.judges.elsewhere.wire import PROTOCOL, write_numbers
from rewards.runs.files import Json

logger = logging.getLogger(__name__)

ABILITIES: tuple[Ability, ...] = ("rate", "answer", "choose", "mass", "explain")

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""The names under which this machine reaches itself."""

LARGE = 4_000_000
"""Bytes of a request after which memory is given back."""


def build_app(
    judges: Mapping[str, Judge],
    *,
    token: str | None = None,
    limits: Limits | None = None,
    hosts: Sequence[str] | None = LOOPBACK,
) -> FastAPI:
    """The service for some judges.

    Args:
        judges: By the name in the URL. A :class:`BatchingJudge` is used as it is; any other gets a queue of its own.
        token: Callers must send it as a bearer token; None lets everyone in who reaches the port.
        limits: What a request may cost.
        hosts: Names under which the service may be called (the `Host` header): a page in a browser must not reach it by
            a name of its own. None where a token keeps strangers out.

    Example:
        >>> app = build_app({"vqa": judge})  # doctest: +SKIP
    """
    limits = limits or Limits()
    queues = {name: one if isinstance(one, BatchingJudge) else BatchingJudge(one) for name, one in judges.items()}
    described: dict[str, Json] = {
        name: {
            "name": judge.name,
            "identity": judge.identity(),
            "prompts": judge.prompts,
            "abilities": sorted(judge.abilities.intersection(ABILITIES)),
            "one_word": judge.one_word,
        }
        for name, judge in queues.items()
    }
    room = _Room(2 * limits.bytes)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        for queue in queues.values():
            await asyncio.to_thread(queue.close)

    app = FastAPI(title="rewards", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)

    def admit(request: Request) -> None:
        """Refuse strangers, and pages in a browser that this service is none of the business of."""
        host = _parts(f"//{request.headers.get('host', '')}").hostname
        if hosts is not None and host not in hosts:
            raise HTTPException(403, f"this service is not called {host!r}")
        origin = request.headers.get("origin")
        if origin is not None and _parts(origin).netloc != request.headers.get("host"):
            raise HTTPException(403, "requests from other sites are refused")
        sent = request.headers.get("authorization", "")
        if token is not None and not hmac.compare_digest(sent.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "a bearer token is needed")

    @app.get("/health")
    async def health(request: Request) -> JSONResponse:
        admit(request)
        return JSONResponse({"status": "ok", "protocol": PROTOCOL, "judges": described})

    @app.get("/metrics")
    async def metrics(request: Request) -> PlainTextResponse:
        admit(request)
        return PlainTextResponse(exposition({name: queue.counts for name, queue in queues.items()}))

    @app.post("/judges/{name}/{ability}")
    async def judge_rows(name: str, ability: str, request: Request) -> Response:
        admit(request)
        if name not in queues or ability not in ABILITIES:
            raise HTTPException(404, f"no {ability!r} of a judge {name!r} here; judges: {', '.join(queues)}")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            # A page in a browser may send text, forms and bodies without a type to other sites unasked; not JSON.
            raise HTTPException(415, f"expected the Content-Type application/json, got {kind or 'none'}")
        try:
            async with room.for_request(request) as hold:
                received = await read_bytes(request.stream(), limits, hold)
                large, loop = len(received) > LARGE, asyncio.get_running_loop()
                with queues[name].expected():
                    try:
                        body, pictures = await loop.run_in_executor(decoding, read_rows, received, limits)
                    finally:
                        if large:
                            await loop.run_in_executor(decoding, give_memory_back)
                    asked = _submitted(queues[name], cast(Ability, ability), body, pictures)
                return await _answered(asked, cast(Ability, ability), body, pictures, request)
        except Refused as error:
            raise HTTPException(error.status, error.detail) from error
        except QueueFull as error:
            raise HTTPException(503, str(error), {"Retry-After": f"{error.retry_after:.0f}"}) from error
        except UnsupportedAbility as error:
            return JSONResponse({"unsupported": str(error)})
        except InputError as error:
            raise HTTPException(422, str(error)) from error
        except Exception as error:
            # The same rows would fail again: a status that clients do not retry, and the traceback in the server's log.
            logger.exception("judge %s failed", name)
            raise HTTPException(422, f"the judge failed: {type(error).__name__}: {error}") from error

    return app


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # "[" that is not closed
        raise HTTPException(403, "a Host or Origin that is no address") from error


class _Room:
    """Bytes of requests that are held at a time: callers beyond them are sent away before they are read, or while they
    are where they did not say how long they are (chunked requests)."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held = 0

    @asynccontextmanager
    async def for_request(self, request: Request) -> AsyncIterator[Callable[[int], None]]:
        """What is to be called with the bytes that have arrived; they are let go of at the end."""
        told = request.headers.get("content-length", "0")
        if not (told.isascii() and told.isdecimal()):
            raise Refused(422, "the length of the request is not a number")
        mine = 0

        def hold(size: int) -> None:
            nonlocal mine
            others = self._held - mine
            if others and others + size > self.most:
                raise QueueFull(others, 1.0)
            self._held, mine = others + max(mine, size), max(mine, size)

        try:
            hold(int(told))
            yield hold
        finally:
            self._held -= mine


def _submitted(
    queue: BatchingJudge, ability: Ability, body: Body, pictures: list[list[Picture] | InputError]
) -> Future[Outcome] | None:
    """What the judge will make of the rows that have pictures; None where there are none."""
    queue.replicas[0].require(ability)
    rows = [row for row, read in zip(body.rows, pictures) if not isinstance(read, InputError)]
    if not rows:
        return None
    call = Call(
        ability,
        as_images([row for row in pictures if not isinstance(row, InputError)]),
        [row.prompt for row in rows],
        tuple(body.ratings) if ability == "rate" else tuple(row.rating for row in rows),
        [row.choices for row in rows],
    )
    return queue.submit(call)


async def _answered(
    asked: Future[Outcome] | None,
    ability: Ability,
    body: Body,
    pictures: list[list[Picture] | InputError],
    request: Request,
) -> Response:
    found: Outcome = []
    if asked is not None:
        outcome = asyncio.wrap_future(asked)
        left = asyncio.ensure_future(_disconnected(request))
        left.add_done_callback(lambda _: outcome.cancel())  # a batch at work goes on; one that waits does without
        try:
            found = await outcome
        except asyncio.CancelledError:
            if not left.done():
                raise
            return Response(status_code=499)
        finally:
            left.cancel()
    written = iter(_written(found))
    answers = [_abstained(row, ability, body, at) if isinstance(row, InputError) else next(written)
               for at, row in enumerate(pictures)]  # fmt: skip
    return JSONResponse({"rows": answers})


async def _disconnected(request: Request) -> None:
    """Returns when the client has left, told by its connection: a call costs nothing while it waits."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _written(found: Outcome) -> list[dict[str, Json]]:
    """One object a row."""
    if isinstance(found, Ratings):
        reasons = found.reasons or (None,) * len(found.probabilities)
        unseen = write_numbers(found.unseen) if found.unseen is not None else [None] * len(reasons)
        return [
            {"probabilities": write_numbers(row), "reason": why, "unseen": hidden}
            for row, why, hidden in zip(found.probabilities, reasons, unseen)
        ]
    if isinstance(found, torch.Tensor):
        return [{"mass": one} for one in write_numbers(found)]
    return [{"answer": one} if one is None or isinstance(one, str) else {"scores": write_numbers(one)} for one in found]


def _abstained(error: InputError, ability: Ability, body: Body, at: int) -> dict[str, Json]:
    if ability == "rate":
        return {"probabilities": cast(Json, [None] * len(body.ratings)), "reason": str(error), "unseen": None}
    if ability == "choose":
        return {"scores": cast(Json, [None] * len(body.rows[at].choices)), "reason": str(error)}
    return {"mass" if ability == "mass" else "answer": None, "reason": str(error)}
