"""Any OpenAI-compatible chat server that returns log-probabilities as a judge: vLLM, SGLang, hosted GPT-4o."""

from __future__ import annotations

import base64
import io
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from string import ascii_uppercase
from typing import TypeAlias, TypeVar

import torch
from PIL import Image

from rewards.errors import InputError
from rewards.images import Picture
from rewards.judges.base import (
    DEFAULT_RATINGS,
    Judge,
    Ratings,
    UnsupportedAbility,
    check_choices,
    check_rows,
    well_formed,
)
from rewards.judges.elsewhere.first_token import (
    Listed,
    begins_whole,
    lettered,
    may_be_split,
    read_listed,
    read_mass,
)
from rewards.judges.elsewhere.http import Answer, Budget, Connection, GaveUp
from rewards.judges.elsewhere.said import read_answer
from rewards.judges.pictures import pictures_of_rows
from rewards.judges.prompting import WHY
from rewards.runs.files import Json

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
Turn: TypeAlias = dict[str, Json]

ANSWER_PROMPT = "{question}\nAnswer the question using a single word or phrase."
MOST_LOGPROBS = 20
"""Chat servers return this many log-probabilities a token at most."""

_FIRST_TOKEN: Mapping[str, Json] = {"max_tokens": 1, "logprobs": True, "top_logprobs": MOST_LOGPROBS}

LONGEST_ANSWER = 16
"""Most tokens of an answer to a question; TIFA's answers have one to three words."""

TOKENS_A_PICTURE = 1000
"""Estimate for the tokens-per-minute budget; the true usage is what the server reports afterwards."""


class ChatJudge(Judge):
    """A chat model behind HTTP.

    A rating, or the letter of a choice, is read from the log-probabilities of the first generated token. One outside
    the returned list has an unknown probability, between 0 and the smallest one listed (and no more than what the list
    leaves): it is reported as 0, its bound is not part of the mass, and the row abstains where those bounds add up to
    more than `most_unknown`. What the list leaves altogether is reported as :attr:`Ratings.unseen`, so that a short
    list does not pass for certainty.

    What is no answer (an empty one, one that was cut, filtered or refused, half a thought) abstains with a reason.

    Args:
        model: The server's name of the model.
        base_url: Up to and including `/v1`.
        api_key_env: Environment variable that holds the key; the key itself is never an argument, logged or pickled.
        concurrency: Most requests at a time.
        requests_per_minute: Budget; None for none.
        tokens_per_minute: Budget, pictures counted as :data:`TOKENS_A_PICTURE`.
        deadline: Seconds after which a row abstains.
        timeout: Seconds that one attempt may take.
        longest_side: Larger pictures are scaled down to it, in pixels.
        jpeg_quality: 1-95; None sends PNG, without loss.
        most_unknown: Share of the probability that may be hidden behind the end of the list.
        prices: Price of a million input and output tokens; then `usage` has the cost.

    Raises:
        RewardsError: No server answers there, within seconds, or it refuses the key.

    Example:
        >>> judge = load_judge("gpt-4o", base_url="https://api.openai.com/v1")  # doctest: +SKIP
    """

    elsewhere = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        deadline: float = 120.0,
        timeout: float = 60.0,
        longest_side: int = 1024,
        jpeg_quality: int | None = 95,
        most_unknown: float = 0.05,
        prices: tuple[float, float] | None = None,
    ) -> None:
        self.name = model
        self.longest_side, self.jpeg_quality, self.most_unknown = longest_side, jpeg_quality, most_unknown
        self.prices = prices
        self._budget = Budget(requests_per_minute, tokens_per_minute)
        self._connection = Connection(base_url, os.environ.get(api_key_env), deadline, timeout)
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="chat-judge")
        self._connection.require_model(model)
        self._whole: set[str] = set()
        self._asking = threading.Lock()

    def identity(self) -> dict[str, Json]:
        """Name, server, and how pictures were sent and choices offered."""
        return {
            "name": self.name,
            "revision": None,
            "server": self._connection.base_url,
            "choices": "by letter",
            "preprocessing": f"longest side {self.longest_side}, "
            + ("PNG" if self.jpeg_quality is None else f"JPEG {self.jpeg_quality}"),
        }

    @property
    def usage(self) -> dict[str, float]:
        """Requests, retries, tokens and (with `prices`) the cost since the judge was loaded."""
        counts = self._connection.counts
        usage: dict[str, float] = {key: counts[key] for key in ("requests", "retries", "input_tokens", "output_tokens")}
        if self.prices is not None:
            usage["cost"] = sum(
                price * usage[key] / 1e6 for price, key in zip(self.prices, ("input_tokens", "output_tokens"))
            )
        return usage

    def rate(
        self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str] = DEFAULT_RATINGS
    ) -> Ratings:
        """Probability of each rating as the first token; see :meth:`rewards.judges.base.Judge.rate`.

        Raises:
            UnsupportedAbility: The server writes a rating in several tokens, the first of which is another rating.
        """
        images = check_rows(images, prompts, "prompt")
        words = [str(rating) for rating in ratings]
        rows: Sequence[Listed | Exception]
        if (unknown := self._require_whole(words)) is not None:
            rows = [unknown] * len(prompts)
        else:
            reads = [_reader(words, self.most_unknown, "ratings")] * len(prompts)
            rows = self._ask(images, prompts, _FIRST_TOKEN, reads)
        probabilities, unseen = torch.full((len(prompts), len(words)), torch.nan), torch.full((len(rows),), torch.nan)
        for index, row in enumerate(rows):
            if isinstance(row, Listed):
                probabilities[index], unseen[index] = torch.tensor(row.probabilities), row.unseen
        reasons = tuple(str(row) if isinstance(row, Exception) else None for row in rows)
        return Ratings(probabilities, probabilities.sum(-1), reasons, unseen)

    def answer(self, images: Sequence[object], questions: Sequence[str]) -> list[str | None]:
        """The server's answers; None where a row could not be answered."""
        images = check_rows(images, questions, "question")
        prompts = [ANSWER_PROMPT.format(question=question) for question in questions]
        rows = self._ask(images, prompts, {"max_tokens": LONGEST_ANSWER}, [read_answer] * len(prompts))
        return [row if isinstance(row, str) else None for row in rows]

    def choose(
        self, images: Sequence[object], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        """Log-probability of each choice's letter as the first token (TIFA eq. 1 over letters).

        A server gives no likelihood of words that it did not write, so the choices are offered under letters. The order
        of the choices can sway a model that is asked in this way. A letter outside the returned list has an unknown
        probability: it is reported as 0 (-inf), and the row abstains under the same condition as in :meth:`rate`.

        Raises:
            InputError: The lists differ in length, or a question has no choices or more than there are letters.
        """
        images = check_rows(images, questions, "question")
        check_choices(questions, choices)
        for index, offered in enumerate(choices):
            if not 1 <= len(offered) <= len(ascii_uppercase):
                raise InputError(f"question {index} has {len(offered)} choices; expected 1 to {len(ascii_uppercase)}")
        prompts = [lettered(question, offered) for question, offered in zip(questions, choices)]
        reads = [_reader(ascii_uppercase[: len(offered)], self.most_unknown, "letters") for offered in choices]
        rows = self._ask(images, prompts, _FIRST_TOKEN, reads)
        return [
            torch.tensor(row.probabilities).log() if isinstance(row, Listed) else torch.full((len(offered),), torch.nan)
            for row, offered in zip(rows, choices)
        ]

    def mass(self, images: Sequence[object], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        """Probability that the answer begins as one of some texts, as far as the server lists its first token.

        The listed spellings are summed: a lower bound, which lacks `most_unknown` at most; a row that may lack more
        abstains (:func:`rewards.judges.elsewhere.first_token.read_mass`). See
        :meth:`rewards.judges.base.Judge.mass`.
        """
        images = check_rows(images, prompts, "prompt")
        check_choices(prompts, forms)
        reads = [partial(read_mass, forms=tuple(spelled), most_unknown=self.most_unknown) for spelled in forms]
        rows = self._ask(images, prompts, _FIRST_TOKEN, reads)
        return torch.tensor([row if isinstance(row, float) else math.nan for row in rows])

    def explain(self, images: Sequence[object], prompts: Sequence[str], ratings: Sequence[str]) -> list[str | None]:
        """Why each prompt was given its rating; see :meth:`rewards.judges.decoders.vlm.VLMJudge.explain`."""
        images = check_rows(images, prompts, "prompt")
        said: list[list[Turn]] = [
            [{"role": "assistant", "content": rating}, {"role": "user", "content": WHY}] for rating in ratings
        ]
        reads = [lambda answer: read_answer(answer, may_be_cut=True)] * len(prompts)
        rows = self._ask(images, prompts, {"max_tokens": 128}, reads, said)
        return [row if isinstance(row, str) else None for row in rows]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    def _require_whole(self, words: Sequence[str]) -> GaveUp | None:
        """Ask the server once, before its first rating on a scale, whether it writes "10" as one token or as "1", "0".

        Returns:
            Why it could not be asked, or None.

        Raises:
            UnsupportedAbility: It writes a rating in several tokens.
        """
        with self._asking:
            for word in may_be_split(words):
                if word in self._whole:
                    continue
                turn: Turn = {"role": "user", "content": f"Write the number {word} and nothing else."}
                body: Turn = {"model": self.name, "messages": [turn], "temperature": 0.0, **_FIRST_TOKEN}
                self._connection.begin()
                whole = _use(self._one(body, LONGEST_ANSWER), partial(begins_whole, word=word))
                if isinstance(whole, Exception):
                    return GaveUp(f"whether the server writes {word!r} as one token is not known: {whole}")
                if not whole:
                    raise UnsupportedAbility(
                        f"judge {self.name!r} does not write the rating {word!r} as one token: its first token would "
                        "pass for another rating; use a scale such as 1 to 5"
                    )
                self._whole.add(word)
        return None

    def _ask(
        self,
        images: Sequence[object],
        prompts: Sequence[str],
        options: Mapping[str, Json],
        reads: Sequence[Callable[[Answer], Result]],
        further_turns: Sequence[list[Turn]] | None = None,
    ) -> list[Result | Exception]:
        """What its `read` makes of each row's answer, or why there is none. Equal rows are sent once."""
        self._connection.begin()
        sent: dict[tuple[str, ...], Future[Answer | Exception]] = {}
        encoded: dict[str, str] = {}
        keys: list[tuple[str, ...] | Exception] = []
        for index, (pictures, prompt) in enumerate(zip(pictures_of_rows(images, keep_tensors=False), prompts)):
            if isinstance(pictures, InputError):
                keys.append(pictures)
                continue
            for one in pictures:
                if one.key not in encoded:
                    encoded[one.key] = self._data_url(one)
            turns = further_turns[index] if further_turns else []
            key = (*(one.key for one in pictures), prompt, *(str(turn["content"]) for turn in turns))
            if key not in sent:
                body = self._body([encoded[one.key] for one in pictures], prompt, turns, options)
                tokens = len(prompt) // 4 + TOKENS_A_PICTURE * len(pictures) + LONGEST_ANSWER
                sent[key] = self._pool.submit(self._one, body, tokens)
            keys.append(key)
        answers = [key if isinstance(key, Exception) else sent[key].result() for key in keys]
        results = [_use(answer, read) for answer, read in zip(answers, reads)]
        for index, result in enumerate(results):
            if isinstance(result, Exception):
                logger.warning("judge %s abstains on row %d: %s", self.name, index, result)
        return results

    def _one(self, body: Mapping[str, Json], tokens: int) -> Answer | Exception:
        try:
            answer = self._connection.post("/chat/completions", body, self._budget, tokens)
        except GaveUp as error:
            return error
        self._count(answer.get("usage"))
        return answer

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict):
            for ours, theirs in (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")):
                if isinstance(count := usage.get(theirs), int):
                    self._connection.counts[ours] += count

    def _body(
        self, pictures: list[str], prompt: str, turns: Sequence[Turn], options: Mapping[str, Json]
    ) -> dict[str, Json]:
        content: list[Json] = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
        content.append({"type": "text", "text": well_formed(prompt)})
        messages: list[Json] = [{"role": "user", "content": content}, *turns]
        return {"model": self.name, "messages": messages, "temperature": 0.0, **options}

    def _data_url(self, one: Picture) -> str:
        assert isinstance(one.pixels, Image.Image)
        picture = one.pixels
        if max(picture.size) > self.longest_side:
            picture = picture.copy()
            picture.thumbnail((self.longest_side, self.longest_side))
        buffer = io.BytesIO()
        if self.jpeg_quality is None:
            picture.save(buffer, "PNG")
        else:
            picture.save(buffer, "JPEG", quality=self.jpeg_quality)
        kind = "png" if self.jpeg_quality is None else "jpeg"
        return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _reader(words: Sequence[str], most_unknown: float, what: str) -> Callable[[Answer], Listed]:
    return lambda answer: read_listed(answer, words, most_unknown, what)


def _use(answer: Answer | Exception, read: Callable[[Answer], Result]) -> Result | Exception:
    """What `read` makes of an answer, or why there is nothing to be read."""
    if isinstance(answer, Exception):
        return answer
    try:
        return read(answer)
    except GaveUp as error:
        return error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # JSON of another shape, or numbers that no float holds.
        return GaveUp(f"the server's answer cannot be used: {type(error).__name__}: {error}")
