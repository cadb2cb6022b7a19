"""Requests to a judge elsewhere: retried while that can help, within a budget and a deadline, and never for ever."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from rewards.errors import InputError, RewardsError

logger = logging.getLogger(__name__)

RETRIED_STATUSES = (408, 409, 425, 429, 500, 502, 503, 504)
FIRST_WAIT, LONGEST_WAIT = 0.25, 20.0
"""Seconds before the first retry, doubled for each further one up to the longest; half of each wait is random."""


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


class Connection:
    """A client that retries what may pass: dropped connections, timeouts, rate limits, server errors, broken JSON.

    A request gives up `deadline` seconds after it began, and after one attempt when the server has failed everybody for
    that long: a server that died in the middle costs one deadline, not one a row.

    Args:
        base_url: Where the server is.
        token: Sent as a bearer token; never logged, shown or pickled.
        deadline: Seconds.
        timeout: Seconds that one attempt may take.
    """

    def __init__(self, base_url: str, token: str | None = None, deadline: float = 120.0, timeout: float = 60.0) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=None)
        self.base_url = base_url.rstrip("/")
        self.deadline = deadline
        self.counts: Counter[str] = Counter()
        self._client = httpx.Client(headers=headers, timeout=httpx.Timeout(timeout, connect=5.0), limits=limits)
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
            return self._client.get(self.base_url + path, timeout=patience)
        except httpx.HTTPError as error:
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
        except (ValueError, KeyError, TypeError):
            return  # not every server lists its models
        if known and model not in known:
            raise InputError(f"{self.base_url} has no model {model!r}; it has {', '.join(map(str, known[:10]))}")

    def post(self, path: str, body: dict[str, Any], budget: Budget | None = None, tokens: int = 0) -> dict[str, Any]:
        """The JSON object that the server answers.

        Raises:
            GaveUp: It refused the request, or did not answer properly before the deadline.
        """
        start = time.monotonic()
        attempt = 0
        while True:
            if budget is not None:
                budget.acquire(tokens)
                start = start if attempt else time.monotonic()  # time spent waiting for our own budget is not its fault
            self.counts["requests"] += 1
            reason, wait = "", None
            try:
                response = self._client.post(self.base_url + path, json=body)
                if response.status_code == 200:
                    answer = response.json()
                    if isinstance(answer, dict):
                        self._failing_since = None
                        return answer
                    reason = "answered JSON that is not an object"
                elif response.status_code in RETRIED_STATUSES:
                    reason, wait = f"answered {response.status_code}", _retry_after(response)
                else:
                    self._failing_since = None
                    raise GaveUp(
                        f"the judge's server refused the request ({response.status_code}): {_detail(response)}"
                    )
            except httpx.HTTPError as error:
                reason = _reason(error)
            except ValueError:
                reason = "answered broken JSON"
            if wait is None:
                wait = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * random.uniform(0.5, 1.0)
            attempt += 1
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
        self._client.close()


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks to wait, as a number or as a date."""
    value = response.headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _detail(response: httpx.Response) -> str:
    return " ".join(response.text.split())[:200]
