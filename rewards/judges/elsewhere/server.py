"""The HTTP service of `rewards serve`: judges for processes that cannot hold one themselves.

Protocol: `GET /health` describes the judges. `POST /judges/NAME/ABILITY` takes JSON
`{"pictures": {key: base64 of an encoded picture}, "rows": [{"pictures": [key], "prompt": str, ...}]}` and answers
`{"rows": [...]}`, one object a row. Numbers that JSON lacks are written as in :mod:`rewards.judges.elsewhere.wire`.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rewards.errors import InputError
from rewards.judges.base import DEFAULT_RATINGS, Judge, UnsupportedAbility
from rewards.judges.elsewhere.wire import PROTOCOL, read_picture, write_numbers

logger = logging.getLogger(__name__)


class Row(BaseModel):
    """One row of a request; what is read beside the prompt depends on the ability."""

    model_config = ConfigDict(extra="forbid")
    pictures: list[str] = Field(min_length=1)
    prompt: str
    choices: list[str] = []
    rating: str = ""


class Body(BaseModel):
    """A request."""

    model_config = ConfigDict(extra="forbid")
    pictures: dict[str, str]
    rows: list[Row]
    ratings: list[str] = list(DEFAULT_RATINGS)


def build_app(
    judges: Mapping[str, Judge], *, token: str | None = None, max_bytes: int = 64_000_000, max_rows: int = 10_000
) -> FastAPI:
    """The service for some judges.

    Args:
        judges: By the name in the URL.
        token: Callers must send it as a bearer token; None lets everyone in who reaches the port.
        max_bytes: Largest request body.
        max_rows: Most rows of a request.

    Example:
        >>> app = build_app({"vqa": judge})  # doctest: +SKIP
    """
    app = FastAPI(title="rewards", docs_url=None, redoc_url=None, openapi_url=None)
    # A judge works on one request at a time: two would share its device's memory, and some keep state between calls.
    locks = {name: threading.Lock() for name in judges}

    def authorise(request: Request) -> None:
        sent = request.headers.get("authorization", "")
        if token is not None and not hmac.compare_digest(sent.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "a bearer token is needed")

    @app.get("/health")
    def health(request: Request) -> dict[str, Any]:
        authorise(request)
        described = {
            name: {"name": judge.name, "identity": judge.identity(), "prompts": judge.prompts}
            for name, judge in judges.items()
        }
        return {"status": "ok", "protocol": PROTOCOL, "judges": described}

    @app.post("/judges/{name}/{ability}")
    async def judge_rows(name: str, ability: str, request: Request) -> JSONResponse:
        authorise(request)
        if name not in judges or ability not in _ABILITIES:
            raise HTTPException(404, f"no {ability!r} of a judge {name!r} here; judges: {', '.join(judges)}")
        body = await _read_body(request, max_bytes, max_rows)

        def work() -> dict[str, Any]:
            with locks[name]:
                return _ABILITIES[ability](judges[name], body)

        try:
            return JSONResponse(await run_in_threadpool(work))
        except UnsupportedAbility as error:
            return JSONResponse({"unsupported": str(error)})
        except InputError as error:
            raise HTTPException(422, str(error)) from error
        except Exception as error:
            # The same rows would fail again: a status that clients do not retry, and the traceback in the server's log.
            logger.exception("judge %s failed on a request of %d rows", name, len(body.rows))
            raise HTTPException(422, f"the judge failed: {type(error).__name__}: {error}") from error

    return app


async def _read_body(request: Request, max_bytes: int, max_rows: int) -> Body:
    received = bytearray()
    async for part in request.stream():  # counted while it arrives: the length in the header may lie
        received += part
        if len(received) > max_bytes:
            raise HTTPException(413, f"the request is larger than {max_bytes} bytes")
    try:
        body = Body.model_validate_json(bytes(received))
    except ValueError as error:
        raise HTTPException(422, f"not a request: {str(error)[:500]}") from error
    if len(body.rows) > max_rows:
        raise HTTPException(413, f"the request has {len(body.rows)} rows; at most {max_rows} are taken")
    missing = {key for row in body.rows for key in row.pictures} - set(body.pictures)
    if missing:
        raise HTTPException(422, f"rows name pictures that are not there: {sorted(missing)[:3]}")
    return body


def _images(body: Body) -> list[Any]:
    decoded = {key: read_picture(text, index) for index, (key, text) in enumerate(body.pictures.items())}
    rows: list[Any] = []
    for row in body.rows:
        several = [decoded[key] for key in row.pictures]
        rows.append(several[0] if len(several) == 1 else several)
    return rows


def _prompts(body: Body) -> list[str]:
    return [row.prompt for row in body.rows]


def _rate(judge: Judge, body: Body) -> dict[str, Any]:
    found = judge.rate(_images(body), _prompts(body), body.ratings)
    reasons: Sequence[str | None] = found.reasons or (None,) * len(body.rows)
    rows = [{"probabilities": write_numbers(row), "reason": why} for row, why in zip(found.probabilities, reasons)]
    return {"rows": rows}


def _answer(judge: Judge, body: Body) -> dict[str, Any]:
    return {"rows": [{"answer": text} for text in judge.answer(_images(body), _prompts(body))]}


def _choose(judge: Judge, body: Body) -> dict[str, Any]:
    found = judge.choose(_images(body), _prompts(body), [row.choices for row in body.rows])
    return {"rows": [{"scores": write_numbers(scores)} for scores in found]}


def _explain(judge: Judge, body: Body) -> dict[str, Any]:
    found = judge.explain(_images(body), _prompts(body), [row.rating for row in body.rows])
    return {"rows": [{"answer": text} for text in found]}


_ABILITIES: dict[str, Callable[[Judge, Body], dict[str, Any]]] = {
    "rate": _rate, "answer": _answer, "choose": _choose, "explain": _explain,
}  # fmt: skip
