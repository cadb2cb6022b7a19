"""``samples.jsonl``: the pictures and texts that a report shows, kept by the trainers beside ``metrics.jsonl``.

One JSON object a line::

    {"step": 12, "phase": "before" | "during" | "after", "prompt": "a red circle",
     "image": "samples/000012-03.png"            # a file in the run folder; for models that draw
     "text": "a red circle on white",            # for models that write ("image" is then the picture written about)
     "score": 0.75,                              # the training reward, null where the judge abstained
     "parts": {"color": 1.0, "shape": 0.5},      # by criterion or element type
     "details": [{"question": "what color is the circle?", "answer": "blue", "expected": "red", "right": false}],
     "index": 3}                                 # the prompt's number, where not the first are kept in order

``details`` rows are free-form objects; the report shows their fields as a small table. The same prompts should be
written in each phase (a fixed held-out set), so that before and after stand side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from PIL import Image

from rewards.errors import InputError
from rewards.runs.files import Json, Row, append_line, keep_lines
from rewards.runs.metrics import read_steps

PHASES = ("before", "during", "after")
Phase = Literal["before", "during", "after"]


class SampleLog:
    """Appends samples to ``samples.jsonl`` and their pictures to ``samples/`` in a run folder.

    Args:
        folder: The run folder (the one that holds ``metrics.jsonl``).

    Example:
        >>> import tempfile
        >>> log = SampleLog(tempfile.mkdtemp())
        >>> log.append(0, "before", prompt="", text="a red circle", score=3.5, parts={"fluency": 4.0})
        >>> read_samples(log.folder)[0]["text"]
        'a red circle'
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "samples.jsonl"

    def append(
        self,
        step: int,
        phase: Phase,
        prompt: str,
        *,
        image: Image.Image | None = None,
        text: str | None = None,
        score: float | None = None,
        parts: Mapping[str, float | None] | None = None,
        details: Sequence[Mapping[str, Json]] | None = None,
        index: int | None = None,
    ) -> None:
        """Write one sample.

        Args:
            step: Training step at which it was made.
            phase: ``before`` the first update, ``during`` or ``after`` the training.
            prompt: What the model was asked.
            image: The picture that was drawn or described; saved as PNG.
            text: What a model that writes wrote.
            score: The reward; None or NaN where the judge abstained.
            parts: Score by criterion or element type.
            details: The judge's answers, a mapping each.
            index: Number of the prompt in the held-out set, where not the first of them are written in order.

        Raises:
            InputError: An unknown phase, or neither a picture nor a text.
            OSError: A file cannot be written.
        """
        if phase not in PHASES:
            raise InputError(f"phase must be one of {', '.join(PHASES)}, got {phase!r}")
        if image is None and text is None:
            raise InputError("a sample needs an image or a text")
        row: dict[str, Json] = {"step": int(step), "phase": phase, "prompt": prompt}
        if image is not None:
            row["image"] = self._save(image, step, phase)
        if text is not None:
            row["text"] = text
        row["score"] = _finite(score)
        row["parts"] = {name: _finite(value) for name, value in (parts or {}).items()}
        row["details"] = [dict(detail) for detail in details or []]
        if index is not None:
            row["index"] = index
        append_line(self.path, row)

    def keep_until(self, step: int) -> None:
        """Drop samples made after ``step`` (see :meth:`rewards.runs.metrics.MetricsLog.keep_until`)."""
        keep_lines(self.path, lambda row: row["step"] <= step and row["phase"] != "after")

    def _save(self, image: Image.Image, step: int, phase: str) -> str:
        pictures = self.folder / "samples"
        pictures.mkdir(exist_ok=True)
        number = 0
        while (name := pictures / f"{phase}-{step:06d}-{number:03d}.png").exists():
            number += 1
        image.save(name)
        return f"samples/{name.name}"


def read_samples(folder: str | Path) -> list[Row]:
    """The samples of a run folder, oldest first; an empty list where there are none.

    Raises:
        InputError: A damaged line that is not the last one.
    """
    path = Path(folder) / "samples.jsonl"
    return read_steps(path) if path.exists() else []


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
