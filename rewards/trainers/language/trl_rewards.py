"""Several TRL reward functions at once, where a failed judge must not count as a score of 0.

TRL sums the functions' rewards with `nansum`. With one function a row of None is left out of its group. With several,
a None beside a number counts as 0 in the sum: a caption whose judge failed would look like the worst of its group, and
the policy would be trained away from it. :func:`abstain_together` makes such a row None in every function, which TRL
leaves out.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from rewards.errors import InputError

RewardFunction = Callable[..., Any]


def abstain_together(
    functions: Sequence[RewardFunction], optional: Sequence[RewardFunction] = ()
) -> list[RewardFunction]:
    """Wrap reward functions so that a row abstains in all of them if it abstains in one.

    Args:
        functions: TRL reward functions whose None (or NaN) means "could not be judged".
        optional: TRL reward functions whose None means "does not apply to this row": TRL's own meaning, a contribution
            of 0. They abstain only where one of `functions` does.

    Returns:
        One function for each of `functions`, then one for each of `optional`, with the same names; pass all of them to
        the trainer, in any order. Each batch is scored once, when the first of them is called.

    Raises:
        InputError: for a reward model (`nn.Module`), which TRL treats in another way: keep it out of the list.

    Example:
        >>> def judge(completions, **columns): return [4.0, None]
        >>> def length(completions, **columns): return [-0.1 * len(text) for text in completions]
        >>> together = abstain_together([judge, length])
        >>> completions = ["a", "bb"]
        >>> [function(prompts=["", ""], completions=completions) for function in together]
        [[4.0, None], [-0.1, None]]
    """
    every = [*functions, *optional]
    for function in every:
        if isinstance(function, nn.Module):
            raise InputError(
                f"{type(function).__name__} is a model, not a function: abstain_together takes callables only"
            )
    shared = _SharedBatch(every, required=len(functions))
    return [_Member(shared, column) for column in range(len(every))]


def function_name(function: RewardFunction) -> str:
    """The name that TRL logs for a reward function."""
    return str(getattr(function, "__name__", type(function).__name__))


class _Member:
    def __init__(self, shared: _SharedBatch, column: int) -> None:
        self._shared = shared
        self._column = column
        self.__name__ = function_name(shared.functions[column])

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        return self._shared.column(self._column, prompts, completions, columns)


class _SharedBatch:
    """The rewards of the batch at hand. A batch is the `completions` object that TRL passes to every function in turn;
    a member that asks again for the same object starts a new round."""

    def __init__(self, functions: Sequence[RewardFunction], required: int) -> None:
        self.functions = list(functions)
        self._required = required
        self._lock = threading.Lock()
        self._completions: Any = None
        self._taken: set[int] = set()
        self._rows: list[list[float | None]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"functions": self.functions, "required": self._required}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def column(
        self, column: int, prompts: Sequence[Any], completions: Sequence[Any], columns: dict[str, Any]
    ) -> list[float | None]:
        # The lock is held while the functions run: a member on another thread waits instead of scoring once more.
        with self._lock:
            if self._completions is not completions or column in self._taken:
                self._rows = self._score(prompts, completions, columns)
                self._completions, self._taken = completions, set()
            self._taken.add(column)
            return self._rows[column]

    def _score(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: dict[str, Any]
    ) -> list[list[float | None]]:
        returned = [function(prompts=prompts, completions=completions, **columns) for function in self.functions]
        if any(inspect.isawaitable(result) for result in returned):
            returned = asyncio.run(_await_all(returned))
        rows = []
        for function, result in zip(self.functions, returned):
            if len(result) != len(completions):
                raise InputError(
                    f"reward function {function_name(function)!r} returned {len(result)} rewards for "
                    f"{len(completions)} completions"
                )
            rows.append([None if value is None or math.isnan(value) else float(value) for value in result])
        failed = {place for row in rows[: self._required] for place, value in enumerate(row) if value is None}
        return [[None if place in failed else value for place, value in enumerate(row)] for row in rows]


async def _await_all(results: Sequence[Any]) -> list[Any]:
    async def settle(result: Any) -> Any:
        return await result if inspect.isawaitable(result) else result

    return list(await asyncio.gather(*(settle(result) for result in results)))
