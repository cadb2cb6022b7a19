"""What comes out of a finished job: ranked rows, preference pairs, the best ones for fine-tuning, problems, a summary.

Everything is made from the committed shards in order, streaming, and replaces its file by one rename; made twice, the
bytes are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.rerank.job import Job


@dataclass
class OutputSettings:
    """Which outputs are wanted.

    Attributes:
        top: candidates kept in each ranked row; None keeps all.
        pairs: write `pairs.parquet`, best against worst, in TRL's DPO format.
        min_margin: least difference of the two scores in a pair.
        sft: write `sft.parquet`, the best only, in TRL's prompt-completion format.
        gain: write `gain.json` and `gain.png`, the curves of best-of-k.
        instruction: the user's message in pairs and sft for rows with neither prompt nor question.
    """

    top: int | None = None
    pairs: bool = False
    min_margin: float = 0.0
    sft: bool = False
    gain: bool = False
    instruction: str = "Describe the image."

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise InputError(f"top is {self.top}; at least 1 is needed")
        if not self.min_margin >= 0:
            raise InputError(f"min_margin is {self.min_margin}; at least 0 is needed")


@dataclass(frozen=True)
class Summary:
    """Counts of a finished job; `problems` are rows reported in `problems.jsonl`, ranked or not."""

    items: int
    ranked: int
    candidates: int
    abstained: int
    problems: int
    pairs: int
    mean_best: float | None
    mean_first: float | None


def write_outputs(job: Job, settings: OutputSettings) -> Summary:
    """Write all outputs of a finished job into its folder.

    Args:
        job: whose shards are all committed.
        settings: which outputs.

    Returns:
        The counts, which are also in `summary.json`.

    Raises:
        InputError: shards are missing.
    """
    if missing := job.missing():
        raise InputError(f"{job.folder}: {len(missing)} shards are not finished; run the job again")
    counts = {"ranked": 0, "candidates": 0, "abstained": 0, "problems": 0, "pairs": 0}
    best: list[float] = [0.0, 0.0, 0.0]

    def ranked() -> Iterator[str]:
        for row in ranked_rows(job):
            counts["ranked"] += 1
            counts["candidates"] += len(row["candidates"])
            counts["abstained"] += sum(entry["overall"] is None for entry in row["candidates"])
            first = next(entry["overall"] for entry in row["candidates"] if entry["index"] == 0)
            top = row["candidates"][0]["overall"]
            if first is not None and top is not None:
                best[0] += 1
                best[1] += top
                best[2] += first
            yield _line({**row, "candidates": row["candidates"][: settings.top]})

    def problems() -> Iterator[str]:
        for row in _rows(job):
            if "problem" in row:
                counts["problems"] += 1
                yield _line(row["problem"])

    _replace_text(job.folder / "ranked.jsonl", ranked())
    _replace_text(job.folder / "problems.jsonl", problems())
    if settings.pairs:
        counts["pairs"] = _write_parquet(job, "pairs", lambda row: _pair(job, row, settings))
    if settings.sft:
        _write_parquet(job, "sft", lambda row: _best(job, row, settings))
    if settings.gain:
        from rewards.rerank.gain_report import write_gain

        write_gain(job.folder, ranked_rows(job))
    means = [round(total / best[0], 6) if best[0] else None for total in best[1:]]
    summary = Summary(items=job.items, mean_best=means[0], mean_first=means[1], **counts)
    _replace_text(job.folder / "summary.json", [json.dumps(vars(summary), indent=1) + "\n"])
    return summary


def ranked_rows(job: Job) -> Iterator[dict[str, Any]]:
    """The ranked rows of all committed shards, in the order of the source."""
    return (row for row in _rows(job) if "problem" not in row)


def _rows(job: Job) -> Iterator[dict[str, Any]]:
    for shard in job.shards():
        with job.path_of(shard).open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def _pair(job: Job, row: dict[str, Any], settings: OutputSettings) -> dict[str, Any] | None:
    """Best against worst judged candidate, if they differ and their scores by more than the margin."""
    judged = [entry for entry in row["candidates"] if entry["overall"] is not None]
    if len(judged) < 2:
        return None
    chosen, rejected = judged[0], judged[-1]
    gap = chosen["overall"] - rejected["overall"]
    if gap <= 0 or gap < settings.min_margin:
        return None
    if row["kind"] == "pictures":
        candidates = job.item_rows(row["seq"]).item.candidates  # type: ignore[union-attr]
        pictures = [_encoded(candidates[entry["index"]]) for entry in (chosen, rejected)]
        return {"prompt": str(row["prompt"]), "chosen": pictures[0], "rejected": pictures[1]}
    return {
        **_prompt_and_images(job, row, settings),
        "chosen": [{"role": "assistant", "content": chosen["candidate"]}],
        "rejected": [{"role": "assistant", "content": rejected["candidate"]}],
        "chosen_score": chosen["overall"],
        "rejected_score": rejected["overall"],
    }


def _best(job: Job, row: dict[str, Any], settings: OutputSettings) -> dict[str, Any] | None:
    best = row["candidates"][0]
    if best["overall"] is None:
        return None
    if row["kind"] == "pictures":
        picture = job.item_rows(row["seq"]).item.candidates[best["index"]]  # type: ignore[union-attr]
        return {"image": _encoded(picture), "text": str(row["prompt"])}
    completion = [{"role": "assistant", "content": best["candidate"]}]
    return {**_prompt_and_images(job, row, settings), "completion": completion}


def _prompt_and_images(job: Job, row: dict[str, Any], settings: OutputSettings) -> dict[str, Any]:
    image: Any = row["image"]
    if image is None:
        image = job.item_rows(row["seq"]).item.image  # type: ignore[union-attr]
    pictures = image if isinstance(image, list) else [image]
    said = row["question"] or row["prompt"] or settings.instruction
    return {
        "images": [_encoded(picture) for picture in pictures],
        "prompt": [{"role": "user", "content": str(said)}],
    }


def _encoded(picture: Any) -> dict[str, Any]:
    """A picture as `datasets` stores it, with its bytes, so that the file stands alone."""
    if isinstance(picture, dict):
        content = picture.get("bytes") or Path(str(picture["path"])).read_bytes()
        return {"bytes": content, "path": None}
    return {"bytes": Path(picture).read_bytes(), "path": Path(picture).name}


def _write_parquet(job: Job, name: str, make: Callable[[dict[str, Any]], dict[str, Any] | None]) -> int:
    """Write the rows that `make` gives, a few hundred at a time, with the types that `datasets` reads back."""
    import pyarrow
    import pyarrow.parquet

    path = job.folder / f"{name}.parquet"
    partial = path.with_suffix(".tmp")
    writer: Any = None
    count = 0
    try:
        for chunk in _chunks((made for row in ranked_rows(job) if (made := make(row)) is not None), 256):
            if writer is None:
                schema = _features(chunk[0]).arrow_schema
                writer = pyarrow.parquet.ParquetWriter(partial, schema)
            writer.write_table(pyarrow.Table.from_pylist(chunk, schema=schema))
            count += len(chunk)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        path.unlink(missing_ok=True)
    else:
        partial.replace(path)
    return count


def _features(row: dict[str, Any]) -> Any:
    from datasets import Features, Image, List, Value

    message = List({"role": Value("string"), "content": Value("string")})
    if isinstance(row.get("chosen"), dict) or "text" in row:
        return Features({name: Value("string") if isinstance(value, str) else Image() for name, value in row.items()})
    return Features(
        {
            name: List(Image()) if name == "images" else Value("float64") if isinstance(value, float) else message
            for name, value in row.items()
        }
    )


def _chunks(rows: Iterable[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


def _replace_text(path: Path, lines: Iterable[str]) -> None:
    partial = path.with_suffix(path.suffix + ".tmp")
    with partial.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    partial.replace(path)
