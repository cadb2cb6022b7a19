"""A chat model behind an OpenAI-compatible server as the writer of questions, with the chat judge's limits and
retries.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rewards.judges.elsewhere.http import Budget, Connection, GaveUp
from rewards.judges.elsewhere.said import read_answer, was_cut
from rewards.runs.files import Json
from rewards.tifa.questions.language_model import NEW_TOKENS, Completion, few_shot_prompt, prompt_hash


class ServerModel:
    """Asks a server for the questions of descriptions, at temperature 0.

    Args:
        base_url: Up to and including `/v1`.
        model: The server's name of the model.
        api_key_env: Environment variable that holds the key; the key itself is never an argument or logged.
        concurrency: Most requests at a time.
        requests_per_minute: Budget; None for none.
        tokens_per_minute: Budget of prompts and longest outputs, estimated at 4 characters a token; None for none.
        deadline: Seconds after which a description goes without questions.
        timeout: Seconds that one attempt may take.
        new_tokens: Longest output in tokens.

    Raises:
        RewardsError: No server answers there, or it refuses the key.
        InputError: The server has no such model.

    Example:
        >>> model = ServerModel("http://localhost:8000/v1", "Qwen/Qwen3-8B")  # doctest: +SKIP
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        deadline: float = 300.0,
        timeout: float = 120.0,
        new_tokens: int = NEW_TOKENS,
    ) -> None:
        self.name = model
        self.new_tokens = new_tokens
        self.concurrency = concurrency
        self._budget = Budget(requests_per_minute, tokens_per_minute)
        self._connection = Connection(base_url, os.environ.get(api_key_env), deadline, timeout)
        self._connection.require_model(model)

    def identity(self) -> dict[str, Json]:
        """Model, server and prompt hash."""
        return {
            "model": self.name,
            "revision": None,
            "server": self._connection.base_url,
            "prompt_hash": prompt_hash(few_shot_prompt()),
            "decoding": "temperature 0",
        }

    def complete(self, descriptions: Sequence[str]) -> list[Completion]:
        """One output a description; None with the reason where the server gave none before the deadline."""
        return self.write(few_shot_prompt(), [f"Description: {description}" for description in descriptions])

    def write(self, shots: str, inputs: Sequence[str], stop: str | None = None) -> list[Completion]:
        """One output an input, as far as `stop`; None with the reason as :meth:`complete`."""
        self._connection.begin()
        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="questions") as pool:
            return list(pool.map(lambda text: self._one(shots + text, stop), inputs))

    def _one(self, request: str, stop: str | None) -> Completion:
        body: dict[str, Json] = {
            "model": self.name,
            "messages": [{"role": "user", "content": request}],
            "temperature": 0.0,
            "max_tokens": self.new_tokens,
        }
        if stop is not None:
            body["stop"] = [stop]
        try:
            tokens = len(request) // 4 + self.new_tokens
            answer = self._connection.post("/chat/completions", body, self._budget, tokens)
            text = read_answer(answer, may_be_cut=True)
            return Completion(text, cut_off=was_cut(answer["choices"][0]))
        except GaveUp as error:
            return Completion(None, error=str(error))
        except (KeyError, IndexError, TypeError, AttributeError) as error:  # JSON of another shape
            return Completion(None, error=f"the server's answer cannot be used: {type(error).__name__}: {error}")
