"""The part of the page that shows what the model made: before, during and after, and the best and worst cases."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

from rewards.report.curves import Run

PHASES = ("before", "during", "after")
LARGEST = 256
"""Pixels on a side of an embedded picture; larger ones are scaled down to keep the page small."""


def progress_section(run: Run, limit: int = 12) -> str:
    """The same prompts before, during (the last one) and after training, side by side.

    Args:
        run: With samples.
        limit: How many prompts to show.

    Returns:
        HTML, empty where no prompt was sampled twice.
    """
    by_prompt: dict[tuple[str, Any], dict[str, Mapping[str, Any]]] = {}
    for sample in run.samples:
        about = None if sample["phase"] not in PHASES or "text" not in sample else _about_key(run, sample)
        by_prompt.setdefault((sample["prompt"], about), {})[sample["phase"]] = sample
    rows = [(key[0], phases) for key, phases in by_prompt.items() if len(phases) > 1]
    if not rows:
        return ""
    cards = "".join(_progress_card(run, prompt, phases) for prompt, phases in _spread(rows, limit))
    note = f"Held-out prompts, the same each time; {min(limit, len(rows))} of {len(rows)} are shown."
    return f'<h2>Before and after</h2><p class="note">{note}</p><div class="samples">{cards}</div>'


def cases_section(run: Run, limit: int = 6) -> str:
    """The worst and the best samples of the latest evaluation, with the judge's answers.

    Returns:
        HTML, empty where no sample has a score.
    """
    last = max((sample["step"] for sample in run.samples), default=0)
    scored = [s for s in run.samples if s["step"] == last and s.get("score") is not None]
    abstained = [s for s in run.samples if s["step"] == last and s.get("score") is None]
    if not scored:
        return ""
    ordered = sorted(scored, key=lambda sample: sample["score"])
    count = min(limit, max(1, len(ordered) // 2))
    html = ""
    groups = [("Worst cases", ordered[:count]), ("Best cases", ordered[::-1][:count])]
    for title, cases in [*groups, ("Not judged", abstained[:limit])]:
        if cases:
            cards = "".join(_case(run, sample) for sample in cases)
            html += f'<h2>{title} at step {last}</h2><div class="samples">{cards}</div>'
    return html


def _about_key(run: Run, sample: Mapping[str, Any]) -> Any:
    """Tells apart texts about different pictures: a picture's content, since each phase saves its own file."""
    return _content(run.folder / sample["image"]) if "image" in sample else None


@cache
def _content(path: Path) -> int | None:
    return hash(path.read_bytes()) if path.is_file() else None


def _spread(rows: list[Any], limit: int) -> list[Any]:
    """At most ``limit`` of the rows, evenly over all of them."""
    if len(rows) <= limit:
        return rows
    return [rows[index * len(rows) // limit] for index in range(limit)]


def _progress_card(run: Run, prompt: str, phases: Mapping[str, Mapping[str, Any]]) -> str:
    shown = [(phase, phases[phase]) for phase in PHASES if phase in phases]
    written = any("text" in sample for _, sample in shown)
    head = f"<p>{escape(prompt)}</p>" if prompt else ""
    if written:
        picture = _picture(run, shown[0][1])
        head = f'<div class="about">{picture}<p>{escape(prompt)}</p></div>' if picture or prompt else ""
    shots = ""
    for phase, sample in shown:
        body = f'<p class="said">{escape(sample["text"])}</p>' if written else _picture(run, sample)
        label = f"{phase}" if phase != "during" else f"step {sample['step']}"
        shots += f'<div class="shot">{body}{label} · {_score(sample)}{_parts(sample) if written else ""}</div>'
    return f'<div class="sample">{head}<div class="phases{" text" if written else ""}">{shots}</div></div>'


def _case(run: Run, sample: Mapping[str, Any]) -> str:
    answers = _answers(sample.get("details") or [])
    if "text" in sample:
        picture = _picture(run, sample)
        about = f'<div class="about">{picture}<p>{escape(sample["prompt"])}</p></div>' if picture else ""
        said = f'<p class="said">{escape(sample["text"])}</p>'
        return f'<div class="case worded"><div>{about}{said}{_score(sample)}{_parts(sample)}{answers}</div></div>'
    body = answers or _parts(sample)
    return (
        f'<div class="case"><p>{escape(sample["prompt"])}</p><div>{_picture(run, sample)}{_score(sample)}</div>'
        f"<div>{body}</div></div>"
    )


def _score(sample: Mapping[str, Any]) -> str:
    score = sample.get("score")
    return f'<span class="score">{"not judged" if score is None else format(score, ".2f")}</span>'


def _parts(sample: Mapping[str, Any]) -> str:
    chips = "".join(
        f'<span class="chip">{escape(str(name))} {"–" if value is None else format(value, ".2f")}</span>'
        for name, value in (sample.get("parts") or {}).items()
    )
    return f'<div class="parts">{chips}</div>' if chips else ""


def _answers(details: Sequence[Mapping[str, Any]]) -> str:
    rows = ""
    for detail in details:
        if "question" in detail:
            right = detail.get("right")
            mark = ("open", "?") if right is None else ("yes", "✓") if right else ("no", "✗")
            answer = "no answer" if detail.get("answer") is None else str(detail["answer"])
            wrong = "" if right else f" (expected {escape(str(detail.get('expected')))})"
            cells = f'<td class="mark {mark[0]}">{mark[1]}</td><td>{escape(str(detail["question"]))}</td>'
            rows += f"<tr>{cells}<td>{escape(answer)}{wrong}</td></tr>"
        else:
            # One cell that wraps: five criteria in cells of their own are wider than a phone.
            rows += f"<tr><td>{escape(' · '.join(f'{k}: {_plain(v)}' for k, v in detail.items()))}</td></tr>"
    return f'<table class="answers">{rows}</table>' if rows else ""


def _plain(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _picture(run: Run, sample: Mapping[str, Any]) -> str:
    path = run.folder / str(sample.get("image", ""))
    if "image" not in sample or not path.is_file() or not path.resolve().is_relative_to(run.folder.resolve()):
        return ""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    small = max(image.size) <= 96
    image.thumbnail((LARGEST, LARGEST))
    buffer = io.BytesIO()
    image.save(buffer, "PNG" if small else "JPEG", **({} if small else {"quality": 85}))
    data = base64.b64encode(buffer.getvalue()).decode()
    kind = "png" if small else "jpeg"
    alt = escape(str(sample["prompt"]), quote=True)
    return f'<img{" class=small" if small else ""} alt="{alt}" src="data:image/{kind};base64,{data}">'
