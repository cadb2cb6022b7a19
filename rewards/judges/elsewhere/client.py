"""The client of `rewards serve`: a judge in another process, on another machine, or in another environment."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, cast

import torch

from rewards.errors import InputError, RewardsError
from rewards.images import Picture, to_pil
from rewards.judges.base import (
    DEFAULT_RATINGS,
    Ability,
    Judge,
    Ratings,
    UnsupportedAbility,
    check_choices,
    check_rows,
    well_formed,
)
from rewards.judges.elsewhere.http import Answer, Connection, GaveUp
from rewards.judges.elsewhere.wire import PROTOCOL, read_numbers, write_picture
from rewards.judges.pictures import pictures_of_rows, read_picture
from rewards.runs.files import Json

logger = logging.getLogger(__name__)

TOKEN_ENV = "REWARDS_JUDGE_TOKEN"
"""Environment variable that holds the server's token, on both sides."""


PIXELS_A_REQUEST, ROWS_A_REQUEST = 33_554_432, 2_000
"""Most pixels and rows of one request: well below what a server takes."""

MOST_KEPT = 64_000_000
"""Bytes of encoded pictures that a process keeps, beyond the last one."""


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

    elsewhere = True

    def __init__(
        self, url: str, *, deadline: float = 120.0, timeout: float = 600.0, bytes_a_request: int = 16_000_000
    ) -> None:
        base, self._judge = _split(url)
        self._connection = Connection(base, os.environ.get(TOKEN_ENV), deadline, timeout)
        self._bytes_a_request = bytes_a_request
        entry = self._describe(url)
        self._identity: dict[str, Json] = entry["identity"]
        self.name, self.prompts = entry["name"], entry.get("prompts")
        self.revision = self._identity.get("revision")
        self.one_word = str(entry.get("one_word", self.one_word))
        told = entry.get("abilities")
        self._abilities = super().abilities & frozenset(told) if isinstance(told, list) else super().abilities

    @property
    def abilities(self) -> frozenset[Ability]:
        """The served judge's own, where its server tells them."""
        return self._abilities

    def identity(self) -> dict[str, Json]:
        """The served judge's identity: a score does not depend on where the judge runs."""
        return dict(self._identity)

    def rate(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """Probability of each rating after each prompt; see :meth:`rewards.judges.base.Judge.rate`."""
        images = check_rows(images, prompts, "prompt")
        words = [str(rating) for rating in ratings]
        rows = self._call("rate", images, [{"prompt": well_formed(prompt)} for prompt in prompts], {"ratings": words})
        probabilities, unseen = torch.full((len(prompts), len(words)), torch.nan), torch.full((len(rows),), torch.nan)
        reasons: list[str | None] = []
        for index, row in enumerate(rows):
            try:
                if isinstance(row, Exception):
                    raise row
                numbers = read_numbers(row["probabilities"])
                # A NaN is a row that abstained, and passes; its reason comes with it.
                if len(numbers) != len(words) or bool((numbers < 0).any()) or bool(numbers.sum() > 1 + 1e-3):
                    raise InputError("what it sent are no probabilities of the ratings")
                probabilities[index] = numbers
                unseen[index] = read_numbers([row.get("unseen") or 0.0])
                reasons.append(row["reason"])
            except (KeyError, TypeError, ValueError, RuntimeError) as error:  # numbers of another shape
                reasons.append(f"the judge's server answered in another shape: {error}")
            except GaveUp as error:
                reasons.append(str(error))
        hidden = None if bool((unseen.nan_to_num() == 0).all()) else unseen
        return Ratings(probabilities, probabilities.sum(-1), tuple(reasons), hidden)

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """Free-form answers; None where a row could not be answered."""
        images = check_rows(images, questions, "question")
        rows = self._call("answer", images, [{"prompt": well_formed(question)} for question in questions], {})
        return [_text(row) for row in rows]

    def choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice; NaN where a row could not be judged."""
        images = check_rows(images, questions, "question")
        check_choices(questions, choices)
        texts: list[dict[str, Json]] = [
            {"prompt": well_formed(question), "choices": [well_formed(choice) for choice in offered]}
            for question, offered in zip(questions, choices)
        ]
        rows = self._call("choose", images, texts, {})
        return [_scores(row, len(offered)) for row, offered in zip(rows, choices)]

    def mass(self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        """Probability that the answer begins as one of some texts; NaN where a row could not be judged."""
        images = check_rows(images, prompts, "prompt")
        check_choices(prompts, forms)
        texts: list[dict[str, Json]] = [
            {"prompt": well_formed(prompt), "choices": [well_formed(form) for form in spelled]}
            for prompt, spelled in zip(prompts, forms)
        ]
        return torch.tensor([_mass(row) for row in self._call("mass", images, texts, {})])

    def explain(self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """Why each prompt was given its rating; see :meth:`rewards.judges.decoders.vlm.VLMJudge.explain`."""
        images = check_rows(images, prompts, "prompt")
        texts: list[dict[str, Json]] = [
            {"prompt": well_formed(prompt), "rating": rating} for prompt, rating in zip(prompts, ratings)
        ]
        return [_text(row) for row in self._call("explain", images, texts, {})]

    def close(self) -> None:
        self._connection.close()

    def _describe(self, url: str) -> Answer:
        response = self._connection.get("/health")
        if response.status_code == 401:
            raise RewardsError(f"the judge at {url} asks for a token: set {TOKEN_ENV}")
        stranger = RewardsError(f"what answers at {url} is not `rewards serve` (status {response.status_code})")
        try:
            health = response.json()
            protocol, judges = health["protocol"], health["judges"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise stranger from error
        if protocol != PROTOCOL:
            raise RewardsError(
                f"the judge at {url} speaks protocol {protocol}, this client {PROTOCOL}: install the same version"
            )
        if not isinstance(judges, dict) or not all(map(_is_described, judges.values())):
            raise stranger
        if self._judge is None:
            if len(judges) != 1:
                raise InputError(f"the server at {url} holds several judges: add /NAME, one of {', '.join(judges)}")
            self._judge = next(iter(judges))
        if self._judge not in judges:
            raise InputError(f"the server at {url} has no judge {self._judge!r}; it has {', '.join(judges)}")
        return cast(Answer, judges[self._judge])

    def _call(
        self,
        ability: Ability,
        images: Sequence[object],
        texts: Sequence[Mapping[str, Json]],
        common: Mapping[str, Json],
    ) -> list[Answer | Exception]:
        """One result a row, or why there is none."""
        self._connection.begin()
        results: list[Answer | Exception] = [GaveUp("not reached")] * len(texts)
        rows: list[tuple[int, list[str]]] = []
        pictures: dict[str, _Encoded] = {}
        for index, read in enumerate(pictures_of_rows(images, keep_tensors=False, read=read_picture)):
            if isinstance(read, InputError):
                results[index] = read
                continue
            for one in read:
                if one.key not in pictures:
                    pictures[one.key] = _sent.encoded(one)
            rows.append((index, [one.key for one in read]))
        for part in _parts(rows, pictures, self._bytes_a_request):
            used: dict[str, Json] = {key: pictures[key].text for _, keys in part for key in keys}
            asked: list[Json] = [{"pictures": keys, **texts[index]} for index, keys in part]
            found = self._send(ability, {"pictures": used, "rows": asked, **common}, len(part))
            for (index, _), result in zip(part, found):
                results[index] = result
        for index, result in enumerate(results):
            if isinstance(result, Exception):
                logger.warning("judge %s abstains on row %d: %s", self.name, index, result)
        return results

    def _send(self, ability: Ability, body: Mapping[str, Json], rows: int) -> Sequence[Answer | Exception]:
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


def _is_described(entry: object) -> bool:
    """Whether an entry of `/health` tells what a client needs to know of a judge."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("identity"), dict)
        and isinstance(entry.get("prompts"), dict | None)
    )


def _split(url: str) -> tuple[str, str | None]:
    scheme, _, rest = url.partition("://")
    host, _, judge = rest.strip("/").partition("/")
    return f"{scheme}://{host}", judge or None


class _Encoded(NamedTuple):
    """A picture as it is sent."""

    text: str
    pixels: int


class _Sent:
    """Pictures as they are sent, the last of them kept: several samples are about one, each in a call of its own, and
    encoding takes ten times as long as hashing."""

    def __init__(self) -> None:
        self.begin()
        os.register_at_fork(after_in_child=self.begin)  # what another thread was at then is never done in the child

    def begin(self) -> None:
        """Know no picture."""
        self._known: OrderedDict[str, Future[_Encoded]] = OrderedDict()
        self._lock = threading.Lock()

    def encoded(self, picture: Picture) -> _Encoded:
        """The picture's own, made by the first of the threads that want it."""
        with self._lock:
            mine = picture.key not in self._known
            found = self._known.setdefault(picture.key, Future())
            self._known.move_to_end(picture.key)
        if mine:
            try:
                pixels = to_pil(picture)
                found.set_result(_Encoded(write_picture(pixels), pixels.width * pixels.height))
            except BaseException as error:
                found.set_exception(error)
                with self._lock:
                    self._known.pop(picture.key, None)
            self._forget()
        return found.result()

    def _forget(self) -> None:
        with self._lock:
            done = {key: one for key, one in self._known.items() if one.done() and not one.exception()}
            sizes = {key: len(one.result().text) for key, one in done.items()}
            kept = sum(sizes.values())
            for key in list(sizes)[:-1]:  # from the one that was wanted longest ago
                if kept > MOST_KEPT:
                    kept -= sizes[key]
                    del self._known[key]


_sent = _Sent()


def _text(row: Answer | Exception) -> str | None:
    answer = None if isinstance(row, Exception) else row.get("answer")
    return answer if isinstance(answer, str) else None


def _scores(row: Answer | Exception, count: int) -> torch.Tensor:
    try:
        scores = read_numbers([]) if isinstance(row, Exception) else read_numbers(row["scores"])
    except (KeyError, TypeError, InputError):
        scores = read_numbers([])
    usable = len(scores) == count and not bool((scores > 1e-3).any())  # log-probabilities
    return scores if usable else torch.full((count,), torch.nan)


def _mass(row: Answer | Exception) -> float:
    value = None if isinstance(row, Exception) else row.get("mass")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1 + 1e-3:
        return math.nan
    return min(float(value), 1.0)


def _parts(
    rows: Sequence[tuple[int, list[str]]], pictures: Mapping[str, _Encoded], limit: int
) -> Iterator[list[tuple[int, list[str]]]]:
    """Rows in parts below the limits of a request (a single picture above them still goes, alone)."""
    part: list[tuple[int, list[str]]] = []
    used: set[str] = set()
    for row in rows:
        after = used.union(row[1])
        size, pixels = sum(len(pictures[key].text) for key in after), sum(pictures[key].pixels for key in after)
        if part and (size > limit or pixels > PIXELS_A_REQUEST or len(part) >= ROWS_A_REQUEST):
            yield part
            part, after = [], set(row[1])
        part.append(row)
        used = after
    if part:
        yield part
