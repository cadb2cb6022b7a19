"""Requests to a judge elsewhere: retried while that can help, within a budget and a deadline, and never for ever."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

import httpx

from rewards.errors import InputError, RewardsError
from rewards.runs.files import Json

logger = logging.getLogger(__name__)
T = TypeVar("T")

Answer: TypeAlias = dict[str, Any]
"""A JSON object from a server. Whoever reads it reckons with every shape."""

RETRIED_STATUSES = (408, 409, 425, 429, 500, 502, 503, 504, *range(520, 531), 598, 599)
"""What may pass; 520 to 530, 598 and 599 are the words of proxies for a server that is down, slow or overloaded."""

FIRST_WAIT, LONGEST_WAIT = 0.25, 20.0
"""Seconds before the first retry, doubled for each further one up to the longest; half of each wait is random."""


LARGEST_ANSWER = 64_000_000
"""Bytes of an answer, unpacked; a server that sends more is broken or hostile."""


class GaveUp(RewardsError):
    """A request was not answered before its deadline, or the server refused it; the row abstains."""


class Budget:
    """At most so many requests and tokens in a minute, over all threads.

    Args:
        requests: Most requests in a window; None for no limit.
        tokens: Most tokens in a window; None for no limit. A single request above it still passes, alone.
        window: Length of the window in seconds.
    """

    def __init__(self, requests: int | None, tokens: int | None, window: float = 60.0) -> None:
        self.requests, self.tokens, self.window = requests, tokens, window
        self._spent: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def acquire(self, tokens: int) -> None:
        """Wait until a request of that many tokens fits, and count it."""
        while True:
            with self._lock:
                now = time.monotonic()
                while self._spent and now - self._spent[0][0] >= self.window:
                    self._spent.popleft()
                used = sum(count for _, count in self._spent)
                fits = self.requests is None or len(self._spent) < self.requests
                fits &= self.tokens is None or used + tokens <= self.tokens or not self._spent
                if fits:
                    self._spent.append((now, tokens))
                    return
                wait = self.window - (now - self._spent[0][0])
            time.sleep(max(wait, 0.001))


_TOO_LATE = "no whole answer in time"


class Failed(NamedTuple):
    """An attempt without an answer that may go better the next time.

    Attributes:
        reason: What happened.
        wait: Seconds that the server asks to wait, or None.
    """

    reason: str
    wait: float | None = None


class Connection:
    """A client that retries what may pass: dropped connections, timeouts, rate limits, server errors, broken JSON.

    A request gives up `deadline` seconds after it began, whatever the server does meanwhile (bytes that drip in do not
    extend it), and after one attempt when the server has failed everybody for that long: a server that died in the
    middle costs one deadline, not one a row.

    Args:
        base_url: Where the server is.
        token: Sent as a bearer token; never logged, shown or pickled.
        deadline: Seconds.
        timeout: Seconds that one attempt may take.
    """

    def __init__(self, base_url: str, token: str | None = None, deadline: float = 120.0, timeout: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/")
        self.deadline, self.timeout = deadline, timeout
        self.counts: Counter[str] = Counter()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._loop = _Loop()
        self._clients: dict[int, httpx.AsyncClient] = {}
        self._failing_since: float | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A new call begins: forget that the server failed, perhaps hours ago."""
        self._failing_since = None

    def get(self, path: str, patience: float = 5.0) -> httpx.Response:
        """One GET for a health check, without retries.

        Raises:
            RewardsError: The server does not answer within `patience` seconds.
        """
        try:
            return self._loop.run(self._request("GET", path, None, patience))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise RewardsError(f"no judge answers at {self.base_url}: {_reason(error)}") from error

    def require_model(self, model: str) -> None:
        """Check that a chat server answers, takes the key and has the model, where it lists its models.

        Raises:
            RewardsError: No server answers there, or it refuses the key.
            InputError: The server lists its models, and this is none of them.
        """
        response = self.get("/models")
        if response.status_code in (401, 403):
            raise RewardsError(f"{self.base_url} refuses the API key ({response.status_code})")
        try:
            known = [entry["id"] for entry in response.json()["data"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # not every server lists its models
        if known and model not in known:
            raise InputError(f"{self.base_url} has no model {model!r}; it has {', '.join(map(str, known[:10]))}")

    def post(self, path: str, body: Mapping[str, Json], budget: Budget | None = None, tokens: int = 0) -> Answer:
        """The JSON object that the server answers.

        Raises:
            GaveUp: It refused the request, or did not answer properly before the deadline.
        """
        content = json.dumps(body).encode()
        start = time.monotonic()
        attempt, reason = 0, _TOO_LATE
        while True:
            if budget is not None:
                budget.acquire(tokens)
                start = start if attempt else time.monotonic()  # time spent waiting for our own budget is not its fault
            self.counts["requests"] += 1
            found = self._attempt(path, content, start + self.deadline - time.monotonic())
            if not isinstance(found, Failed):
                self._failing_since = None
                return found
            wait = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * random.uniform(0.5, 1.0)
            wait = max(wait, found.wait or 0.0)  # a server that asks for no wait at all is not asked at once for ever
            attempt += 1
            if found.reason != _TOO_LATE:  # an attempt that the deadline cut short says less than the one before
                reason = found.reason
            with self._lock:
                self._failing_since = self._failing_since or time.monotonic()
                left = min(start, self._failing_since) + self.deadline - time.monotonic()
            if wait > left:
                raise GaveUp(
                    f"the judge's server gave no answer within {self.deadline:g} s ({reason}, {attempt} attempts)"
                )
            self.counts["retries"] += 1
            time.sleep(wait)

    def close(self) -> None:
        for client in self._clients.values():
            self._loop.run(client.aclose())
        self._clients.clear()

    def _attempt(self, path: str, content: bytes, left: float) -> Answer | Failed:
        if left <= 0:
            return Failed(_TOO_LATE)
        try:
            response = self._loop.run(self._request("POST", path, content, max(0.01, min(left, self.timeout))))
        except TimeoutError:
            return Failed(_TOO_LATE)
        except httpx.HTTPError as error:
            return Failed(_reason(error))
        if response.status_code in RETRIED_STATUSES:
            return Failed(f"answered {response.status_code}", _retry_after(response))
        if response.status_code != 200:
            self._refused(response.status_code, response.text)
        try:
            answer = response.json()
        except (ValueError, RecursionError):  # RecursionError: thousands of brackets
            return Failed("answered broken JSON")
        if not isinstance(answer, dict):
            return Failed("answered JSON that is not an object")
        if (said := _complaint(answer)) is not None:
            status = _status(said)
            if status is not None and 400 <= status < 500 and status not in RETRIED_STATUSES:
                self._refused(status, str(said))
            return Failed(f"answered an error: {_short(str(said))}")
        return answer

    def _refused(self, status: int, detail: str) -> None:
        self._failing_since = None
        raise GaveUp(f"the judge's server refused the request ({status}): {_short(detail)}")

    async def _request(self, method: str, path: str, content: bytes | None, seconds: float) -> httpx.Response:
        """One request, answered in whole within `seconds`."""
        headers = {"Content-Type": "application/json"} if content is not None else {}
        async with asyncio.timeout(seconds):
            request = self._client().build_request(method, self.base_url + path, content=content, headers=headers)
            response = await self._client().send(request, stream=True)
            try:
                received = bytearray()
                async for part in response.aiter_bytes():
                    received += part
                    if len(received) > LARGEST_ANSWER:
                        raise httpx.DecodingError(f"an answer of more than {LARGEST_ANSWER} bytes")
            finally:
                await response.aclose()
        # Unpacked by now: what the headers say of its encoding no longer holds.
        plain = {
            key: value for key, value in response.headers.items() if key.lower() in ("retry-after", "content-type")
        }
        return httpx.Response(response.status_code, headers=plain, content=bytes(received))

    def _client(self) -> httpx.AsyncClient:
        if os.getpid() not in self._clients:  # a forked process has connections of its own
            timeout = httpx.Timeout(self.timeout, connect=5.0, pool=None)
            self._clients = {
                os.getpid(): httpx.AsyncClient(
                    headers=self._headers, timeout=timeout, limits=httpx.Limits(max_connections=None)
                )
            }
        return self._clients[os.getpid()]


class _Loop:
    """An event loop in a thread of its own: the only place where a request can be cut off at a given second.

    httpx counts its timeouts from byte to byte, so that a server which lets them drip keeps a caller for hours.
    """

    def __init__(self) -> None:
        self._process: int | None = None
        self._lock = threading.Lock()

    def run(self, work: Coroutine[object, None, T]) -> T:
        """The result of `work`, which runs beside what other threads have given."""
        with self._lock:
            if self._process != os.getpid():  # the threads of a process do not survive its fork
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="judge-client", daemon=True).start()
                self._process = os.getpid()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks to wait, as a number or as a date; None for what is no wait (0, the past, NaN)."""
    value = response.headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError, IndexError, OSError):
            return None
    return seconds if seconds > 0 and not math.isnan(seconds) else None


def _complaint(answer: Answer) -> object | None:
    """What a server (or a proxy or gateway before it) complains of although its status is 200; None for an answer.

    "error" is one beside anything else; the other words of the trade are where nothing that was asked for is there.
    """
    if answer.get("error"):
        return answer["error"] if isinstance(answer["error"], dict) else answer
    if any(key in answer for key in ("choices", "rows", "unsupported")):
        return None
    failed = answer.get("object") == "error" or answer.get("success") is False
    failed |= str(answer.get("status")).casefold() in ("error", "fail", "failed", "failure")
    failed |= any(answer.get(key) for key in ("errors", "detail", "details", "fault", "error_message", "message"))
    return answer if failed else None


def _status(said: object) -> int | None:
    """The HTTP status that a complaint holds as its code: a number, or its digits."""
    codes = [said.get(key) for key in ("code", "status", "status_code")] if isinstance(said, dict) else []
    found = [int(str(code)) for code in codes if not isinstance(code, bool) and re.fullmatch(r"[1-5]\d\d", str(code))]
    return found[0] if found else None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
