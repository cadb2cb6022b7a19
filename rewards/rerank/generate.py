"""Candidates from a vision-language model or a diffusers pipeline, each reproducible by its own seed.

The noise of a candidate comes from its seed alone, not from the batch that it was sampled in: a text by the Gumbel-max
trick (the largest of logits / T plus Gumbel noise is a sample of the softmax), a picture by a generator of its own.
Seeds are derived from the run's seed, the prompt's id and the candidate's number, and recorded beside the candidate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from rewards.errors import InputError
from rewards.jobs.job import claim
from rewards.jobs.manifest import Identity, Manifest, read_manifest, write_manifest
from rewards.jobs.sources import Source, open_source
from rewards.rerank.generate_settings import SHAPES, GenerateSettings, Sampler
from rewards.runs.files import Row, finite_or_none, write_lines, write_whole
from rewards.runs.identity import as_json, check_same

WEIGHTS = Path(__file__).resolve().parents[1] / "shapes" / "weights"
PRESETS = {"shapes-captioner": WEIGHTS / "captioner", "shapes-generator": WEIGHTS / "stable_diffusion"}

_TASK = "best-of-n"


def generate(settings: GenerateSettings, folder: str | Path, on_shard: Callable[[], object] | None = None) -> Path:
    """Sample n candidates for every prompt, resumable.

    Args:
        settings: what is sampled.
        folder: gets `candidates.jsonl` (inline rows for `rewards rerank`, with `seeds`), pictures, and the shards.
        on_shard: called after each committed shard.

    Returns:
        The path of `candidates.jsonl`.

    Raises:
        InputError: an unknown model, prompts without pictures, a folder of a run with other settings or of something
            else, or one that another process works on.
    """
    folder = Path(folder).absolute()
    if settings.prompts != SHAPES:
        open_source(settings.prompts)
    # A run that never started must not stand in the way of the next one with another model.
    sampler: Sampler | None = None if read_manifest(folder, _TASK) is not None else _sampler(settings)
    lock = claim(folder, _TASK)
    try:
        return _sampled(settings, folder, sampler, on_shard)
    finally:
        lock.release()


def _sampled(
    settings: GenerateSettings, folder: Path, sampler: Sampler | None, on_shard: Callable[[], object] | None
) -> Path:
    known = read_manifest(folder, _TASK)
    source = _prompts(settings, folder, begun=known is not None)
    rows = _named_rows(source, settings.limit)
    described = {k: v for k, v in asdict(settings).items() if k not in ("device", "batch_size", "prompts")}
    begun = Manifest(Identity(_TASK, source.fingerprint(), as_json(described), None), str(source.path), len(rows))
    if known is None:
        write_manifest(folder, begun)
    else:
        check_same(asdict(known.identity), asdict(begun.identity), f"what is in {folder}")
    paths = []
    for start in range(0, len(rows), settings.shard_size):
        path = folder / "shards" / f"{start // settings.shard_size:06d}.jsonl"
        paths.append(path)
        if path.exists():
            continue
        sampler = sampler or _sampler(settings)
        chosen = rows[start : start + settings.shard_size]
        read = source.read([position for _, position in chosen])
        made = _shard(settings, folder, source.path.parent, [(id, row) for (id, _), row in zip(chosen, read)], sampler)
        write_lines(path, map(_plain, made))
        if on_shard is not None:
            on_shard()
    target = folder / "candidates.jsonl"
    write_whole(target, (path.read_bytes() for path in paths))
    return target


def _named_rows(source: Source, limit: int | None) -> list[tuple[str, int]]:
    """The name of every prompt, and where its row is. Candidates of one name would have the same seeds and files."""
    lines: dict[str, int] = {}
    rows = []
    for row in islice(source.scan("id", required=False), limit):
        if row.problem is not None:
            raise InputError(f"{source.path}, line {row.line}: {row.problem}")
        name = f"line-{row.line}" if row.key is None else str(row.key)
        if lines.setdefault(name, row.line) != row.line:
            raise InputError(f"{source.path}, line {row.line}: id {name!r} is also on line {lines[name]}")
        rows.append((name, row.position))
    return rows


def candidate_seed(seed: int, id: str, number: int) -> int:
    """The seed of one candidate, below 2^63.

    Example:
        >>> candidate_seed(0, "a", 1) == candidate_seed(0, "a", 1) != candidate_seed(0, "a", 2)
        True
    """
    digest = hashlib.blake2b(f"{seed}/{number}/{id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _shard(
    settings: GenerateSettings,
    folder: Path,
    base: Path,
    rows: Sequence[tuple[str, dict[str, object]]],
    sampler: Sampler,
) -> Iterator[dict[str, object]]:
    flat: list[dict[str, object]] = []
    seeds: list[int] = []
    prepared = []
    for id, row in rows:
        prepared.append({**row, "id": id, **_inputs(settings, folder, base, id, row)})
        flat += [prepared[-1]] * settings.n
        seeds += [candidate_seed(settings.seed, id, k) for k in range(settings.n)]
    outputs: list[object] = []
    for start in range(0, len(flat), settings.batch_size):
        stop = start + settings.batch_size
        outputs += sampler(flat[start:stop], seeds[start:stop])
    for place, row in enumerate(prepared):
        of_row = slice(place * settings.n, (place + 1) * settings.n)
        candidates = outputs[of_row]
        if settings.kind == "pictures":
            candidates = [_saved(folder, str(row["id"]), k, picture) for k, picture in enumerate(candidates)]
        yield {**row, "candidates": candidates, "seeds": seeds[of_row]}


def _plain(row: dict[str, object]) -> dict[str, object]:
    """A row as JSON has it; what it lacks (dates of a table, NaN) becomes text or null."""
    return dict(finite_or_none(json.loads(json.dumps(row, default=str))))


def _inputs(settings: GenerateSettings, folder: Path, base: Path, id: str, row: Row) -> dict[str, object]:
    """Checked inputs of one prompt; an encoded picture is written beside the candidates."""
    if settings.kind == "pictures":
        if not isinstance(row.get("prompt"), str) or not row["prompt"].strip():
            raise InputError(f"prompt {id!r} has no text to draw")
        return {}
    image = row.get("image")
    if isinstance(image, str):
        path = base / image
    elif isinstance(image, dict):
        path = folder / "images" / f"{_file_name(id)}.png"
        path.parent.mkdir(exist_ok=True)
        from rewards.images import to_pil

        to_pil(image).save(path)
    else:
        raise InputError(f"prompt {id!r} has no picture to write about")
    if not path.is_file():
        raise InputError(f"prompt {id!r} lacks its picture: no file {str(path)!r}")
    return {"image": str(path)}


def _saved(folder: Path, id: str, number: int, picture: Any) -> str:
    path = folder / "pictures" / _file_name(id) / f"{number:03d}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
    return str(path)


def _file_name(id: str) -> str:
    """A safe and short name for a folder or file, readable where the id is."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in id)[:40]
    return f"{plain}-{hashlib.blake2b(id.encode(), digest_size=4).hexdigest()}"


def _prompts(settings: GenerateSettings, folder: Path, begun: bool) -> Source:
    if settings.prompts != SHAPES:
        return open_source(Path(settings.prompts).absolute())
    path = folder / "prompts.jsonl"
    if not begun:
        from rewards.rerank.shapes_prompts import write_shapes_prompts

        write_shapes_prompts(path, settings.kind, settings.limit or 64, settings.seed)
    return open_source(path)


def _sampler(settings: GenerateSettings) -> Sampler:
    if settings.kind == "pictures":
        from rewards.rerank.sample_pictures import picture_sampler

        return picture_sampler(settings, _checkpoint(settings.model))
    from rewards.rerank.sample_texts import text_sampler

    return text_sampler(settings, _checkpoint(settings.model))


def _checkpoint(model: str | None) -> str:
    assert model is not None  # the settings have one
    if model in PRESETS and not PRESETS[model].is_dir():
        raise InputError(f"the packaged weights of {model!r} are missing: no directory {PRESETS[model]}")
    return str(PRESETS.get(model, model))
