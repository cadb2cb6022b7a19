"""What writes questions: the interface of language models, and the prompt that chat models are given.

A description that got no output has None and the reason, and never an empty text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple, Protocol

from rewards.runs.files import Json

NEW_TOKENS = 2048
"""Longest output in tokens: a description of ten elements needs about 900."""


class Completion(NamedTuple):
    """A model's output for one description.

    Attributes:
        text: What it wrote, or None where it could not.
        cut_off: Whether it was stopped at the longest output.
        error: Why there is no text.
    """

    text: str | None
    cut_off: bool = False
    error: str | None = None


class LanguageModel(Protocol):
    """Writes the questions of descriptions, and whatever else it is asked for."""

    def identity(self) -> dict[str, Json]:
        """Model, revision and prompt hash, for the provenance of every question."""
        ...

    def complete(self, descriptions: Sequence[str]) -> list[Completion]:
        """TIFA's questions of each description (a text of one line), in order, at temperature 0."""
        ...

    def write(self, shots: str, inputs: Sequence[str], stop: str) -> list[Completion]:
        """What the model writes after instruction and examples (`shots`) and each input, at temperature 0, as far as
        `stop`, where it writes that."""
        ...


@cache
def few_shot_prompt() -> str:
    """Instruction and worked examples (TIFA §3.1: 15, the same for every description), without the description."""
    folder = files("rewards.tifa.questions") / "prompts"
    instruction, examples = (
        (folder / name).read_text(encoding="utf-8").strip() for name in ("instruction.txt", "examples.txt")
    )
    return f"{instruction}\n\n{examples}\n\n"


def prompt_hash(text: str) -> str:
    """16 hexadecimal digits of a prompt's SHA-256, recorded with every question."""
    return sha256(text.encode()).hexdigest()[:16]
