"""The client of `rewards serve`: a judge in another process, on another machine, or in another environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from rewards.errors import InputError, RewardsError
from rewards.images import content_hash, to_pil
from rewards.judges.base import DEFAULT_RATINGS, Judge, Ratings, UnsupportedAbility, check_rows, well_formed
from rewards.judges.elsewhere.http import Connection, GaveUp
from rewards.judges.elsewhere.wire import PROTOCOL, read_numbers, write_picture

logger = logging.getLogger(__name__)

TOKEN_ENV = "REWARDS_JUDGE_TOKEN"
"""Environment variable that holds the server's token, on both sides."""


class RemoteJudge(Judge):
    """A judge behind `rewards serve`, with the same methods and the same scores as in this process.

    Args:
        url: `http://host:port`, with `/NAME` after it where the server holds several judges.
        deadline: Seconds for which a silent, restarting or failing server is waited for; then the rows abstain.
        timeout: Seconds that one request may take.
        bytes_a_request: Most encoded bytes of pictures in one request; larger calls are sent in parts.

    Raises:
        RewardsError: No server answers there, or it speaks another protocol.

    Example:
        >>> judge = load_judge("http://127.0.0.1:8008")  # doctest: +SKIP
    """

    def __init__(
        self, url: str, *, deadline: float = 120.0, timeout: float = 600.0, bytes_a_request: int = 16_000_000
    ) -> None:
        base, self._judge = _split(url)
        self._connection = Connection(base, os.environ.get(TOKEN_ENV), deadline, timeout)
        self._bytes_a_request = bytes_a_request
        entry = self._describe(url)
        self.name, self.revision, self.prompts = entry["name"], entry["identity"].get("revision"), entry["prompts"]
        self._identity = {**entry["identity"], "server": base}

    def identity(self) -> dict[str, Any]:
        """The served judge's identity, and where it runs."""
        return dict(self._identity)

    def rate(self, images: Sequence[Any], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS) -> Ratings:
        """Probability of each rating after each prompt; see :meth:`rewards.judges.base.Judge.rate`."""
        images = check_rows(images, prompts, "prompt")
        words = [str(rating) for rating in ratings]
        rows = self._call("rate", images, [{"prompt": well_formed(prompt)} for prompt in prompts], {"ratings": words})
        probabilities = torch.full((len(prompts), len(words)), torch.nan)
        for index, row in enumerate(rows):
            if isinstance(row, dict):
                probabilities[index] = read_numbers(row["probabilities"])
        reasons = [str(row) if isinstance(row, Exception) else row["reason"] for row in rows]
        return Ratings(probabilities, probabilities.sum(-1), tuple(reasons))

    def answer(self, images: Sequence[Any], questions: Sequence[str]) -> list[str | None]:
        """Free-form answers; None where a row could not be answered."""
        images = check_rows(images, questions, "question")
        rows = self._call("answer", images, [{"prompt": well_formed(question)} for question in questions], {})
        return [row["answer"] if isinstance(row, dict) else None for row in rows]

    def choose(
        self, images: Sequence[Any], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice; NaN where a row could not be judged."""
        images = check_rows(images, questions, "question")
        if len(choices) != len(questions):
            raise InputError(f"got {len(questions)} questions but {len(choices)} lists of choices")
        texts = [
            {"prompt": well_formed(question), "choices": [well_formed(choice) for choice in offered]}
            for question, offered in zip(questions, choices)
        ]
        rows = self._call("choose", images, texts, {})
        return [
            read_numbers(row["scores"]) if isinstance(row, dict) else torch.full((len(offered),), torch.nan)
            for row, offered in zip(rows, choices)
        ]

    def explain(self, images: Sequence[Any], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """Why each prompt was given its rating; see :meth:`rewards.judges.decoders.vlm.VLMJudge.explain`."""
        images = check_rows(images, prompts, "prompt")
        texts = [{"prompt": well_formed(prompt), "rating": rating} for prompt, rating in zip(prompts, ratings)]
        rows = self._call("explain", images, texts, {})
        return [row["answer"] if isinstance(row, dict) else None for row in rows]

    def close(self) -> None:
        self._connection.close()

    def _describe(self, url: str) -> dict[str, Any]:
        response = self._connection.get("/health")
        if response.status_code == 401:
            raise RewardsError(f"the judge at {url} asks for a token: set {TOKEN_ENV}")
        try:
            health = response.json()
            protocol, judges = health["protocol"], health["judges"]
        except (ValueError, KeyError, TypeError) as error:
            raise RewardsError(
                f"what answers at {url} is not `rewards serve` (status {response.status_code})"
            ) from error
        if protocol != PROTOCOL:
            raise RewardsError(
                f"the judge at {url} speaks protocol {protocol}, this client {PROTOCOL}: install the same version"
            )
        if self._judge is None:
            if len(judges) != 1:
                raise InputError(f"the server at {url} holds several judges: add /NAME, one of {', '.join(judges)}")
            self._judge = next(iter(judges))
        if self._judge not in judges:
            raise InputError(f"the server at {url} has no judge {self._judge!r}; it has {', '.join(judges)}")
        return judges[self._judge]

    def _call(
        self, ability: str, images: Sequence[Any], texts: Sequence[dict[str, Any]], common: dict[str, Any]
    ) -> list[dict[str, Any] | Exception]:
        """One result a row, or why there is none."""
        self._connection.begin()
        results: list[dict[str, Any] | Exception] = [GaveUp("not reached")] * len(texts)
        rows: list[tuple[int, list[str]]] = []
        pictures: dict[str, str] = {}
        seen: dict[int, list[str] | InputError] = {}
        for index, entry in enumerate(images):
            if id(entry) not in seen:
                seen[id(entry)] = _encode(entry, index, pictures)
            keys = seen[id(entry)]
            if isinstance(keys, InputError):
                results[index] = keys
            else:
                rows.append((index, keys))
        for part in _parts(rows, pictures, self._bytes_a_request):
            used = {key: pictures[key] for _, keys in part for key in keys}
            body = {"pictures": used, "rows": [{"pictures": keys, **texts[index]} for index, keys in part], **common}
            for (index, _), result in zip(part, self._send(ability, body, len(part))):
                results[index] = result
        for index, result in enumerate(results):
            if isinstance(result, Exception):
                logger.warning("judge %s abstains on row %d: %s", self.name, index, result)
        return results

    def _send(self, ability: str, body: dict[str, Any], rows: int) -> Sequence[dict[str, Any] | Exception]:
        try:
            answer = self._connection.post(f"/judges/{self._judge}/{ability}", body)
        except GaveUp as error:
            return [error] * rows
        if "unsupported" in answer:
            raise UnsupportedAbility(str(answer["unsupported"]))
        found = answer.get("rows")
        if not isinstance(found, list) or len(found) != rows or not all(isinstance(row, dict) for row in found):
            return [GaveUp("the judge's server answered in another shape")] * rows
        return found


def _split(url: str) -> tuple[str, str | None]:
    scheme, _, rest = url.partition("://")
    host, _, judge = rest.strip("/").partition("/")
    return f"{scheme}://{host}", judge or None


def _encode(entry: Any, index: int, pictures: dict[str, str]) -> list[str] | InputError:
    try:
        found = [to_pil(image, index) for image in (entry if isinstance(entry, (list, tuple)) else [entry])]
        if not found:
            raise InputError(f"row {index} has no image")
    except InputError as error:
        return error
    keys = [content_hash(picture) for picture in found]
    for key, picture in zip(keys, found):
        if key not in pictures:
            pictures[key] = write_picture(picture)
    return keys


def _parts(
    rows: Sequence[tuple[int, list[str]]], pictures: dict[str, str], limit: int
) -> Iterator[list[tuple[int, list[str]]]]:
    """Rows in parts whose distinct pictures stay below the limit (a single larger one still goes, alone)."""
    size: Callable[[list[str]], int] = lambda keys: sum(len(pictures[key]) for key in keys)  # noqa: E731
    part: list[tuple[int, list[str]]] = []
    used: set[str] = set()
    for row in rows:
        new = [key for key in row[1] if key not in used]
        if part and size([*used, *new]) > limit:
            yield part
            part, used, new = [], set(), row[1]
        part.append(row)
        used.update(new)
    if part:
        yield part
