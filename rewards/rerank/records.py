"""The form of a ranking in files: one JSON object an item."""

from __future__ import annotations

from rewards.rerank.items import Item
from rewards.rerank.ranking import Ranked, Ranking, Score, rounded_or_none
from rewards.runs.files import Json, Row


def ranked_row(ranking: Ranking, seq: int, line: int, audit: Ranking | None) -> dict[str, Json]:
    """A ranking as one JSON object: best first, with parts, reasons and the audit's scores beside."""
    item = ranking.item
    audited = {} if audit is None else {ranked.index: ranked.score for ranked in audit.candidates}
    candidates = []
    for ranked in ranking.candidates:
        entry: dict[str, Json] = {
            "rank": ranked.rank,
            "index": ranked.index,
            "candidate": ranked.candidate if isinstance(ranked.candidate, str) else None,
            "overall": ranked.score.overall,
            "parts": dict(ranked.score.parts),
            "details": _plain(ranked.score.details),
            "abstained": ranked.score.reason,
            "same_as": ranked.same_as,
        }
        if audit is not None:
            score = audited[ranked.index]
            entry["audit"] = {"overall": score.overall, "parts": dict(score.parts), "abstained": score.reason}
        candidates.append(entry)
    return {
        "seq": seq,
        "id": item.id,
        "line": line,
        "kind": item.kind,
        "prompt": item.prompt,
        "question": item.question,
        "image": item.image if isinstance(item.image, str) else None,
        "margin": ranking.margin,
        "candidates": candidates,
    }


def read_ranked_row(row: Row, audit: bool = False) -> Ranking:
    """The ranking behind a row: by the reward, or with `audit` by the audit, whose candidates keep their indices."""
    candidates = []
    for entry in row["candidates"]:
        scored = entry["audit"] if audit else entry
        score = Score(scored["overall"], scored["parts"], {}, scored["abstained"])
        candidates.append(Ranked(entry["rank"], entry["index"], entry["candidate"], score, entry["same_as"]))
    texts = tuple(entry["candidate"] for entry in sorted(row["candidates"], key=lambda entry: entry["index"]))
    item = Item(texts, row["image"], row["prompt"], row["question"], None, row["id"])
    return Ranking(item, tuple(candidates))


def _plain(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return rounded_or_none(value) if isinstance(value, float) else value
