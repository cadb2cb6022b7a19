"""UnifiedQA v2 (T5): answers questions from a text alone, with the choices at hand and without (TIFA §3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase

from rewards.errors import InputError
from rewards.judges.local import resolve_device, resolve_dtype
from rewards.runs.files import Json
from rewards.tifa.questions.question import Question

UNIFIEDQA = "allenai/unifiedqa-v2-t5-large-1363200"
"""The checkpoint of the paper and the released code."""

Encoding = Literal["unifiedqa", "released"]

_NEW_TOKENS = 30
_SEPARATOR = " \\n "


class TextAnswerer(Protocol):
    """Answers questions from their prompts."""

    def identity(self) -> dict[str, Json]:
        """What must be recorded with its answers."""
        ...

    def answer(self, questions: Sequence[Question]) -> list[tuple[str, str]]:
        """(answer with the choices at hand, free-form answer), one pair a question."""
        ...


class UnifiedQA:
    """A T5 model of the UnifiedQA family, greedy, in batches that do not change its answers.

    Inputs are encoded as UnifiedQA was trained (see :func:`encode`), or as the released TIFA code encodes them.

    Args:
        name: Checkpoint or directory.
        device: Default: this process's GPU, else the CPU.
        dtype: Default: float32 on the CPU, the checkpoint's own elsewhere.
        revision: Branch, tag or commit.
        encoding: "unifiedqa" or "released".

    Raises:
        InputError: No such checkpoint, or an unknown encoding.
    """

    def __init__(
        self,
        name: str = UNIFIEDQA,
        device: str | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        encoding: Encoding = "unifiedqa",
    ) -> None:
        if encoding not in ("unifiedqa", "released"):
            raise InputError(f"encoding is {encoding!r}; expected 'unifiedqa' or 'released'")
        self.encoding = encoding
        self.device = resolve_device(device)
        try:
            self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name, revision=revision)
            model: Any = AutoModelForSeq2SeqLM.from_pretrained(
                name, revision=revision, dtype=resolve_dtype(dtype, self.device)
            )
        except (OSError, ValueError) as error:
            raise InputError(f"text model {name!r} cannot be loaded: {str(error).splitlines()[0]}") from error
        self.model = model.to(self.device).eval().requires_grad_(False)
        self.name = name
        self.revision = getattr(self.model.config, "_commit_hash", None) or revision

    def identity(self) -> dict[str, Json]:
        """Name, revision, dtype and encoding."""
        dtype = str(self.model.dtype).removeprefix("torch.")
        return {"name": self.name, "revision": self.revision, "dtype": dtype, "encoding": self.encoding}

    def answer(self, questions: Sequence[Question]) -> list[tuple[str, str]]:
        """(answer with the choices at hand, free-form answer), one pair a question."""
        if not questions:
            return []
        answers = self.complete([encode(q, choices, self.encoding) for choices in (True, False) for q in questions])
        return list(zip(answers[: len(questions)], answers[len(questions) :]))

    @torch.inference_mode()
    def complete(self, texts: Sequence[str]) -> list[str]:
        """The model's answers to encoded questions."""
        inputs = self.tokenizer(list(texts), return_tensors="pt", padding=True).to(self.device)
        inputs.pop("token_type_ids", None)
        outputs = self.model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=_NEW_TOKENS)
        return [text.strip() for text in self.tokenizer.batch_decode(outputs, skip_special_tokens=True)]


def encode(question: Question, with_choices: bool, encoding: Encoding = "unifiedqa") -> str:
    """A question as UnifiedQA reads it.

    "unifiedqa": as the model was trained: in lower case, the parts separated by a backslash and an n, every choice
    lettered, choices before the text. "released": as TIFA's released code writes it: separated by a newline, which T5's
    tokenizer reads as a blank, in any case, the choices last, and no more than four of them.

    Example:
        >>> asked = Question("How many?", ("1", "2"), "2", "two", "counting", "Two cats.")
        >>> print(encode(asked, with_choices=True))
        how many? \\n (a) 1 (b) 2 \\n two cats.
        >>> encode(asked, True, "released")
        'How many? \\n Two cats. \\n (A) 1 (B) 2 '
    """
    if encoding == "released":
        choices = "".join(f"({letter}) {choice} " for letter, choice in zip("ABCD", question.choices))
        return f"{question.text} \n {question.prompt}" + (f" \n {choices}" if with_choices else "")
    parts = [question.text, question.prompt]
    if with_choices:
        parts.insert(
            1, " ".join(f"({chr(ord('a') + index)}) {choice}" for index, choice in enumerate(question.options))
        )
    return _SEPARATOR.join(" ".join(part.split()) for part in parts).lower()
