"""The one interface between whoever judges and whoever uses a judgment: :class:`Reward`.

HarmonicEval, TIFA, functions of a user's own and weighted sums are rewards. Trainers, jobs and hosts call
:meth:`Reward.score` and find everything in the :class:`~rewards.scores.Scores` that come back. Nobody asks which reward
it is, and nobody judges twice to see the parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
from torch import Tensor

from rewards import calling
from rewards.errors import InputError
from rewards.runs.files import Json
from rewards.scores import Scores


class Reward(ABC):
    """Something that scores pictures with texts. Subclasses say how; everything that uses rewards takes this type.

    A reward is picklable and has a `__name__`, under which its curves are kept. Its score of a sample depends on that
    sample alone, not on the batch.

    Attributes:
        judges: what a sample is: "texts" about a picture, or "pictures" made from a text; None: either.
        remembers: whether a score depends on the samples that were scored before.
    """

    __name__: str
    judges: Literal["texts", "pictures"] | None = None
    remembers: bool = False

    @abstractmethod
    def score(self, images: Sequence[object], texts: Sequence[str | None], /, **columns: Sequence[object]) -> Scores:
        """Score N samples.

        Args:
            images: N pictures in any form that :func:`rewards.images.to_pil` takes, or a batched tensor or array. An
                entry may be a list of pictures where the reward can use several; None where there is none.
            texts: N texts: what was written about each picture, or the prompt that it was made from. None abstains.
            columns: further values, one a sample (`inputs`: questions; `boxes`; columns of a data set). A reward takes
                those that it knows and leaves the others.

        Returns:
            The scores. A sample that cannot be judged abstains, and changes no other sample.

        Raises:
            InputError: the call as a whole cannot be answered (lists that differ in length, a column that is missing).
        """

    @abstractmethod
    def identity(self, texts: Sequence[str] | None = None) -> dict[str, Json]:
        """What a score depends on beside its sample, as JSON: settings, prompts, questions, the judge's identity.

        Two rewards of equal identity give equal scores; runs, jobs and caches compare it before they go on.

        Args:
            texts: the prompts that will be scored, where they are known: what belongs to others is left out (TIFA:
                their questions).
        """

    def metrics(self, scores: Scores) -> dict[str, float]:
        """Flat numbers of a batch for curves and trackers, see :meth:`Scores.metrics`."""
        return scores.metrics(self.__name__)

    def for_evaluation(self) -> Reward:
        """The reward as held-out samples are judged: on a scale that does not move with training. Most: itself."""
        return self

    def parts_to_train(self) -> Mapping[str, float]:
        """The parts that every sample has, by name, with the weight of each where a trainer takes the parts one by one
        (`per_criterion`). Empty where the parts depend on the samples."""
        return {}

    @property
    def takes_tensors(self) -> bool:
        """Whether pictures that are tensors on an accelerator may stay there; others get them on the CPU."""
        return False

    @property
    def elsewhere(self) -> bool:
        """Whether :meth:`score` mostly waits for a server; a sum of rewards then asks several at the same time."""
        return bool(getattr(getattr(self, "judge", None), "elsewhere", False))

    @property
    def gradient_problem(self) -> str | None:
        """Why :meth:`score_with_grad` cannot be called; None where it can."""
        return f"{self.__name__} has no gradient to the pixels: take a method that needs none"

    def score_with_grad(self, images: Tensor, texts: Sequence[str], /, **columns: Sequence[object]) -> Scores:
        """:meth:`score` whose overall scores keep their gradient to the pixels.

        Args:
            images: `(N, 3, H, W)` in [0, 1], with a gradient.
            texts, columns: as :meth:`score`.

        Returns:
            The same scores; `overall` stays on the judge's device. NaN for an abstention, without a gradient.

        Raises:
            InputError: this reward has no gradient.
        """
        raise InputError(self.gradient_problem or f"{self.__name__} does not say how it keeps a gradient")

    def check_prompts(self, texts: Sequence[str]) -> None:  # noqa: B027 - most have nothing to check
        """Called before anything is generated for these prompts.

        Raises:
            InputError: it is already clear that pictures of a prompt could not be scored (TIFA: it has no questions).
        """

    def check_columns(self, columns: Mapping[str, Sequence[object]]) -> None:  # noqa: B027
        """Called before a run trains on the rows of a data set, with its columns but the pictures.

        Raises:
            InputError: a column that this reward reads is missing, or a cell of it cannot be used (a rubric: it is no
                checklist), by its row.
        """

    @overload
    def __call__(
        self, images: Sequence[object], prompts: Sequence[str], metadata: Sequence[object] | None = None
    ) -> tuple[np.ndarray, dict[str, float]]: ...

    @overload
    def __call__(
        self, *, prompts: Sequence[object], completions: Sequence[object], **columns: Any
    ) -> list[float | None]: ...

    def __call__(
        self,
        images: Sequence[object] | None = None,
        prompts: Sequence[object] | None = None,
        metadata: Sequence[object] | None = None,
        *,
        completions: Sequence[object] | None = None,
        **columns: Any,
    ) -> tuple[np.ndarray, dict[str, float]] | list[float | None]:
        """The score in the convention of the caller.

        Diffusion trainers call `(images, prompts, metadata=None)` and get :func:`rewards.calling.for_pictures`: a
        float32 array `(N,)` with NaN for abstentions, and the metrics. TRL calls with keywords, `completions` among
        them, and gets :func:`rewards.calling.for_trl`: a list with None for abstentions.
        """
        if prompts is None:
            raise InputError(f"{self.__name__} needs the prompts")
        if completions is None:
            return calling.for_pictures(self, images, prompts, metadata)
        given = {"images": images, "metadata": metadata, **columns}
        columns = {name: values for name, values in given.items() if values is not None}
        return calling.for_trl(self, prompts, completions, columns)

    def state_dict(self) -> dict[str, Json]:
        """What the reward has learned from the samples so far and a checkpoint must keep; nothing for most."""
        return {}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:  # noqa: B027 - most keep nothing
        """Take over what :meth:`state_dict` gave."""
