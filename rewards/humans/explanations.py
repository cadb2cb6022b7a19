"""Why a text got its ratings, criterion by criterion (HarmonicEval §4.2: "Why? Tell me the reason.")."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from rewards.errors import InputError
from rewards.harmonic.reward import HarmonicEval
from rewards.humans.files import number, text
from rewards.humans.metrics.base import TextItem
from rewards.humans.metrics.harmonic import score_items
from rewards.images import to_pil
from rewards.runs.files import Row, numbered_lines

# What a record holds beside text and input is the reward's to say; it is read back by its names.
Record: TypeAlias = Row

_STYLE = (
    "body{font:14px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:left}"
    "img{max-width:16em;image-rendering:pixelated}.item{border-top:1px solid #ccc;padding:1em 0}"
)


def explain_texts(reward: HarmonicEval, items: Sequence[TextItem]) -> list[Record]:
    """Rate texts with a HarmonicEval that explains, as records to be written and shown.

    Args:
        reward: made with `explain=True`.
        items: n texts of its task.

    Returns:
        n JSON-able records: those of `HarmonicScores.records()` with `text` and `input`; under `explanations` a reason
        by criterion, None where the text was not judged or the judge said nothing.

    Raises:
        InputError: the reward does not explain.
    """
    if not reward.explain:
        raise InputError("the reward does not explain; make it with HarmonicEval(..., explain=True)")
    records = score_items(reward, items).records()
    return [{"text": item.text, "input": item.input, **record} for item, record in zip(items, records, strict=True)]


def write_explanations(folder: Path, items: Sequence[TextItem], records: Sequence[Record]) -> None:
    """Write `explanations.jsonl` and a page that shows pictures, ratings and reasons, `explanations.html`.

    Args:
        folder: made where absent.
        items: what was rated.
        records: from :func:`explain_texts`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (folder / "explanations.jsonl").write_text(lines, encoding="utf-8")
    parts = [_section(item, record) for item, record in zip(items, records, strict=True)]
    page = f"<!doctype html><meta charset=utf-8><title>Explanations</title><style>{_STYLE}</style>{''.join(parts)}"
    (folder / "explanations.html").write_text(page, encoding="utf-8")


def read_items(path: str | Path, images: Path | None = None) -> list[TextItem]:
    """Texts to explain: JSON lines with `image` and `text`, and `question` and `box` where the task has them.

    Raises:
        InputError: a line that is not JSON, or lacks image or text; with its number.
    """
    folder = images if images is not None else Path(path).parent
    items = []
    for line, row in numbered_lines(path):
        where = f"{path}, line {line}"
        box, question = row.get("box"), row.get("question")
        if box is not None and not (isinstance(box, list) and len(box) == 4):
            raise InputError(f"{where}: box is {box!r}; [left, top, right, bottom] is needed")
        edges = tuple(number(edge, f"{where}, box") for edge in box) if box else None
        picture = str(folder / text(row, "image", where))
        items.append(TextItem(picture, text(row, "text", where), str(question) if question else None, edges))
    return items


def _section(item: TextItem, record: Record) -> str:
    try:
        buffer = io.BytesIO()
        to_pil(item.image).save(buffer, format="PNG")
        shown = f"<img src='data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}'>"
    except (InputError, OSError) as error:
        shown = html.escape(str(error))
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{_shown(record['parts'].get(name))}</td>"
        f"<td>{html.escape(record['explanations'][name] or '')}</td></tr>"
        for name in record["explanations"]
    )
    asked = f"<p><i>{html.escape(record['input'])}</i></p>" if record["input"] else ""
    overall = _shown(record["overall"]) if record["abstained"] is None else html.escape(record["abstained"])
    return (
        f"<div class=item>{shown}{asked}<p><b>{html.escape(item.text)}</b> &mdash; overall {overall}</p>"
        f"<table><tr><th>criterion<th>score<th>reason</tr>{rows}</table></div>"
    )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
