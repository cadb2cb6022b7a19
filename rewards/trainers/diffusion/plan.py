"""What an epoch takes: its prompts and its learning rate, from the settings and the epoch's number alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.randomness import derived_seed

Prompt = str | tuple[str, Mapping[str, object]]


def prompt_indices(count: int, wanted: int, epoch: int, seed: int) -> list[int]:
    """The prompts of an epoch: an endless row of shuffled passes through all prompts, cut into epochs.

    Args:
        count: Number of prompts.
        wanted: Prompts an epoch.
        epoch: Which epoch.
        seed: Of the shuffles.

    Returns:
        Indices into the prompts. They depend on the arguments alone, so a resumed run goes on where it was.

    Example:
        >>> sorted(prompt_indices(4, 2, 0, 0) + prompt_indices(4, 2, 1, 0))
        [0, 1, 2, 3]
    """
    indices = []
    for position in range(epoch * wanted, (epoch + 1) * wanted):
        shuffle = np.random.default_rng(derived_seed(seed, "prompts", position // count)).permutation(count)
        indices.append(int(shuffle[position % count]))
    return indices


@dataclass
class RateSchedule:
    """The learning rate of each epoch: warm-up, then constant, or falling to 0 after the last epoch.

    A run that is extended (or shortened) does not jump: it goes on from the rate of its last epoch, which falls from
    there to 0 at the new end.

    Attributes:
        args: The settings.
        epochs: The end that the rates were planned for.
        start: The epoch from which the fall counts.
        rate: The rate there.

    Example:
        >>> schedule = RateSchedule.new(DiffusionConfig(train_lr_schedule="linear", train_learning_rate=1.0), 10)
        >>> schedule.at(5)
        0.5
        >>> schedule.replan(done=6, epochs=16)
        >>> schedule.at(6), schedule.at(11)
        (0.5, 0.25)
    """

    args: DiffusionConfig
    epochs: int
    start: int
    rate: float

    @staticmethod
    def new(args: DiffusionConfig, epochs: int) -> RateSchedule:
        """The schedule of a run of this many epochs."""
        return RateSchedule(args, epochs, args.train_lr_warmup_epochs, args.train_learning_rate)

    def at(self, epoch: int) -> float:
        """The rate of an epoch."""
        if epoch < self.args.train_lr_warmup_epochs:
            return self.args.train_learning_rate * (epoch + 1) / (self.args.train_lr_warmup_epochs + 1)
        done = (epoch - self.start) / max(1, self.epochs - self.start)
        factor = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
        return self.rate * factor[self.args.train_lr_schedule]

    def replan(self, done: int, epochs: int) -> None:
        """Take another end, with `done` epochs behind."""
        if epochs != self.epochs and done > self.args.train_lr_warmup_epochs:
            self.start, self.rate = done, self.at(done - 1)
        self.epochs = epochs


def split_prompts(prompts: Sequence[Prompt]) -> tuple[list[str], list[Mapping[str, object]]]:
    """Texts and metadata of prompts, an empty mapping where none was given.

    Raises:
        InputError: One text instead of several, or a prompt that is neither a text nor a pair of a text and a mapping,
            with its index.
    """
    if isinstance(prompts, str):
        raise InputError(f"prompts is the text {prompts!r:.80}; a list of texts is needed, such as [{prompts!r:.80}]")
    texts: list[str] = []
    metadata: list[Mapping[str, object]] = []
    for index, prompt in enumerate(prompts):
        text, extra = prompt if isinstance(prompt, tuple) and len(prompt) == 2 else (prompt, {})
        if not isinstance(text, str) or not isinstance(extra, Mapping):
            raise InputError(f"prompt {index}: expected a text or a (text, mapping) pair, got {prompt!r:.80}")
        texts.append(text)
        metadata.append(extra)
    return texts, metadata
