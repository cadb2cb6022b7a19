"""HarmonicEval's criteria as separate reward functions that share one pass of the judge."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.harmonic.reward import HarmonicEval, optional_floats
from rewards.harmonic.scores import HarmonicScores


class CriterionReward:
    """The score of one criterion as a TRL reward function; made by :meth:`HarmonicEval.per_criterion`."""

    def __init__(self, shared: SharedPass, column: int) -> None:
        self._shared = shared
        self._column = column
        self.criterion = shared.reward.criteria[column]
        self.__name__ = f"{shared.reward.__name__}/{self.criterion}"

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The criterion's expected rating for every completion, None where it could not be judged.

        Takes what :meth:`HarmonicEval.__call__` takes. The first of the sibling functions that is called on a batch
        runs the judge and logs; the others re-use its scores.
        """
        scores, first = self._shared.scores(self._column, prompts, completions, columns)
        if first:
            self._shared.reward.log(scores, log_metric, log_extra)
        return optional_floats(scores.criteria[:, self._column])


@dataclass
class _Pass:
    """A judged batch: what it was made of (held, so that no identity is used twice), and which criteria took it."""

    key: tuple[Any, ...]
    held: list[Any]
    scores: HarmonicScores
    taken: set[int] = field(default_factory=set)


class SharedPass:
    """Scores of the last few batches, so that sibling criteria judge a batch once.

    A batch is recognised by its texts, questions and boxes, and by the identity of its image objects. A criterion that
    asks for a batch a second time is taken as the start of a new round: the scores are re-used, but logged anew.
    """

    KEPT = 4

    def __init__(self, reward: HarmonicEval) -> None:
        self.reward = reward
        self._lock = threading.Lock()
        self._passes: list[_Pass] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"reward": self.reward}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["reward"])  # type: ignore[misc]

    def scores(
        self, column: int, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> tuple[HarmonicScores, bool]:
        """The scores of a batch, and whether the caller is the first of its round."""
        arguments = self.reward.read_columns(prompts, completions, columns)
        images = arguments["images"]
        held = [image for entry in images for image in (entry if isinstance(entry, list | tuple) else [entry])]
        key = (
            tuple(arguments["texts"]),
            tuple(len(entry) if isinstance(entry, list | tuple) else -1 for entry in images),
            tuple(id(image) for image in held),
            repr(arguments["inputs"]),
            repr(arguments["boxes"]),
        )
        # The lock is held during the judge's pass: a sibling on another thread waits for it instead of repeating it.
        with self._lock:
            found = next((known for known in self._passes if known.key == key), None)
            if found is None:
                found = _Pass(key, held, self.reward.score(**arguments))
                self._passes = [*self._passes[1 - self.KEPT :], found]
            if column in found.taken:
                found.taken.clear()
            first = not found.taken
            found.taken.add(column)
            return found.scores, first
