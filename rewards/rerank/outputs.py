"""What comes out of a finished job: ranked rows, preference pairs, the best ones for fine-tuning, problems, a summary.

Everything is made from the committed shards in order, streaming, and replaces its file by one rename; made twice, the
bytes are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewards.errors import InputError
from rewards.jobs.job import Job
from rewards.jobs.report import Report
from rewards.rerank.items import Item
from rewards.rerank.task import read_item
from rewards.runs.files import Row, encode_line, replacing, write_json, write_whole

if TYPE_CHECKING:
    from datasets import Features


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
    """Counts of a finished job.

    Attributes:
        items: in the source.
        ranked: items with at least one judged candidate.
        candidates, abstained: of the items that could be read, and how many of them could not be judged.
        failed: problems with rows that could not be ranked at all.
        problems: rows reported in `problems.jsonl`, ranked or not.
        pairs: preference pairs.
        mean_best, mean_first: mean score of the best and of the first candidate, over items where both have one.
        most_frequent_reason: of abstentions, with its count.
    """

    items: int
    ranked: int
    candidates: int
    abstained: int
    failed: int
    problems: int
    pairs: int
    mean_best: float | None
    mean_first: float | None
    most_frequent_reason: str | None


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
    counts = {"ranked": 0, "candidates": 0, "abstained": 0, "failed": 0, "problems": 0, "pairs": 0}
    report = Report()
    best: list[float] = [0.0, 0.0, 0.0]

    def ranked() -> Iterator[bytes]:
        for row in ranked_rows(job):
            counts["ranked"] += row["candidates"][0]["rank"] is not None
            counts["candidates"] += len(row["candidates"])
            for entry in row["candidates"]:
                report.add(entry["overall"], entry["abstained"])
            first = next(entry["overall"] for entry in row["candidates"] if entry["index"] == 0)
            top = row["candidates"][0]["overall"]
            if first is not None and top is not None:
                best[0] += 1
                best[1] += top
                best[2] += first
            yield encode_line({**row, "candidates": row["candidates"][: settings.top]})

    def problems() -> Iterator[bytes]:
        for line in job.lines():
            if "problem" in line:
                counts["problems"] += 1
                counts["failed"] += not line["problem"]["ranked"]
                yield encode_line(line["problem"])

    write_whole(job.folder / "ranked.jsonl", ranked())
    write_whole(job.folder / "problems.jsonl", problems())
    if settings.pairs:
        counts["pairs"] = _write_parquet(job, "pairs", lambda row: _pair(job, row, settings))
    if settings.sft:
        _write_parquet(job, "sft", lambda row: _best(job, row, settings))
    if settings.gain:
        from rewards.rerank.gain_report import write_gain

        write_gain(job.folder, ranked_rows(job))
    means = [round(total / best[0], 6) if best[0] else None for total in best[1:]]
    counts["abstained"] = report.abstained
    reason = report.most_frequent
    summary = Summary(items=job.items, mean_best=means[0], mean_first=means[1], most_frequent_reason=reason, **counts)
    write_json(job.folder / "summary.json", vars(summary))
    return summary


def ranked_rows(job: Job) -> Iterator[Row]:
    """The ranked rows of all committed shards, in the order of the source."""
    return (line for line in job.lines() if "problem" not in line)


def _pair(job: Job, row: Row, settings: OutputSettings) -> dict[str, object] | None:
    """Best against worst judged candidate, if they differ and their scores by more than the margin."""
    judged = [entry for entry in row["candidates"] if entry["overall"] is not None]
    if len(judged) < 2:
        return None
    chosen, rejected = judged[0], judged[-1]
    gap = chosen["overall"] - rejected["overall"]
    if gap <= 0 or gap < settings.min_margin:
        return None
    if row["kind"] == "pictures":
        candidates = _item(job, row).candidates
        pictures = [_encoded(candidates[entry["index"]]) for entry in (chosen, rejected)]
        return {"prompt": str(row["prompt"]), "chosen": pictures[0], "rejected": pictures[1]}
    return {
        **_prompt_and_images(job, row, settings),
        "chosen": [{"role": "assistant", "content": chosen["candidate"]}],
        "rejected": [{"role": "assistant", "content": rejected["candidate"]}],
        "chosen_score": chosen["overall"],
        "rejected_score": rejected["overall"],
    }


def _best(job: Job, row: Row, settings: OutputSettings) -> dict[str, object] | None:
    best = row["candidates"][0]
    if best["overall"] is None:
        return None
    if row["kind"] == "pictures":
        picture = _item(job, row).candidates[best["index"]]
        return {"image": _encoded(picture), "text": str(row["prompt"])}
    completion = [{"role": "assistant", "content": best["candidate"]}]
    return {**_prompt_and_images(job, row, settings), "completion": completion}


def _item(job: Job, row: Row) -> Item:
    """A ranked row's item, read again from the source."""
    item = read_item(job, row["seq"]).item
    if item is None:
        raise InputError(f"{job.source.path}, line {row['line']} is no longer what was ranked")
    return item


def _prompt_and_images(job: Job, row: dict[str, object], settings: OutputSettings) -> dict[str, object]:
    image: object = row["image"]
    if image is None:
        image = _item(job, row).image
    pictures = image if isinstance(image, list) else [image]
    said = row["question"] or row["prompt"] or settings.instruction
    return {
        "images": [_encoded(picture) for picture in pictures],
        "prompt": [{"role": "user", "content": str(said)}],
    }


def _encoded(picture: Any) -> dict[str, object]:
    """A picture as `datasets` stores it, with its bytes, so that the file stands alone."""
    if isinstance(picture, dict):
        content = picture.get("bytes") or Path(str(picture["path"])).read_bytes()
        return {"bytes": content, "path": None}
    return {"bytes": Path(picture).read_bytes(), "path": Path(picture).name}


def _write_parquet(job: Job, name: str, make: Callable[[dict[str, object]], dict[str, object] | None]) -> int:
    """Write the rows that `make` gives, a few hundred at a time, with the types that `datasets` reads back."""
    import pyarrow
    import pyarrow.parquet

    path = job.folder / f"{name}.parquet"
    chunks = _chunks((made for row in ranked_rows(job) if (made := make(row)) is not None), 256)
    first = next(chunks, None)
    if first is None:
        path.unlink(missing_ok=True)
        return 0
    schema, count = _features(first[0]).arrow_schema, 0
    with replacing(path) as partial, pyarrow.parquet.ParquetWriter(partial, schema) as writer:
        for chunk in itertools.chain([first], chunks):
            writer.write_table(pyarrow.Table.from_pylist(chunk, schema=schema))
            count += len(chunk)
    return count


def _features(row: Mapping[str, object]) -> Features:
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


def _chunks(rows: Iterable[dict[str, object]], size: int) -> Iterator[list[dict[str, object]]]:
    chunk: list[dict[str, object]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
