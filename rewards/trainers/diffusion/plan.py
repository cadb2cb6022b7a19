"""What an epoch takes: its prompts and its learning rate, from the settings and the epoch's number alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DDPOConfig
from rewards.trainers.diffusion.policy import derived_seed

Prompt = str | tuple[str, Mapping[str, Any]]


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


def learning_rate(args: DDPOConfig, epoch: int) -> float:
    """The learning rate of an epoch: warm-up, then constant, or falling to 0 after the last epoch.

    Example:
        >>> learning_rate(DDPOConfig(num_epochs=10, train_lr_schedule="linear", train_learning_rate=1.0), 5)
        0.5
    """
    if epoch < args.train_lr_warmup_epochs:
        return args.train_learning_rate * (epoch + 1) / (args.train_lr_warmup_epochs + 1)
    done = (epoch - args.train_lr_warmup_epochs) / max(1, args.num_epochs - args.train_lr_warmup_epochs)
    factor = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
    return args.train_learning_rate * factor[args.train_lr_schedule]


def split_prompts(prompts: Sequence[Prompt]) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Texts and metadata of prompts, an empty mapping where none was given.

    Raises:
        InputError: A prompt that is neither a text nor a pair of a text and a mapping, with its index.
    """
    texts: list[str] = []
    metadata: list[Mapping[str, Any]] = []
    for index, prompt in enumerate(prompts):
        text, extra = prompt if isinstance(prompt, tuple) and len(prompt) == 2 else (prompt, {})
        if not isinstance(text, str) or not isinstance(extra, Mapping):
            raise InputError(f"prompt {index}: expected a text or a (text, mapping) pair, got {prompt!r:.80}")
        texts.append(text)
        metadata.append(extra)
    return texts, metadata
