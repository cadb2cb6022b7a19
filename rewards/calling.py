"""The two conventions in which trainers call a reward, as thin adapters of :meth:`rewards.reward.Reward.score`.

TRL calls with keywords and wants a list of numbers and None; the diffusion field (ddpo-pytorch, flow_grpo) calls
`(images, prompts, metadata)` and wants an array and a dict.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Protocol
from weakref import WeakSet

import numpy as np

from rewards.errors import InputError
from rewards.images import as_list
from rewards.scores import Scores, number_or_none
from rewards.trl_inputs import completion_picture, completion_text, prompt_text, row_boxes, row_images, row_inputs

logger = logging.getLogger(__name__)

LogMetric = Callable[[str, float], None]
LogExtra = Callable[[str, list[object]], None]


class Scorer(Protocol):
    """What a convention needs of a :class:`~rewards.reward.Reward`."""

    __name__: str

    def score(self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        """See :meth:`rewards.reward.Reward.score`."""

    def metrics(self, scores: Scores) -> dict[str, float]:
        """See :meth:`rewards.reward.Reward.metrics`."""


def score_guarded(
    reward: Scorer, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]
) -> Scores:
    """:meth:`Reward.score` for long runs: a reward that fails costs its samples and nothing else.

    Returns:
        The scores; all NaN, with the error as reason, where the reward raised.

    Raises:
        InputError: the reward refused its input: a mistake of the caller, which no repetition mends.
    """
    try:
        return reward.score(images, texts, **columns)
    except InputError:
        raise
    except Exception as error:
        reason = f"{reward.__name__}: {type(error).__name__}: {error}"
        logger.warning("a batch of %d samples could not be scored: %s", len(texts), reason, exc_info=error)
        return Scores.nothing([reason] * len(texts))


def for_pictures(
    reward: Scorer, images: Sequence[object] | None, prompts: Sequence[object], metadata: Sequence[object] | None
) -> tuple[np.ndarray, dict[str, float]]:
    """A reward in the convention of diffusion trainers.

    Args:
        reward: what scores.
        images: N pictures: `(N, 3, H, W)` in [0, 1], `(N, H, W, 3)` of bytes, or a list.
        prompts: N texts.
        metadata: N mappings, or None.

    Returns:
        The rewards, `(N,)` float32 with NaN for abstentions, and the batch's metrics.
    """
    if images is None:
        raise InputError(f"{reward.__name__} needs the pictures")
    columns = {} if metadata is None else {"metadata": metadata}
    scores = reward.score(images, list(prompts), **columns)  # type: ignore[arg-type]
    return scores.overall.float().numpy(), reward.metrics(scores)


def for_trl(
    reward: Scorer, prompts: Sequence[object], completions: Sequence[object], columns: Mapping[str, object]
) -> list[float | None]:
    """A reward in TRL's convention.

    Args:
        reward: what scores.
        prompts: N prompts, conversational or plain.
        completions: N completions, conversational or plain: texts, or pictures where the model draws.
        columns: the data set's columns and TRL's own keywords. `image` or `images` (else the prompt's image blocks);
            `question`, `query` or `input` (else the prompt's text); `box` or `bbox`; `log_metric`, `log_extra`.

    Returns:
        N scores, None where a completion could not be judged.
    """
    warn_of_sums(reward, columns)
    scores = score_for_trl(reward, prompts, completions, columns)
    log_to_trl(reward, scores, columns)
    return [number_or_none(value) for value in scores.overall.tolist()]


def asynchronous(reward: Scorer) -> Callable[..., Coroutine[object, object, list[float | None]]]:
    """A reward as an async reward function of TRL's, which awaits all of its async functions together.

    For judges behind HTTP: while one reward waits for its server, TRL's other async rewards and tools go on. A call
    that is cancelled logs nothing; what its server still answers is dropped. (:class:`rewards.Combined` asks several
    servers at the same time by itself, and TRL's `AsyncGRPOTrainer` puts any reward into a thread.)

    Args:
        reward: what scores, in a thread of its own.

    Returns:
        A coroutine function of the reward's name, called as :func:`for_trl`.

    Example:
        >>> from rewards import FunctionReward
        >>> def length(completions, **columns): return [float(len(text)) for text in completions]
        >>> function = asynchronous(FunctionReward(length))
        >>> asyncio.run(function(prompts=["?"], completions=["four"], image=[None]))
        [4.0]
    """

    async def score(prompts: Sequence[object], completions: Sequence[object], **columns: object) -> list[float | None]:
        warn_of_sums(reward, columns)
        scores = await asyncio.to_thread(score_for_trl, reward, prompts, completions, columns)
        log_to_trl(reward, scores, columns)
        return [number_or_none(value) for value in scores.overall.tolist()]

    score.__name__ = reward.__name__
    score.__wrapped__ = reward  # type: ignore[attr-defined]
    return score


def score_for_trl(
    reward: Scorer, prompts: Sequence[object], completions: Sequence[object], columns: Mapping[str, object]
) -> Scores:
    """The scores of a batch that TRL hands over, every part of them; arguments as in :func:`for_trl`."""
    prompts, completions = _rows(prompts, "prompts"), _rows(completions, "completions")
    if len(prompts) != len(completions):
        raise InputError(f"got {len(prompts)} prompts for {len(completions)} completions; expected one each")
    listed = {name: as_list(values) for name, values in columns.items()}
    rows = {name: values for name, values in listed.items() if values is not None and len(values) == len(completions)}
    rows |= {"prompts": prompts, "completions": completions}
    pictures = [completion_picture(completion) for completion in completions]
    if any(picture is not None for picture in pictures):
        return score_guarded(reward, pictures, [prompt_text(prompt) for prompt in prompts], **rows)
    images = row_images(columns, prompts)
    if completions and all(image is None for image in images):
        logger.warning(
            "%s: no row of the batch has a picture; give the data set an 'image' or 'images' column and set "
            "remove_unused_columns=False",
            reward.__name__,
        )
    rows["inputs"] = row_inputs(columns, prompts)
    if (boxes := row_boxes(columns)) is not None:
        rows["boxes"] = boxes
    return score_guarded(reward, images, [completion_text(completion) for completion in completions], **rows)


def _rows(values: Sequence[object], what: str) -> list[object]:
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return list(values)
    if (found := as_list(values)) is None:
        raise InputError(f"{what} must be a list, got a single {type(values).__name__}")
    return found


def log_to_trl(reward: Scorer, scores: Scores, columns: Mapping[str, object]) -> None:
    """Hand a batch to TRL's loggers, where it gave any; warn of abstentions with the first reason."""
    if scores.abstained.any():
        first = next(reason for reason in scores.reasons if reason is not None)
        count = int(scores.abstained.sum())
        logger.warning("%s: %d of %d samples could not be judged: %s", reward.__name__, count, len(scores), first)
    log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
    if callable(log_metric):
        for key, value in reward.metrics(scores).items():
            if value == value:  # TRL averages what it is given: one NaN would take the whole curve
                log_metric(key, value)
    if callable(log_extra):
        for column, part in enumerate(scores.part_names):
            log_extra(f"{reward.__name__}/{part}", [number_or_none(v) for v in scores.parts[:, column].tolist()])
        log_extra(f"{reward.__name__}/abstained", list(scores.reasons))


def warn_of_sums(reward: Scorer, columns: Mapping[str, object]) -> None:
    """Warn, once a trainer, where TRL sums this reward with others by itself.

    TRL sums its reward functions with `nansum`: a text that this reward cannot judge, and another can, counts as 0 in
    the sum and becomes the worst of its group. Rewards that abstain together (:class:`rewards.Combined`) do not.
    """
    trainer = getattr(columns.get("log_metric"), "__self__", None)  # TRL hands on a method of its trainer
    functions = getattr(trainer, "reward_funcs", None)
    if not isinstance(functions, Sequence) or len(functions) < 2 or trainer in _WARNED:
        return
    others = [str(getattr(f, "__name__", type(f).__name__)) for f in functions if inspect.unwrap(f) is not reward]
    logger.warning(
        "TRL adds %s to %s by itself: a text that one of them cannot judge counts as 0 there, and its group is trained "
        "away from it. Put them together: reward_funcs=Combined([...], weights), or Combined([...]).per_reward() for "
        "a curve of each",
        reward.__name__,
        ", ".join(others),
    )
    _WARNED.add(trainer)


_WARNED: WeakSet[object] = WeakSet()


class PartFunction:
    """One part of a reward as a TRL reward function; its siblings share its pass of the judge."""

    def __init__(self, shared: _SharedPass, part: str) -> None:
        self._shared = shared
        self.part = part
        self.__name__ = f"{shared.reward.__name__}/{part}"

    def __call__(
        self, prompts: Sequence[object], completions: Sequence[object], **columns: object
    ) -> list[float | None]:
        """The part's score of every completion; None where the completion as a whole could not be judged, or where
        this part does not apply to it."""
        self._shared.warn_of_sums(columns)
        scores = self._shared.scores(self.part, prompts, completions, columns)
        column = (
            scores.parts[:, scores.part_names.index(self.part)] if self.part in scores.part_names else scores.overall
        )
        return [None if out else number_or_none(v) for v, out in zip(column.tolist(), scores.abstained.tolist())]


def part_functions(reward: Scorer, parts: Sequence[str]) -> list[PartFunction]:
    """TRL reward functions, one for each of some parts of a reward, that judge a batch once.

    A sample that abstains as a whole is None in all of them: TRL sums several functions with `nansum`, so that a
    number beside a None would count the failed judgment as 0. Weigh them by `GRPOConfig(reward_weights=...)`; pass all
    of them to the trainer.

    Args:
        reward: what scores.
        parts: names of parts, in the wanted order.
    """
    shared = _SharedPass(reward)
    return [PartFunction(shared, part) for part in parts]


class _SharedPass:
    """The scores of the batch at hand. A batch is the `completions` object that TRL passes to every function in turn;
    a part that asks again for the same object starts a new round."""

    def __init__(self, reward: Scorer) -> None:
        self.reward = reward
        self._lock = threading.Lock()
        self._completions: Sequence[object] | None = None
        self._taken: set[str] = set()
        self._scores = Scores.nothing([])

    def warn_of_sums(self, columns: Mapping[str, object]) -> None:
        """Warn where others than the parts of this pass are summed with them."""
        functions = getattr(getattr(columns.get("log_metric"), "__self__", None), "reward_funcs", ())
        if not all(isinstance(function, PartFunction) and function._shared is self for function in functions):
            warn_of_sums(self.reward, columns)

    def __reduce__(self) -> tuple[type[_SharedPass], tuple[Scorer]]:
        return type(self), (self.reward,)

    def scores(
        self, part: str, prompts: Sequence[object], completions: Sequence[object], columns: Mapping[str, object]
    ) -> Scores:
        # The lock is held during the judge's pass: a sibling on another thread waits for it instead of repeating it.
        with self._lock:
            if self._completions is not completions or part in self._taken:
                self._scores = score_for_trl(self.reward, prompts, completions, columns)
                self._completions, self._taken = completions, set()
                log_to_trl(self.reward, self._scores, columns)
            self._taken.add(part)
            return self._scores
