"""One judge for many callers: calls that arrive together are judged together.

Most trainers ask for one sample a call, from many threads or many clients. A judge is far quicker with many rows at
once: what they share (a picture, a criterion's words) is computed once, and the rest goes through in one batch. What
takes seconds is cut between pictures: the callers of one are answered, and prepare their next calls, while the judge is
at the next.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import torch

from rewards.errors import RewardsError
from rewards.images import Picture
from rewards.judges.base import DEFAULT_RATINGS, Ability, Judge, Ratings, check_choices, check_rows
from rewards.runs.files import Json

logger = logging.getLogger(__name__)

Outcome: TypeAlias = Ratings | list[str | None] | list[torch.Tensor] | torch.Tensor
"""What an ability of a judge returns."""

WAIT = 0.004
"""Seconds without a new arrival after which a batch begins, once the callers of the last one are back."""

LONGEST_WAIT = 0.03
"""Seconds after which a batch begins whatever still arrives, at least; see :data:`LONGEST_WAIT_SHARE`. After so many
seconds of its first call's waiting a batch begins that is large enough by :data:`BATCH_SECONDS`."""

LONGEST_WAIT_SHARE = 1 / 8
"""As :data:`LONGEST_WAIT`, of the seconds that the last batch took. Callers who were answered together ask again
together, each as soon as it has prepared its next request; a batch that began without most of them would look at the
same pictures twice, and they would never meet again."""

BATCH_SECONDS, BATCH_ROWS = 2.0, 64
"""Seconds of judging, by the pace of the last batch, and rows, after both of which a batch of ratings, choices or
masses is cut between two pictures: more would be no quicker, and the callers would all wait at one time, and all
be away at one time. Written answers are not cut: they take their time however many are written at once."""

MOST_ROWS = 2048
"""Rows of a batch; the judge cuts it further by its token budget."""

MOST_WAITING = 20_000
"""Rows that may wait; callers beyond them are sent away."""

ENDINGS = ("answered", "refused", "cancelled", "failed")
"""How a call may end."""

_NUMBERED = re.compile(r"^((?:\w+: )?(?:row|image) )(\d+)")


class QueueFull(RewardsError):
    """More rows wait for the judge than it may keep waiting.

    Attributes:
        retry_after: Seconds after which the queue will probably have room.
    """

    def __init__(self, waiting: int, retry_after: float) -> None:
        super().__init__(f"{waiting} rows wait for the judge already; try again in {retry_after:.0f} s")
        self.retry_after = retry_after


@dataclass(eq=False)
class Call:
    """One caller's rows.

    Attributes:
        ability: What is asked of the judge.
        images: One image a row.
        texts: One prompt or question a row.
        ratings: The scale (`rate`), or what each row was rated (`explain`).
        choices: One list a row: what is chosen from (`choose`), or the spellings of an answer (`mass`).
        outcome: What the judge made of these rows; cancel it when nobody waits for it any more.
        arrived: When the call came, by the monotonic clock.
    """

    ability: Ability
    images: Sequence[object]
    texts: Sequence[str]
    ratings: tuple[str, ...] = ()
    choices: Sequence[Sequence[str]] = ()
    outcome: Future[Outcome] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def kind(self) -> tuple[str, tuple[str, ...]]:
        """Calls of one kind can be judged together: the same ability, and the same scale."""
        return self.ability, self.ratings if self.ability == "rate" else ()

    @property
    def about(self) -> object:
        """Equal for calls about the same pictures, as far as this can be told without reading them."""
        first = self.images[0] if len(self) else None
        pictures = first if isinstance(first, list | tuple) else [first]
        return tuple(one.key if isinstance(one, Picture) else id(one) for one in pictures)


@dataclass
class Counts:
    """What a batcher did since it began; all but `waiting` and `largest` only grow.

    Attributes:
        calls: Calls by how they ended: `answered`, `refused` (the queue was full), `cancelled`, `failed`.
        batches: How many batches were judged.
        rows: Rows in them.
        waiting: Rows in the queue now.
        largest_queue: The most rows that ever waited.
        seconds: Time by phase: `waiting` (summed over calls), `judging` (over batches).
        sizes: Batches by their number of rows, rounded up to a power of two.
    """

    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENDINGS, 0))
    batches: int = 0
    rows: int = 0
    waiting: int = 0
    largest_queue: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {"waiting": 0.0, "judging": 0.0})
    sizes: dict[int, int] = field(default_factory=dict)


class BatchingJudge(Judge):
    """A judge that collects what several threads ask, and asks its replicas for it at once.

    A result does not depend on whose rows it was judged with. A call whose rows make the judge fail fails alone.

    Args:
        replicas: Judges of equal identity, one a device, or a single judge; each works in a thread of its own.
        most_rows: Rows of a batch.
        most_waiting: Rows that may wait. :meth:`submit` refuses further ones; the judge's own methods wait for room.

    Example:
        >>> from rewards import HarmonicEval, load_judge
        >>> judge = BatchingJudge(load_judge("shapes-rater"))
        >>> reward = HarmonicEval(judge)  # call it from as many threads as you like
        >>> judge.close()
    """

    def __init__(
        self, replicas: Judge | Sequence[Judge], *, most_rows: int = MOST_ROWS, most_waiting: int = MOST_WAITING
    ) -> None:
        self.replicas = [replicas] if isinstance(replicas, Judge) else list(replicas)
        first = self.replicas[0]
        if any(replica.identity() != first.identity() for replica in self.replicas):
            raise RewardsError("replicas of a judge must be the same judge: their identities differ")
        self.name, self.revision, self.prompts = first.name, first.revision, first.prompts
        self.one_word, self.elsewhere = first.one_word, first.elsewhere
        self.takes_tensors = first.takes_tensors
        self.most_rows, self.most_waiting = most_rows, most_waiting
        self.counts = Counts()
        self._queue: deque[Call] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._last_took, self._last_rows = 0.0, 0
        self._answered = 0  # callers of the last batch who have not come back
        self._expected = 0  # calls of which it is known that they will be here at once
        self._threads = [
            threading.Thread(target=self._work, args=(judge,), name=f"judge-{at}", daemon=True)
            for at, judge in enumerate(self.replicas)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def abilities(self) -> frozenset[Ability]:
        """The replicas' own, of those whose rows can be judged together."""
        return self.replicas[0].abilities & super().abilities

    def identity(self) -> dict[str, Json]:
        """The replicas' own: a row is judged as it would be alone."""
        return self.replicas[0].identity()

    def rate(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """As the judge's own."""
        images = check_rows(images, prompts, "prompt")
        return cast(Ratings, self._ask(Call("rate", images, prompts, tuple(str(rating) for rating in ratings))))

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """As the judge's own."""
        images = check_rows(images, questions, "question")
        return cast("list[str | None]", self._ask(Call("answer", images, questions)))

    def choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """As the judge's own."""
        images = check_rows(images, questions, "question")
        check_choices(questions, choices)
        return cast("list[torch.Tensor]", self._ask(Call("choose", images, questions, choices=choices)))

    def mass(self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        """As the judge's own."""
        images = check_rows(images, prompts, "prompt")
        check_choices(prompts, forms)
        return cast(torch.Tensor, self._ask(Call("mass", images, prompts, choices=forms)))

    def explain(self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """As the judge's own."""
        images = check_rows(images, prompts, "prompt")
        return cast("list[str | None]", self._ask(Call("explain", images, prompts, tuple(ratings))))

    def submit(self, call: Call) -> Future[Outcome]:
        """Queue a call.

        Raises:
            QueueFull: Too many rows wait.
        """
        with self._changed:
            if self._closed:
                raise RewardsError(f"judge {self.name!r} was closed")
            if self._queue and self.counts.waiting + len(call) > self.most_waiting:
                self.counts.calls["refused"] += 1
                raise QueueFull(self.counts.waiting, self._seconds_for(self.counts.waiting))
            self._put(call)
        return call.outcome

    @contextmanager
    def expected(self) -> Iterator[None]:
        """While a call is prepared that will be submitted at once: the next batch waits for it, as long as for any."""
        with self._changed:
            self._expected += 1
        try:
            yield
        finally:
            with self._changed:
                self._expected -= 1
                self._changed.notify_all()

    def offload(self) -> None:
        for replica in self.replicas:
            replica.offload()

    def close(self) -> None:
        """Finish the batches at work; calls that still wait are cancelled."""
        with self._changed:
            self._closed = True
            for call in self._queue:
                call.outcome.cancel()
            self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def __reduce__(self) -> tuple[type[BatchingJudge], tuple[list[Judge]]]:
        return type(self), (self.replicas,)

    def _ask(self, call: Call) -> Outcome:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or not self._queue or self.counts.waiting + len(call) <= self.most_waiting
            )
            if self._closed:
                raise RewardsError(f"judge {self.name!r} was closed")
            self._put(call)
        return call.outcome.result()

    def _put(self, call: Call) -> None:
        self._queue.append(call)
        self._answered = max(0, self._answered - 1)
        self.counts.waiting += len(call)
        self.counts.largest_queue = max(self.counts.largest_queue, self.counts.waiting)
        self._changed.notify_all()

    def _seconds_for(self, rows: int) -> float:
        a_row = self.counts.seconds["judging"] / self.counts.rows if self.counts.rows else 0.0
        return max(1.0, rows * a_row / len(self.replicas))

    def _work(self, judge: Judge) -> None:
        while self._next(judge):
            pass

    def _next(self, judge: Judge) -> bool:
        """Judge the next batch; False when the judge was closed. A thread that waits holds nothing of the last one."""
        if (calls := self._collect()) is None:
            return False
        begun = time.monotonic()
        running = [call for call in calls if call.outcome.set_running_or_notify_cancel()]
        outcomes = judge_together(judge, running) if running else []
        ended = time.monotonic()
        with self._changed:
            counts = self.counts
            counts.batches += bool(running)
            counts.rows += (rows := sum(map(len, running)))
            counts.seconds["judging"] += ended - begun
            if running:
                self._last_took, self._last_rows, self._answered = ended - begun, rows, len(running)
            counts.seconds["waiting"] += sum(begun - call.arrived for call in running)
            counts.calls["cancelled"] += len(calls) - len(running)
            counts.calls["failed"] += (failed := sum(isinstance(one, Exception) for one in outcomes))
            counts.calls["answered"] += len(running) - failed
            size = 1 << max(0, rows - 1).bit_length()
            counts.sizes[size] = counts.sizes.get(size, 0) + 1
        for call, outcome in zip(running, outcomes):
            if isinstance(outcome, Exception):
                call.outcome.set_exception(outcome)
            else:
                call.outcome.set_result(outcome)
        return True

    def _collect(self) -> list[Call] | None:
        """The next batch: calls of one kind, in the order of their arrival. None when the judge was closed."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._closed or self._queue)
                if self._closed:
                    return None
                latest = time.monotonic() + max(LONGEST_WAIT, LONGEST_WAIT_SHARE * self._last_took)
                while (left := self._until(latest) - time.monotonic()) > 0:
                    before = self.counts.waiting
                    self._changed.wait(left if self._answered or self._expected else min(WAIT, left))
                    if self._closed or not self._queue:
                        break  # another replica took what there was
                    if self.counts.waiting == before and not (self._answered or self._expected):
                        break  # nothing new came
                if self._queue and not self._closed:
                    return self._take()

    def _until(self, latest: float) -> float:
        """When the next batch begins, whatever still arrives: `latest`, or earlier if what waits is a batch already."""
        oldest = self._queue[0]
        enough = self.counts.waiting >= self._rows_at_once(oldest.ability)
        return min(latest, oldest.arrived + LONGEST_WAIT) if enough else latest

    def _rows_at_once(self, ability: Ability) -> int:
        """Rows after which a batch is cut between pictures."""
        if not self._last_rows or ability in ("answer", "explain"):
            return self.most_rows
        return min(self.most_rows, max(BATCH_ROWS, int(BATCH_SECONDS * self._last_rows / max(self._last_took, 1e-6))))

    def _take(self) -> list[Call]:
        """Calls of the oldest one's kind, those about its pictures first, up to the rows of a batch."""
        kind = self._queue[0].kind
        together: dict[object, list[Call]] = {}
        for call in self._queue:
            if call.kind == kind:
                together.setdefault(call.about, []).append(call)
        taken: list[Call] = []
        rows, enough = 0, self._rows_at_once(self._queue[0].ability)
        for calls in together.values():
            if taken and rows + sum(map(len, calls)) > enough:
                break
            for call in calls:
                if not taken or rows + len(call) <= self.most_rows:
                    taken.append(call)
                    rows += len(call)
        chosen = set(taken)
        self._queue = deque(call for call in self._queue if call not in chosen)
        self.counts.waiting -= rows
        self._changed.notify_all()
        return taken


def judge_together(judge: Judge, calls: Sequence[Call]) -> list[Outcome | Exception]:
    """The outcome of each call, or why it has none; rows are asked in one call of the judge.

    A judge that fails on the whole is asked for each call alone, so that one caller's rows do not fail another's.
    """
    try:
        return _split(_asked(judge, calls), calls)
    except Exception as error:
        if len(calls) == 1:
            return [error]
        logger.warning("judge %s failed on a batch of %d calls: %s; each is asked alone", judge.name, len(calls), error)
        return [outcome for call in calls for outcome in judge_together(judge, [call])]


def _asked(judge: Judge, calls: Sequence[Call]) -> Outcome:
    images = [image for call in calls for image in call.images]
    texts = [text for call in calls for text in call.texts]
    ability = calls[0].ability
    if ability == "rate":
        return judge.rate(images, texts, calls[0].ratings)
    if ability == "choose":
        return judge.choose(images, texts, [offered for call in calls for offered in call.choices])
    if ability == "mass":
        return judge.mass(images, texts, [spelled for call in calls for spelled in call.choices])
    if ability == "explain":
        return judge.explain(images, texts, [rating for call in calls for rating in call.ratings])
    return judge.answer(images, texts)


def _split(found: Outcome, calls: Sequence[Call]) -> list[Outcome | Exception]:
    parts: list[Outcome | Exception] = []
    start = 0
    for call in calls:
        rows = slice(start, start + len(call))
        if isinstance(found, Ratings):
            reasons = tuple(_renumbered(reason, start) for reason in found.reasons[rows])
            unseen = None if found.unseen is None else found.unseen[rows]
            parts.append(Ratings(found.probabilities[rows], found.mass[rows], reasons, unseen))
        else:
            parts.append(cast(Outcome, found[rows]))
        start = rows.stop
    return parts


def _renumbered(reason: str | None, start: int) -> str | None:
    """A reason that names a row of the batch, with the number that the row has in its caller's call."""
    return None if reason is None else _NUMBERED.sub(lambda match: f"{match[1]}{int(match[2]) - start}", reason)
