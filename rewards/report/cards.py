"""Single held-out samples on the page: the picture or text, the judge beside the audits, every question's answer."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from PIL import Image

from rewards.report.charts import AUDIT, JUDGE
from rewards.runs.evaluations import HeldOutSample, Judgment
from rewards.runs.files import Json
from rewards.runs.samples import read_samples

LARGEST = 256
"""Pixels on a side of an embedded picture; larger ones are scaled down to keep the page small."""


class Pictures:
    """The pictures that a run kept of its held-out samples.

    Args:
        folder: The run's. The n-th sample that was kept at a step is of the n-th prompt.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[tuple[int, int], str] = {}
        count: dict[int, int] = {}
        for row in read_samples(folder):
            step = row["step"]
            index = row.get("index", count.get(step, 0))
            count[step] = count.get(step, 0) + 1
            if "image" in row:
                self._files[step, index] = row["image"]

    def file(self, step: int, sample: HeldOutSample) -> Path | None:
        """The picture that was drawn at a step, or that a text is about; None where none was kept."""
        name = self._files.get((step, sample.index)) if sample.sample == 0 else None
        if name is None:
            return None
        path = self.folder / name
        inside = path.resolve().is_relative_to(self.folder.resolve())
        return path if inside and path.is_file() else None

    def html(self, step: int, sample: HeldOutSample) -> str:
        """An `<img>` with its data, or nothing."""
        path = self.file(step, sample)
        if path is None:
            return ""
        with Image.open(path) as opened:
            return embedded(opened, sample.prompt)


def embedded(picture: Image.Image, alt: str) -> str:
    """An `<img>` that holds its picture."""
    image = picture.convert("RGB")
    small = max(image.size) <= 96
    image.thumbnail((LARGEST, LARGEST))
    buffer = io.BytesIO()
    image.save(buffer, "PNG" if small else "JPEG", **({} if small else {"quality": 85}))
    data = base64.b64encode(buffer.getvalue()).decode()
    alt, kind = escape(alt, quote=True), "png" if small else "jpeg"
    return f'<img{" class=small" if small else ""} alt="{alt}" src="data:image/{kind};base64,{data}">'


def case(pictures: Pictures, step: int, sample: HeldOutSample) -> str:
    """One sample with all that was judged of it."""
    said = "" if sample.text is None else f'<p class="said">{_said(sample.text)}</p>'
    prompt = f"<p>{escape(sample.prompt)}</p>" if sample.prompt else ""
    body = f"<div>{said}{_judgments(sample)}{_answers(sample)}</div>"
    return f'<div class="case">{prompt}<div class="body">{pictures.html(step, sample)}{body}</div></div>'


def progress(pictures: Pictures, ends: Sequence[tuple[int, HeldOutSample]]) -> str:
    """One prompt at several steps: pictures side by side, texts below each other and the picture they are about."""
    step, sample = ends[0]
    written = sample.text is not None
    shots = ""
    for at, made in ends:
        body = f'<p class="said">{_said(made.text)}</p>' if made.text is not None else pictures.html(at, made)
        shots += f'<div class="shot">{body}step {at}{_judgments(made, parts=written)}</div>'
    head = f"<p>{escape(sample.prompt)}</p>" if sample.prompt else ""
    if written and (picture := pictures.html(step, sample)):
        head = f'<div class="about">{picture}<p>{escape(sample.prompt)}</p></div>'
    return f'<div class="sample">{head}<div class="phases{" text" if written else ""}">{shots}</div></div>'


def _said(text: str) -> str:
    return escape(text) if text.strip() else "<i>nothing</i>"


def _judges(sample: HeldOutSample) -> Iterator[tuple[str, int, str, Judgment]]:
    """Word, colour, name and judgment: the judge first, then the audits."""
    yield "judge", JUDGE, "", sample.judgment
    for name, found in sample.audits.items():
        yield "audit", AUDIT, name, found


def _judgments(sample: HeldOutSample, parts: bool = True) -> str:
    lines = ""
    for word, color, name, found in _judges(sample):
        score = "not judged" if found.overall is None else f"{found.overall:.2f}"
        shown = found.parts.items() if parts else ()
        chips = "".join(
            f'<span class="chip">{escape(part)} {value:.2f}</span>' for part, value in shown if value is not None
        )
        reason = f'<span class="chip">{escape(found.abstained)}</span>' if found.abstained else ""
        lines += f'<div class="judgment" title="{escape(name, quote=True)}"><i class="key dot c{color}"></i>'
        lines += f"{word} <b>{score}</b>{chips}{reason}</div>"
    return lines


def _rows(found: Judgment) -> dict[str, Mapping[str, Json]]:
    """TIFA's answers by question; those of a combined reward lie one level deeper."""
    details = [found.details, *(value for value in found.details.values() if isinstance(value, Mapping))]
    answers = next((value for each in details if isinstance(value := each.get("answers"), Sequence)), ())
    return {str(row.get("question")): row for row in answers if isinstance(row, Mapping)}


def _answers(sample: HeldOutSample) -> str:
    """A row a question: what was expected, and what each judge answered, chose, and whether that was right."""
    asked = [(word, rows) for word, _, _, found in _judges(sample) if (rows := _rows(found))]
    if not asked:
        return ""
    heads = "".join(f"<th>{word}</th>" for word, _ in asked)
    body = ""
    for question, row in {key: row for _, rows in reversed(asked) for key, row in rows.items()}.items():
        cells = "".join(_answer(rows.get(question)) for _, rows in asked)
        body += f"<tr><td>{escape(question)} <small>{escape(str(row.get('answer', '')))}</small></td>{cells}</tr>"
    right = ", ".join(f"{word} {sum(row.get('right') is True for row in rows.values())}" for word, rows in asked)
    return (
        f"<details><summary>{len(asked[0][1])} questions; right: {right}</summary>"
        f'<table class="answers"><tr><th>question <small>expected</small></th>{heads}</tr>{body}</table></details>'
    )


def _answer(row: Mapping[str, Json] | None) -> str:
    if row is None:
        return "<td></td>"
    right = row.get("right")
    kind, sign = ("open", "?") if right is None else ("yes", "✓") if right else ("no", "✗")
    told = [str(value) for key in ("free_form", "choice") if (value := row.get(key)) is not None]
    words = " → ".join(dict.fromkeys(told)) or "no answer"
    return f'<td><span class="mark {kind}">{sign}</span> {escape(words)}</td>'
